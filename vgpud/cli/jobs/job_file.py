"""The job file: the options of `vgpu submit` as TOML, with _ for - in names. The command line overrides the file.

Errors name the line; an unknown key is answered with the most similar valid one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from vgpud.cli.jobs import after_options
from vgpud.errors import CliError, ExitCode
from vgpud.userfiles import bounded, toml

#: key of read()'s results in the command's ctx.meta
META = "vgpud.job_file"
#: options that make no sense in a file, and the argument, which is read below
NOT_IN_A_FILE = {"file", "wait", "quiet", "output", "host", "headers", "color", "timeout_s", "help", "command", "env"}
NOT_IN_A_FILE |= {"template"}  # a file by its name
NOT_IN_A_FILE |= {"pty", "detach_keys"}  # of the terminal where it is submitted
NOT_IN_A_FILE |= {"request_id"}  # each submission has its own
NOT_IN_A_FILE |= {"over_cluster", "run_dir", "dry_run", "partition", "gpu_model", "model"}  # of a cluster alone


class _Reader:
    def __init__(self, path: Path, text: str, ctx: click.Context) -> None:
        self.path = path
        self.lines = text.splitlines()
        self.ctx = ctx
        self.options = {_key(p): p for p in ctx.command.params if p.name and p.name not in NOT_IN_A_FILE}

    def wrong(self, key: str, message: str) -> CliError:
        """The refusal, with the line that the key is set on, as a value or as a table."""
        name = rf"[\"']?{re.escape(key)}[\"']?"
        pattern = re.compile(rf"\s*({name}\s*[=.]|\[+\s*{name}\s*[\].])")
        line = next((f" line {i}" for i, text in enumerate(self.lines, 1) if pattern.match(text)), "")
        return CliError(f"{self.path}{line}: {message}", ExitCode.USAGE)

    def values(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """The file's values by the names of the command's parameters."""
        known = [*self.options, "command", "env"]
        found: dict[str, Any] = {}
        for key, value in document.items():
            if key == "command":
                found["command"] = self._command(value)
            elif key == "env":
                found["env"] = self._env(value)
            elif key in self.options:
                param = self.options[key]
                found[str(param.name)] = self._value(key, param, value)
            else:
                near = difflib.get_close_matches(key, known, 1, 0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
                raise self.wrong(key, f"there is no key {key!r}: {hint}")
        return found

    def _value(self, key: str, param: click.Parameter, value: Any) -> Any:
        if key == "after_any" and isinstance(value, bool):  # the option's form without a value
            return "" if value else None
        if isinstance(param, click.Option) and param.is_flag:
            if not isinstance(value, bool):
                raise self.wrong(key, f"{key} = {value!r} is neither true nor false")
            return value
        many = isinstance(value, list)
        if many and not (param.multiple or key in after_options.NAMES):
            raise self.wrong(key, f"{key} takes one value, not a list")
        for item in value if many else [value]:
            if isinstance(item, bool) or not isinstance(item, (str, int, float)):
                raise self.wrong(key, f"{key} = {item!r} is neither a string nor a number")
        words = [str(item) for item in (value if many else [value])]
        default = words if param.multiple else ",".join(words)
        try:
            param.type_cast_value(self.ctx, default)
        except click.BadParameter as error:
            raise self.wrong(key, f"{key}: {error.message.rstrip('.')}") from error
        return default

    def _command(self, value: Any) -> tuple[str, ...]:
        """A list of words, or one string for the shell."""
        if isinstance(value, str):
            return ("/bin/sh", "-c", value)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            return tuple(value)
        raise self.wrong("command", 'command is a list of words, ["python", "train.py"], or one string for the shell')

    def _env(self, value: Any) -> tuple[tuple[str, str], ...]:
        if not isinstance(value, dict):
            raise self.wrong("env", "env is a table: [env], then lines such as NAME = 'value'")
        for name, text in value.items():
            if not isinstance(text, str):
                raise self.wrong(name, f"env.{name} = {text!r} is not a string: write it in quotes")
        return tuple(value.items())


def _key(param: click.Parameter) -> str:
    """From the option's longest name: --time-limit is time_limit, and --no-preempt is no_preempt."""
    return max(param.opts, key=len).lstrip("-").replace("-", "_")


def read_document(ctx: click.Context, path: Path, document: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the keys by parameter: defaults of options. `path`: what they are of, for messages. Raises
    CliError."""
    return _Reader(path, "", ctx).values(document)


def read(ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Callback of -f: the file's values become the defaults of options that are not given."""
    if path is None:
        return
    try:
        text = bounded.read_text(path, toml.FILE_BYTES_MAX)
        given = toml.parse(path, text)
    except bounded.FileError as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    found = _Reader(path, text, ctx).values(given)
    ctx.meta[META] = {name: found.pop(name) for name in ("command", "env") if name in found}
    ctx.default_map = found
