"""The user's terminal is given back as it was, also where stdout is another one that fails."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import termios
import threading
from typing import Any

import pytest

#: gives the terminal, prints and leaves it
SCRIPT = """
import os, sys
from vgpud.cli.jobs.window import Window
os.set_blocking(1, sys.argv[1] == "blocking")
with Window() as window:
    window.give()
    os.write(2, b"given")
    sys.stdin.buffer.raw.read(1)
    for _ in range(int(sys.argv[2])):
        window.show(b"x" * 1000)
"""


def start_program(stdout_fd: int, *words: str) -> tuple[subprocess.Popen[bytes], int, list[Any]]:
    """A program that has given its terminal to a job; the terminal's other side, and its settings of before."""
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(ours)
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *words], stdin=theirs, stdout=stdout_fd, stderr=subprocess.PIPE
    )
    os.close(theirs)
    os.close(stdout_fd)
    assert process.stderr and process.stderr.read(5) == b"given"
    assert termios.tcgetattr(ours)[3] != before[3], "it is raw"
    return process, ours, before


@pytest.mark.parametrize("how", ["blocking", "non-blocking"])
def test_a_stdout_that_no_process_reads(how: str) -> None:
    """`vgpu queue attach 7 | head`"""
    reader, writer = os.pipe()
    process, terminal, before = start_program(writer, how, "1")
    os.close(reader)
    os.write(terminal, b".")
    _, said = process.communicate()
    assert b"BrokenPipeError" in said
    assert termios.tcgetattr(terminal)[3] == before[3]
    os.close(terminal)


def test_a_stdout_that_does_not_wait() -> None:
    """Nothing is lost where it is full for a moment."""
    reader, writer = os.pipe()
    process, terminal, before = start_program(writer, "non-blocking", "300")
    got: list[bytes] = []

    def read() -> None:
        with open(reader, "rb") as output:
            got.append(output.read())

    os.write(terminal, b".")
    thread = threading.Thread(target=read)
    thread.start()
    _, said = process.communicate()
    thread.join()
    assert (process.returncode, said) == (0, b"")
    assert got[0].count(b"x") == 300_000
    assert termios.tcgetattr(terminal)[3] == before[3]
    os.close(terminal)
