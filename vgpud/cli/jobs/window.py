"""The user's terminal while it is a job's: keys go there one by one, and nothing here interprets them."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Iterator

from vgpud.cli.common.output import remark
from vgpud.cli.jobs.screen import SHOWN_BYTES, Modes, shown_again

READ_BYTES = 4096


class Window:
    """stdin and stdout. Use it in a `with`, which leaves the terminal as it was."""

    def __init__(self) -> None:
        self._in, self._out = sys.stdin.fileno(), sys.stdout.fileno()
        self._before: list[object] | None = None  # settings, while it is the job's
        self._modes = Modes()
        self._shown = b""

    def __enter__(self) -> Window:
        return self

    def __exit__(self, *_: object) -> None:
        self.restore()

    @property
    def is_given(self) -> bool:
        """Whether it is the job's at present."""
        return self._before is not None

    def give(self) -> None:
        """To the job; what has been typed before is not lost."""
        if self._before is None:
            self._before = termios.tcgetattr(self._in)
        with contextlib.suppress(termios.error):
            tty.setraw(self._in, termios.TCSADRAIN)

    def restore(self) -> None:
        if self._before is None:
            return
        before, self._before = self._before, None
        with contextlib.suppress(termios.error):  # the window may have gone
            termios.tcsetattr(self._in, termios.TCSADRAIN, before)  # type: ignore[arg-type]
        with contextlib.suppress(OSError):  # stdout may be another one, and closed
            os.write(self._out, self._modes.undo())
        self._modes = Modes()

    def size(self) -> tuple[int, int] | None:
        """Lines and columns, where the terminal says them."""
        try:
            size = os.get_terminal_size(self._in)
        except OSError:
            return None
        return (size.lines, size.columns) if size.lines and size.columns else None

    def read_keys(self) -> Iterator[bytes]:
        """Until the window has gone."""
        while True:
            try:
                keys = os.read(self._in, READ_BYTES)
            except OSError:
                return
            if not keys:
                return
            yield keys

    def show(self, output: bytes) -> None:
        """Raises OSError where no process reads it any more."""
        self._modes.see(output)
        self._shown = (self._shown + output)[-SHOWN_BYTES:]
        self._write(output)

    def show_again(self, replay: bytes) -> None:
        """The terminal's last output, as far as it has not been shown here."""
        self.show(shown_again(replay, self._shown))

    def say(self, text: str) -> None:
        """A remark, on lines of its own."""
        if not self.is_given:
            sys.stderr.write("\n".join(remark(text, None)) + "\n")
            sys.stderr.flush()
            return
        width = shutil.get_terminal_size().columns
        self._write(("\r\n" + "\r\n".join(remark(text, width)) + "\r\n").encode(errors="replace"))

    def _write(self, output: bytes) -> None:
        while output:
            try:
                output = output[os.write(self._out, output) :]
            except BlockingIOError:  # another program has set this on the terminal that it shares with us
                select.select([], [self._out], [])
