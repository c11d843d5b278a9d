"""What new users type is answered with what is written here."""

from __future__ import annotations

import re
from typing import Any

import click
import pytest

from vgpud import serve
from vgpud.cli.common.suggestions import WORDS_OF_OTHERS
from vgpud.cli.main import COMMANDS, cli


@pytest.mark.parametrize("word", list(WORDS_OF_OTHERS))
def test_a_word_of_another_program_is_answered_with_a_command_that_exists(word: str, vgpu: Any) -> None:
    assert word not in COMMANDS
    result = vgpu(word, "x")
    assert result.code == 2 and result.stderr.count("\n") == 1
    line = re.fullmatch(f"vgpu: No such command '{word}', did you mean (.+)\\? \\(see vgpu --help\\)\n", result.stderr)
    assert line
    named = re.findall(r"`(\w+) ([a-z ]+)", line[1])
    for program, words in named:
        command: Any = cli if program == "vgpu" else serve.main
        for name in words.split():
            assert isinstance(command, click.Group), words
            command = command.get_command(click.Context(command), name)
            assert command is not None, words
    assert named


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("run", "--gpu", "1", "--", "true"), "No such option '--gpu', did you mean --gpus"),
        (("run", "--gpus", "1", "--memory", "8G", "--", "true"), "No such option '--memory', did you mean --mem?"),
        (("submit", "--time", "2h", "--", "true"), "No such option '--time', did you mean --time-limit"),
        (("--hlep",), "No such option '--hlep', did you mean --help?"),
        (("run", "--xyzzy", "--", "true"), "No such option '--xyzzy' (see vgpu run --help)"),
    ],
)
def test_a_mistyped_option_gets_a_suggestion(args: tuple[str, ...], line: str, vgpu: Any) -> None:
    result = vgpu(*args)
    assert result.code in (2, 125) and line in result.stderr and result.stderr.count("\n") == 1


def test_the_daemon_names_its_commands_and_the_users_program() -> None:
    with pytest.raises(click.UsageError) as refusal:
        serve.main(["run"], standalone_mode=False)
    said = refusal.value.format_message()
    assert "`vgpud serve` starts it" in said and "`vgpu status`" in said and "check-config" in said
