"""Moves a process's device memory to the host, or back, through the driver (cuCheckpointProcess*, 570 and later).

A program of its own, run by path and killed when it takes too long: the driver may hang in these calls, and the daemon
must not. It loads the driver, waits for one line on stdin, and one JSON object on stdout says how far it got. Nothing
but the standard library, and no import of ours: it starts as fast as the interpreter, and no hook is in it.

The driver's steps: lock (the process's calls block, what it has submitted completes), checkpoint, restore,
unlock. `evict` is the first two, `restore` the last two, and a failure is undone as far as the driver allows.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from typing import Any

RUNNING, LOCKED, CHECKPOINTED, FAILED = range(4)
STATES = ("running", "locked", "checkpointed", "failed")
#: names of the codes that one meets here, cuda.h
CODES = {1: "wrong argument", 2: "out of memory", 401: "not possible in this state", 600: "not ready in time"}
CODES |= {46: "device not available", 304: "the operating system refused", 801: "not supported"}
#: the arguments of every call have 64 bytes; of the lock's the first four are the timeout
_ARGUMENT_WORDS = 8
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


class Refused(Exception):
    """A step that the driver refused."""


class Driver:
    """The calls, on one process."""

    pid = 0

    def __init__(self, path: str) -> None:
        try:
            self._library = ctypes.CDLL(path)
            self._library.cuCheckpointProcessLock  # noqa: B018  # is it there at all?
        except OSError as error:
            raise Refused(f"cannot load the driver {path}: {error}") from error
        except AttributeError as error:
            raise Refused("the driver cannot do it: 570 and later can") from error
        self._check("begin", self._library.cuInit(0))

    def state(self) -> int:
        state = ctypes.c_int()
        self._check("ask", self._library.cuCheckpointProcessGetState(self.pid, ctypes.byref(state)))
        return state.value

    def lock(self, timeout_ms: int) -> None:
        self._step("lock", timeout_ms)

    def checkpoint(self) -> None:
        self._step("checkpoint")

    def restore(self) -> None:
        self._step("restore")

    def unlock(self) -> None:
        self._step("unlock")

    def _step(self, name: str, first: int = 0) -> None:
        arguments = (ctypes.c_uint64 * _ARGUMENT_WORDS)(first)
        call: Any = getattr(self._library, f"cuCheckpointProcess{name.capitalize()}")
        self._check(name, call(self.pid, ctypes.byref(arguments)))

    @staticmethod
    def _check(step: str, code: int) -> None:
        if code:
            raise Refused(f"the driver refused to {step}: {CODES.get(code, 'error')} (code {code})")


def evict(driver: Driver, timeout_ms: int) -> None:
    """Raises Refused: the process runs as before."""
    driver.lock(timeout_ms)
    try:
        driver.checkpoint()
    except Refused:
        if driver.state() == LOCKED:
            driver.unlock()
        raise


def restore(driver: Driver) -> None:
    """Raises Refused: its memory is still on the host, and it can be tried again."""
    if driver.state() == CHECKPOINTED:
        driver.restore()
    if driver.state() == LOCKED:
        driver.unlock()


def settle(driver: Driver) -> None:
    """After one of these was killed in between: a process that is not wholly evicted is resumed."""
    if driver.state() == LOCKED:
        driver.unlock()


def move(driver: Driver, action: str, timeout_ms: int) -> None:
    {"evict": lambda: evict(driver, timeout_ms), "restore": lambda: restore(driver)}.get(
        action, lambda: settle(driver)
    )()


def end_with(parent_pid: int) -> bool:
    """The kernel kills this program with the daemon that has started it: the next one asks how far it got, and what is
    found then must be what stays. False: that daemon has ended already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)
    return os.getppid() == parent_pid


def main(arguments: list[str]) -> int:
    """Arguments: the driver's path, the daemon's pid. The line: evict, restore or settle; the pid; milliseconds for the
    lock. None: it is not needed. `begun` of the answer: whether the driver was asked for more than the state."""
    driver, said, state, begun = None, "", -1, False
    if not end_with(int(arguments[1])):
        return 0
    try:
        driver = Driver(arguments[0])
    except Refused as refused:
        said = str(refused)
    words = sys.stdin.readline().split()
    if not words:
        return 0
    try:
        if driver:
            driver.pid = int(words[1])
            state = driver.state()
            begun = True
            try:
                move(driver, words[0], int(words[2]))
            finally:
                state = -1
                state = driver.state()
    except Refused as refused:
        said = str(refused)
    name = STATES[state] if 0 <= state < len(STATES) else "unknown"
    print(json.dumps({"refused": said, "state": name, "begun": begun}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
