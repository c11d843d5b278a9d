"""-w: a list that is shown again and again until Ctrl-C. On a terminal in place, else one answer below the other."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, redirect_stderr, redirect_stdout
from typing import Any, TextIO

import click

from vgpud.cli.common.interrupts import ended_by_interrupt
from vgpud.cli.common.options import Settings, VgpuCommand
from vgpud.cli.common.quantities import Number
from vgpud.errors import CliError, ExitCode

#: keys of a command's meta
_WATCH, _INTERVAL, _ANSWERED = "vgpud.watch", "vgpud.interval_s", "vgpud.has_answered"
_DEFAULT_S = 2.0
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta[_WATCH if param.name == "watch" else _INTERVAL] = value


class ListCommand(VgpuCommand):
    """A command that shows a list: with -w again and again."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        watch = click.Option(
            ["-w", "--watch"],
            is_flag=True,
            expose_value=False,
            callback=_keep,
            help="Show it again every --interval, until Ctrl-C; into a pipe one answer below the other.",
        )
        interval = click.Option(
            ["-d", "--interval"],
            type=Number(0.1, 3600),
            default=_DEFAULT_S,
            expose_value=False,
            callback=_keep,
            metavar="SECONDS",
            help="With --watch: seconds between two answers (default: 2).",
        )
        self.params.extend([watch, interval])

    def invoke(self, ctx: click.Context) -> Any:
        if not ctx.meta[_WATCH]:
            return super().invoke(ctx)
        settings = ctx.ensure_object(Settings)
        settings.is_stream = True
        with ended_by_interrupt():
            for _ in _ticks(ctx.meta[_INTERVAL]):
                if sys.stdout.isatty() and settings.output == "table":
                    _draw(sys.stdout, self._answer_as_text(ctx))
                else:
                    self._answer(ctx)
                sys.stdout.flush()
        return None

    def _answer(self, ctx: click.Context) -> None:
        """One answer. A daemon that has answered before is waited for."""
        from vgpud.cli.common.output import say

        try:
            super().invoke(ctx)
        except CliError as error:
            if error.exit_code != ExitCode.UNREACHABLE or not ctx.meta.get(_ANSWERED):
                raise
            say(error.message)
        else:
            ctx.meta[_ANSWERED] = True

    def _answer_as_text(self, ctx: click.Context) -> str:
        """What it prints on both streams of a terminal."""
        page = _Page(sys.stdout)
        with ExitStack() as stack:
            stack.enter_context(redirect_stdout(page))
            if sys.stderr.isatty():
                stack.enter_context(redirect_stderr(page))
            self._answer(ctx)
        return page.getvalue()


class _Page(io.StringIO):
    """Text for a terminal, with that terminal's width."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._terminal.fileno()


def _ticks(interval_s: float) -> Iterator[None]:
    while True:
        yield
        time.sleep(interval_s)


def _draw(terminal: TextIO, text: str) -> None:
    """The text in place of the last one, as much as the screen has lines for."""
    import shutil

    lines = text.splitlines()
    height = max(shutil.get_terminal_size().lines - 1, 1)
    if len(lines) > height:
        lines = [*lines[: height - 1], f"and {len(lines) - height + 1} more lines"]
    terminal.write(_HOME + "".join(f"{line}{_END_OF_LINE}\n" for line in lines) + _BELOW)
