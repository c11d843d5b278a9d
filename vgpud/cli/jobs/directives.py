"""`#VGPU` lines of a job script: options of `vgpu submit` in its leading comments, as `#SBATCH` has them for sbatch.

They become defaults, as the values of a job file do, so the command line overrides them. Errors name file and line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from vgpud.cli.jobs import container_options, job_file
from vgpud.errors import CliError, ExitCode

WORD = "#VGPU"
#: the leading comments of a script have at most this
_HEAD_BYTES_MAX = 64 << 10
_LINE = re.compile(rf"{WORD}(?:\s+(.*))?$")
#: with these there is no script of this host, or the file has the options
_WITHOUT_SCRIPT = ("image", "file", "template", "environment")
#: also what would run the program on this host, at once
_NOT_IN_A_SCRIPT = (job_file.NOT_IN_A_FILE - {"env"}) | {*container_options.NAMES, "image", "predict_run"}


def read(ctx: click.Context, args: Sequence[str]) -> list[str]:
    """The command line with the script's path in place of its name. The script's lines become the command's defaults.

    The script is the first word of COMMAND, if that is a file: with a slash in its name, or not a program of PATH. One
    that is not executable gets its interpreter in front. Raises CliError for a line that is invalid.
    """
    given = list(args)
    try:
        option_values, words = _parse(ctx, given)
    except click.UsageError:
        return given  # click says it when it parses them
    if not words or any(option_values.get(name) for name in _WITHOUT_SCRIPT):
        return given
    path = _find_script(words[0])
    if path is None:
        return given
    lines = list(_comment_lines(path))
    values, variables = _Reader(ctx, words[0]).read(lines)
    if values or variables:
        ctx.default_map = values
        ctx.meta[job_file.META] = {"env": tuple(variables)}
    elif "/" in words[0]:
        return given
    return [*given[: len(given) - len(words)], *_make_command(path, words[0], lines), *words[1:]]


def _parse(ctx: click.Context, args: Sequence[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Texts of the options by parameter, and the words of COMMAND. Raises UsageError."""
    found, _, _ = ctx.command.make_parser(ctx).parse_args(list(args))
    words = found.pop("command", ())
    return found, tuple(words) if isinstance(words, tuple | list) else ()


def _find_script(word: str) -> Path | None:
    if "/" not in word and shutil.which(word):
        return None
    return Path(os.path.abspath(word)) if os.path.isfile(word) else None


def _comment_lines(path: Path) -> Iterator[str]:
    """The leading lines that are comments or empty; none of a file that is not text with a comment at its begin."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES_MAX)
    except OSError:
        return  # the job's start says it
    for line in head.split(b"\n"):
        if line.strip() and not line.startswith(b"#"):
            return
        yield line.decode(errors="replace")


def _make_command(path: Path, word: str, lines: Sequence[str]) -> list[str]:
    if os.access(path, os.X_OK):
        return [str(path)]
    if not lines or not lines[0].startswith("#!"):
        text = f"{word} is not executable and begins with no #! line: add one, such as #!/bin/bash"
        raise CliError(text, ExitCode.USAGE)
    return [*lines[0][2:].strip().split(None, 1), str(path)]  # as the kernel does


class _Reader:
    """Reads the `#VGPU` lines of one script, whose name is for messages."""

    def __init__(self, ctx: click.Context, script_name: str) -> None:
        self._ctx = ctx
        self._script_name = script_name
        self._params = {str(param.name): param for param in ctx.command.params}

    def read(self, lines: Sequence[str]) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        """The values by parameter, of which the last line's counts, and the job's variables."""
        values: dict[str, Any] = {}
        variables: list[tuple[str, str]] = []
        for number, line in enumerate(lines, 1):
            match = _LINE.match(line.rstrip())
            if not match:
                continue
            try:
                line_values = self._parse_line(match[1] or "")
            except (click.UsageError, ValueError) as error:
                text = error.format_message() if isinstance(error, click.UsageError) else str(error)
                where = f"{self._script_name} line {number}"
                raise CliError(f"{where}: {text.rstrip('.')}", ExitCode.USAGE) from error
            variables += line_values.pop("env", ())
            for name, value in line_values.items():
                values[name] = [*values.get(name, ()), *value] if self._params[name].multiple else value
        return values, variables

    def _parse_line(self, text: str) -> dict[str, Any]:
        """Raises UsageError, or ValueError for quotes without an end."""
        values, words = _parse(self._ctx, shlex.split(text))
        if words:
            raise click.UsageError(f"{words[0]!r} is not an option: after {WORD} come options of `vgpu submit`")
        for name in values:
            param = self._params[name]
            if name in _NOT_IN_A_SCRIPT:
                option = max(param.opts, key=len)
                raise click.UsageError(f"{option} is for the command line: leave it out of the script")
            values[name], _ = param.consume_value(self._ctx, values)  # that of an option without one is filled in
            cast = param.type_cast_value(self._ctx, values[name])
            if name == "env":
                values[name] = cast
        return values
