"""With -o json an error is one object on stderr; the exit code is as without."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vgpud.cli.common.exits import error_word
from vgpud.errors import ExitCode

DOCUMENT = Path(__file__).parents[2] / "docs/cli.md"


@pytest.mark.parametrize(
    ("words", "exit_code", "code", "message"),
    [
        (("-o", "json", "job", "show", "99"), 4, "not_found", "no job 99"),
        (("job", "show", "99", "-o", "json"), 4, "not_found", "no job 99"),
        (("job", "cancel", "1", "-ojson"), 8, "conflict", "job 1 has completed"),
        (("job", "ls", "--state", "lost", "-o", "json"), 2, "usage", "there is no state 'lost'"),
        (("job", "ls", "--output=json", "--wrong"), 2, "usage", "No such option '--wrong'"),
        (("jobs", "--output", "json"), 2, "usage", "No such command 'jobs'"),
        (("job", "cancel", "-o", "json"), 2, "usage", "say which jobs"),
        (("submit", "-o", "json", "--gpus", "9", "x"), 6, "no_capacity", "a gang of"),
        (("submit", "-o", "json", "--wait", "--gpus", "9", "x"), 125, "failed", "a gang of"),
    ],
)
def test_an_error_is_an_object(
    vgpu: Any, daemon: Any, words: tuple[str, ...], exit_code: int, code: str, message: str
) -> None:
    daemon.queue.add(1, "completed")
    result = vgpu(*words, host=daemon.host)
    assert (result.code, result.stdout) == (exit_code, ""), result
    assert result.stderr.count("\n") == 1
    error = json.loads(result.stderr)
    assert error == {"error": {"code": code, "message": error["error"]["message"]}}
    assert message in error["error"]["message"]


def test_a_daemon_that_is_away(vgpu: Any, tmp_path: Path) -> None:
    result = vgpu("job", "ls", "-o", "json", host=f"unix://{tmp_path}/none.sock")
    assert (result.code, json.loads(result.stderr)["error"]["code"]) == (3, "unreachable")


def test_what_belongs_to_the_command_asks_for_nothing(vgpu: Any, daemon: Any) -> None:
    for words in (
        ("run", "x", "-o", "json"),
        ("job", "show", "--", "-o", "json"),
        ("job", "ls", "--wrong", "-o", "yaml"),
    ):
        result = vgpu(*words, host=daemon.host)
        assert result.code in (2, 125) and result.stderr.startswith("vgpu: "), result


def test_the_last_line_is_the_error_after_remarks(vgpu: Any, daemon: Any) -> None:
    daemon.queue.add(1, "completed")
    daemon.queue.add(2, "pending")
    result = vgpu("job", "cancel", "1", "2", "-o", "json", host=daemon.host)
    assert result.code == 8
    *remarks, last = result.stderr.splitlines()
    assert len(remarks) == 2 and json.loads(last)["error"]["code"] == "conflict"


def test_no_control_character_reaches_the_terminal(vgpu: Any, daemon: Any) -> None:
    result = vgpu("slice", "show", "a\x1b[2J\u00e9", "-o", "json", host=daemon.host)
    assert "\x1b" not in result.stderr and "\u00e9" in json.loads(result.stderr)["error"]["message"]


def test_the_document_has_every_code() -> None:
    text = DOCUMENT.read_text()
    for code in ExitCode:
        if code != ExitCode.OK:
            assert f"`{error_word(code)}`" in text
    assert error_word(77) == "other"
