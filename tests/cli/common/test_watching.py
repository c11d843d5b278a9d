"""-w of lists: in place on a terminal, one answer below the other elsewhere; what ends it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import click
import pytest

from tests.cli.conftest import Screen
from vgpud.cli.common.options import LazyGroup
from vgpud.cli.common.watching import ListCommand
from vgpud.cli.main import cli

UNREACHABLE = 3


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """updates(act, act): what happens after each answer; Ctrl-C follows. The intervals that were slept."""

    def prepare(*acts: Callable[[], object]) -> list[float]:
        slept: list[float] = []
        left = list(acts)

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            if not left:
                raise KeyboardInterrupt
            left.pop(0)()

        monkeypatch.setattr("vgpud.cli.common.watching.time", SimpleNamespace(sleep=sleep))
        return slept

    return prepare


def test_into_a_pipe_one_answer_is_below_the_other(vgpu: Any, daemon: Any, updates: Any) -> None:
    queue = daemon.queue
    slept = updates(lambda: queue.add(2, "running"))
    queue.add(1, "pending")
    result = vgpu("job", "ls", "-w", "-o", "name", host=daemon.host)
    assert (result.code, result.stdout.split(), slept) == (0, ["1", "1", "2"], [2.0, 2.0])
    assert "\x1b" not in result.stdout


def test_json_is_a_line_for_each_answer(vgpu: Any, daemon: Any, updates: Any) -> None:
    slept = updates(lambda: daemon.create("b"))
    daemon.create("a")
    result = vgpu("slice", "ls", "--watch", "-d", "0.5", "-o", "json", host=daemon.host)
    documents = [json.loads(line) for line in result.stdout.splitlines()]
    assert [[item["name"] for item in one["slices"]] for one in documents] == [["a"], ["a", "b"]]
    assert slept == [0.5, 0.5]


@pytest.mark.parametrize("height", ["40", "6"])
def test_a_terminal_has_the_last_answer_in_place(
    vgpu: Any, daemon: Any, updates: Any, monkeypatch: pytest.MonkeyPatch, height: str
) -> None:
    for job_id in range(1, 9):
        daemon.queue.add(job_id, "pending")
    updates(lambda: daemon.queue.end(1))
    screen = Screen()
    for name, value in (("COLUMNS", "80"), ("LINES", height), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", screen)
        patch.setattr(sys, "stderr", screen)
        assert vgpu("job", "ls", "-w", "--no-color", host=daemon.host).code == 0
    first, second = screen.getvalue().split("\x1b[H")[1:]
    assert first.endswith("\x1b[J") and second.endswith("\x1b[J")
    lines = [line.removesuffix("\x1b[K") for line in second.removesuffix("\x1b[J").splitlines()]
    if height == "40":
        assert [line.split()[0] for line in lines[1:]] == list("2345678")
    else:
        assert len(lines) == 5 and lines[-1].startswith("and ") and lines[-1].endswith(" more lines")


def test_a_daemon_that_is_away_is_waited_for(vgpu: Any, daemon: Any, updates: Any) -> None:
    daemon.queue.add(1, "pending")
    updates(daemon.stop, daemon.__enter__)
    result = vgpu("job", "ls", "-w", "-o", "name", "--timeout", "5", host=daemon.host)
    assert (result.code, result.stdout.split()) == (0, ["1", "1"])
    assert "daemon not running" in result.stderr


def test_a_first_answer_that_fails_ends_it(vgpu: Any, tmp_path: Any) -> None:
    assert vgpu("job", "ls", "-w", host=f"unix://{tmp_path}/none.sock").code == UNREACHABLE
    assert vgpu("job", "ls", "-w", "-d", "0", host=f"unix://{tmp_path}/none.sock").code == 2


def test_every_list_can_be_watched() -> None:
    """Each command that is called ls, and the lists with a name of their own."""
    missing = []

    def look(group: click.Group, path: str) -> None:
        context = click.Context(group)
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            if isinstance(command, LazyGroup):
                look(command, f"{path} {name}")
            elif f"{path} {name}" in ("vgpu ps", "vgpu usage", "vgpu cluster queues") or name == "ls":
                missing.extend([] if isinstance(command, ListCommand) else [f"{path} {name}"])

    look(cli, "vgpu")
    assert not missing
