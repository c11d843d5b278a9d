"""`vgpu submit`: jobs that a job comes after, and what they must do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

USAGE = 2


@pytest.mark.parametrize(
    ("options", "after", "after_fail", "after_end"),
    [
        ("--after 3,4", [3, 4], [], []),
        ("--after-ok 3,4", [3, 4], [], []),
        ("--after 3 --after-ok 4-5,3", [3, 4, 5], [], []),
        ("--after 3 --after-any", [], [], [3]),
        ("--after-any --after 3 --after-ok 4", [4], [], [3]),
        ("--after-any", [], [], []),
        ("--after 1 --after-fail 2 --after-any 3-5", [1], [2], [3, 4, 5]),
    ],
)
def test_they_are_sent(
    vgpu: Any, daemon: Any, options: str, after: list[int], after_fail: list[int], after_end: list[int]
) -> None:
    assert vgpu("submit", "--gpus", "0.5", *options.split(), "--", "x", host=daemon.host).code == 0
    spec = daemon.queue.requests[-1].spec
    assert (list(spec.after), list(spec.after_fail), list(spec.after_end)) == (after, after_fail, after_end)
    assert not spec.after_any


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--after 3,4 --after-fail 4", "job 4 is to be waited for in several ways: name it once"),
        ("--after-any ./x", "'./x' is not a job: write its number"),
        ("--after-fail x", "'x' is not a job"),
    ],
)
def test_what_is_refused(vgpu: Any, daemon: Any, options: str, message: str) -> None:
    result = vgpu("submit", "--gpus", "0.5", *options.split(), "--", "x", host=daemon.host)
    assert result.code == USAGE
    assert message in result.stderr and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "after", "after_end"),
    [
        ("after = [3, 4]\nafter_any = false\n", [3, 4], []),
        ("after = '3-4'\nafter_any = true\n", [], [3, 4]),
        ("after_ok = [3]\nafter_any = [4, '6-7']\n", [3], [4, 6, 7]),
    ],
)
def test_a_job_file_has_them(
    vgpu: Any, daemon: Any, tmp_path: Path, text: str, after: list[int], after_end: list[int]
) -> None:
    path = tmp_path / "job.toml"
    path.write_text("gpus = 1\n" + text)
    result = vgpu("submit", "-f", str(path), "--", "x", host=daemon.host)
    assert result.code == 0, result
    spec = daemon.queue.requests[-1].spec
    assert (list(spec.after), list(spec.after_end)) == (after, after_end)


def test_a_script_has_them(vgpu: Any, daemon: Any, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text("#!/bin/sh\n#VGPU --gpus 1 --after 3\n#VGPU --after-any\n#VGPU --after-fail 4\n")
    result = vgpu("submit", str(path), host=daemon.host)
    assert result.code == 0, result
    spec = daemon.queue.requests[-1].spec
    assert (list(spec.after), list(spec.after_fail), list(spec.after_end)) == ([], [4], [3])
