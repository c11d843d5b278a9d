"""Daemons that are forked off a process which has imported all that a daemon imports: that takes four fifths of a
start, and tests start some hundreds. A forked daemon is as one that was executed, but for its command line in /proc.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parents[2]
#: of a request: arguments and environment
REQUEST_BYTES_MAX = 200_000
#: read by the loader or by the interpreter before anything is imported
EXECUTED_WITH = ("LD_", "PYTHON", "MALLOC_", "GRPC_")


def can_fork(env: Mapping[str, str]) -> bool:
    """False for a daemon with such variables of its own."""
    return not any(name.startswith(EXECUTED_WITH) for name in env)


class ForkedDaemon:
    """A running daemon, with what tests need of a subprocess.Popen."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], output: BinaryIO) -> None:
        self._end, told = socket.socketpair()
        with told:
            self.pid = _parent().fork(arguments, env, output.fileno(), told.fileno())
        self.args = [sys.executable, "-m", "vgpud.serve", *arguments]
        self.returncode: int | None = None

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._end], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            with self._end:
                self.returncode = int(self._end.recv(16))
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _Parent:
    """The process that daemons are forked off; it ends with the process that has started it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-m", "tests.daemon.forked", str(theirs.fileno())]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        atexit.register(self._end)

    def _end(self) -> None:
        self._socket.close()
        self._process.wait()

    def fork(self, arguments: Sequence[str], env: Mapping[str, str], output: int, told: int) -> int:
        """The pid of a new daemon, whose end is written to the descriptor `told`."""
        request = json.dumps([os.getcwd(), list(arguments), dict(env)]).encode()
        socket.send_fds(self._socket, [request], [output, told])
        return int(self._socket.recv(16))


@functools.cache
def _parent() -> _Parent:
    return _Parent()


def _serve(requests: socket.socket) -> list[str]:
    """Forks daemons until nobody asks for one. Returns in each of them, with its arguments."""
    told: dict[int, tuple[int, int]] = {}  # descriptor of a daemon -> its pid, where its end is written
    while True:
        for ready in select.select([requests, *told], [], [])[0]:
            if ready in told:
                pid, where = told.pop(ready)
                os.write(where, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
                os.close(where)
                os.close(ready)
                continue
            request, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 2)
            if not request:
                os._exit(0)
            output, where = descriptors
            pid = os.fork()
            if pid == 0:
                os.dup2(output, 1)
                os.dup2(output, 2)
                requests.detach()
                os.closerange(3, max(output, where, *told, 64) + 1)
                folder, arguments, env = json.loads(request)
                os.chdir(folder)
                os.environ.clear()
                os.environ.update(env)
                return list(arguments)
            os.close(output)
            told[os.pidfd_open(pid)] = pid, where
            requests.send(str(pid).encode())


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the tests, which then end
    gc.disable()
    import vgpud.daemon.daemon
    import vgpud.daemon.policy
    import vgpud.devices.nvml
    import vgpud.host.private_files
    import vgpud.libraries.driver
    import vgpud.store.database  # noqa: F401
    from vgpud.serve import main

    gc.freeze()
    requests = socket.socket(fileno=int(sys.argv[1]))
    arguments = _serve(requests)
    gc.enable()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv[1:] = arguments
    main(arguments, "vgpud")


if __name__ == "__main__":
    _begin()
