"""The options of a job's terminal, and the keys that leave it: read from an option, and found in what is typed."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

import click

from vgpud.cli.common.options import Settings
from vgpud.cli.common.quantities import AnyParam
from vgpud.errors import CliError, ExitCode

DEFAULT = "ctrl-\\,d"
_KEY = re.compile(r"ctrl-([a-z@\[\\\]^_])|([\x21-\x7e])", re.IGNORECASE)
KEYS_MAX = 8


def parse(text: str) -> bytes:
    """The bytes of keys such as ctrl-p,ctrl-q or ctrl-a,d. Raises ValueError, one line with the remedy."""
    words = text.strip().split(",")
    if len(words) > KEYS_MAX:
        raise ValueError(f"{text!r} has {len(words)} keys: write at most {KEYS_MAX}")
    found = bytearray()
    for word in words:
        match = _KEY.fullmatch(word)
        if not match:
            raise ValueError(f"{word!r} of {text!r} is not a key: write for example ctrl-p,ctrl-q or ctrl-a,d")
        found += bytes([ord(match[1].upper()) & 0x1F]) if match[1] else match[2].encode()
    if found[0] >= 0x20:
        raise ValueError(f"{text!r} begins with a letter, which could not be typed any more: begin with ctrl-")
    return bytes(found)


def words(keys: bytes) -> str:
    """As they are said to a user: Ctrl-\\ d."""
    return " ".join(f"Ctrl-{chr(key | 0x40)}" if key < 0x20 else chr(key) for key in keys)


class DetachKeys(AnyParam):
    """The option's value, as bytes."""

    name = "keys"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        if isinstance(value, bytes):
            return value
        try:
            return parse(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


def detach_keys_option(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--detach-keys",
        type=DetachKeys(),
        default=DEFAULT,
        metavar="KEYS",
        help="Keys that leave the job's terminal, such as ctrl-a,d (default: ctrl-\\,d).",
    )(command)


def check_terminal() -> None:
    """Raises CliError where no keys can be typed."""
    if not sys.stdin.isatty():
        text = (
            "stdin is not a terminal, so nothing could be typed into the job's: use `vgpu job logs -f` for its output"
        )
        raise CliError(text, ExitCode.USAGE)


def check_pty(settings: Settings, option_values: Mapping[str, Any]) -> None:
    """What cannot be together with --pty. Raises CliError, UsageError."""
    for name in ("array", "gang", "workers"):
        if option_values.get(name) not in (None, 1):
            raise click.UsageError(f"--pty and --{name}: a terminal is for one program, submit each by itself")
    if settings.output != "table":
        raise click.UsageError(f"--pty and --output {settings.output}: the terminal is the job's, leave one out")
    check_terminal()


class Finder:
    """Finds the keys in what is typed, however it arrives. What has only begun like them is held back."""

    def __init__(self, keys: bytes) -> None:
        self._keys = keys
        self._held = b""

    def feed(self, pressed_keys: bytes) -> tuple[bytes, bool]:
        """(what goes to the job, whether the keys were typed: what follows them is dropped)."""
        passed = bytearray()
        for key in pressed_keys:
            self._held += bytes([key])
            while self._held and not self._keys.startswith(self._held):
                passed.append(self._held[0])
                self._held = self._held[1:]
            if self._held == self._keys:
                self._held = b""
                return bytes(passed), True
        return bytes(passed), False
