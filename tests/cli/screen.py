"""A command of `vgpu` at a terminal of its own, which a test types at and reads."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from typing import Any

PATIENCE_S = 60.0
PROMPT = b"READY> "
#: a program for a job, whose prompts can be waited for
SHELL = ("env", f"PS1={PROMPT.decode()}", "bash", "--norc", "--noprofile", "-i")


class Screen:
    """A command at a terminal of its own."""

    def __init__(self, *command: str, size: tuple[int, int] = (30, 90)) -> None:
        self.pid, self._fd = pty.fork()
        if not self.pid:
            os.environ.pop("PYTEST_CURRENT_TEST", None)
            with contextlib.suppress(OSError):
                os.execv(sys.executable, [sys.executable, *command])
            os._exit(99)
        self.resize(*size)
        self.output = b""
        self.code: int | None = None

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys: str) -> None:
        os.write(self._fd, keys.encode())

    def _read(self, wait_s: float) -> bool:
        """Whether there was something."""
        if not select.select([self._fd], [], [], wait_s)[0]:
            return False
        try:
            got = os.read(self._fd, 65536)
        except OSError:
            got = b""
        self.output += got
        return bool(got)

    @property
    def text(self) -> str:
        """Without control sequences, in one line."""
        plain = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", self.output).decode(errors="replace")
        return " ".join(plain.split())

    def until(self, text: bytes | str, count: int = 1) -> None:
        """`text`: bytes as they are, or words in `text`."""
        deadline = time.monotonic() + PATIENCE_S
        while (self.output if isinstance(text, bytes) else self.text).count(text) < count:  # type: ignore[arg-type]
            self._read(0.1)
            assert time.monotonic() < deadline and self.code is None, f"{text!r} is not in {self.output!r}"

    def interrupt(self) -> None:
        """Ctrl-C, until the prompt is there: again where it has come between two programs, or the kernel, which flushes
        output with the signal, has taken a prompt away."""
        self.type("\x03")
        self.until(b"^C")
        deadline = time.monotonic() + PATIENCE_S
        while PROMPT not in self.output.rpartition(b"^C")[2]:
            if not self._read(2.0):
                self.type("\x03")
            assert time.monotonic() < deadline, self.output

    def run(self, line: str, answer: str) -> None:
        self.until(PROMPT)
        before = self.output.count(PROMPT)
        self.type(f"{line}\r")
        self.until(answer.encode())
        self.until(PROMPT, before + 1)

    def wait(self) -> int:
        """Its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.code is None:
            self._read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            assert time.monotonic() < deadline, f"it runs on: {self.output!r}"
        while self._read(0.0):
            pass
        return self.code

    def settings(self) -> list[Any]:
        return termios.tcgetattr(self._fd)

    def close_window(self) -> None:
        """As a window that is closed: the kernel sends SIGHUP."""
        os.close(self._fd)
        self._fd = -1
        os.waitpid(self.pid, 0)
        self.code = -1

    def end(self) -> None:
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        if self._fd >= 0:
            os.close(self._fd)
