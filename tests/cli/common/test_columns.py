"""--columns: which columns of a table are shown, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

USAGE = 2


def test_the_columns_are_chosen_and_ordered(vgpu: Any, daemon: Any) -> None:
    daemon.queue.add(3, "held", reason="it is held")
    result = vgpu("job", "ls", "--columns", "state,JOB, where-or-why", host=daemon.host)
    assert result.code == 0, result
    assert [line.split(None, 2) for line in result.stdout.splitlines()] == [
        ["STATE", "JOB", "WHERE-OR-WHY"],
        ["held", "3", "it is held"],
    ]
    assert vgpu("job", "ls", "--no-headers", "--columns", "job", host=daemon.host).stdout.split() == ["3"]


def test_slices_have_them_too(vgpu: Any, daemon: Any) -> None:
    daemon.create("train")
    result = vgpu("slice", "create", "b", "--gpus", "0.25", host=daemon.host)
    assert result.code == 0, result
    lines = vgpu("slice", "ls", "--columns", "max,slice", host=daemon.host).stdout.splitlines()
    assert [line.split() for line in lines] == [["MAX", "SLICE"], ["0.25", "b"], ["-", "train"]]


def test_a_narrow_terminal_keeps_the_columns_that_were_chosen(
    on_a_terminal: Any, daemon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.queue.add(3, "held", reason="it is held: release it with `vgpu job release 3`")
    lines = on_a_terminal(34, "job", "ls", "--columns", "queue,job,where-or-why", host=daemon.host)
    assert lines[0].split()[:2] == ["QUEUE", "JOB"]
    assert not any("not shown" in line for line in lines)
    assert "release it with" in " ".join(lines)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("job", "ls", "--columns", "job,size"), "there is no column 'size': choose from job, name, user, queue"),
        (("slice", "ls", "--columns", "jobs"), "there is no column 'jobs': choose from slice, user"),
        (("job", "ls", "--columns", "job,,name"), "'job,,name' is not a list of columns: write each once"),
        (("job", "ls", "--columns", "job,job"), "is not a list of columns"),
        (("job", "ls", "--columns", "job", "-o", "json"), "--columns is for tables: with -o json leave it out"),
    ],
)
def test_what_is_refused(vgpu: Any, daemon: Any, words: tuple[str, ...], message: str) -> None:
    result = vgpu(*words, host=daemon.host)
    assert result.code == USAGE
    assert message in result.stderr and result.stderr.count("\n") == 1 and not result.stdout
