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
from typing import Any, BinaryIO

from tests.command_line import call
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError, die_with_parent, wait_for

ROOT = Path(__file__).resolve().parents[2]
#: of a request: arguments and environment
REQUEST_BYTES_MAX = 200_000
#: read by the loader or by the interpreter before anything is imported
EXECUTED_WITH = ("LD_", "PYTHON", "MALLOC_", "GRPC_")


def can_fork(env: Mapping[str, str]) -> bool:
    """False for a daemon with such variables of its own."""
    return not any(name.startswith(EXECUTED_WITH) for name in env)


class ForkedDaemon:
    """A running daemon, with what tests need of a subprocess.Popen. In a session of its own it ends with the tests."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        output: BinaryIO,
        errors: BinaryIO,
        folder: Path | None = None,
        is_own_session: bool = False,
    ) -> None:
        self._end, told = socket.socketpair()
        request = [str(folder or Path.cwd()), list(arguments), dict(env), is_own_session]
        with told:
            self.pid = _parent().fork(request, [output.fileno(), errors.fileno(), told.fileno()])
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
                self.returncode = int(self._end.recv(16) or -signal.SIGKILL)  # nothing: its parent has ended
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

    def fork(self, request: list[Any], descriptors: Sequence[int]) -> int:
        """The pid of a new daemon. Descriptors: its standard output and error, and where its end is written to."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
        return int(self._socket.recv(16))


class ForkedPart(Part):
    """A daemon of a private system."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str], folder: Path) -> None:
        self.name = "vgpud"
        self.output_file, self.error_file = folder / "vgpud.out", folder / "vgpud.log"
        with self.output_file.open("wb") as output, self.error_file.open("ab") as errors:
            forked = ForkedDaemon(arguments, env, output, errors, folder, is_own_session=True)
        self.process = forked  # type: ignore[assignment]
        self._read_bytes = 0


class ForkedSystem(OwnSystem):
    """A private system whose daemon is forked, and whose commands but `run` are called in this process."""

    def start_daemon(self) -> None:
        self.daemon = ForkedPart(["serve", "--config", str(self.folder / "vgpud.toml")], self.env, self.folder)
        wait_for("the daemon", lambda: self._alive(self.daemon) and self._answers())

    def vgpu(self, *arguments: str) -> str:
        done = call(self, *arguments)
        if done.returncode:
            raise PartError(f"vgpu {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout


@functools.cache
def _parent() -> _Parent:
    return _Parent()


def _serve(requests: socket.socket) -> list[str]:
    """Forks daemons until its requests end. Returns in each of them, with its arguments."""
    told: dict[int, tuple[int, int]] = {}  # descriptor of a daemon -> its pid, where its end is written
    while True:
        waited_for: list[Any] = [requests, *told]
        for ready in select.select(waited_for, [], [])[0]:
            if ready in told:
                pid, where = told.pop(ready)
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                with suppress(OSError):  # the test does not ask any more
                    os.write(where, str(code).encode())
                os.close(where)
                os.close(ready)
                continue
            request, descriptors, _, _ = socket.recv_fds(requests, REQUEST_BYTES_MAX, 3)
            if not request:
                os._exit(0)
            output, errors, where = descriptors
            pid = os.fork()
            if pid == 0:
                os.dup2(output, 1)
                os.dup2(errors, 2)
                requests.detach()
                os.closerange(3, os.sysconf("SC_OPEN_MAX"))
                return _become(*json.loads(request))
            os.close(output)
            os.close(errors)
            told[os.pidfd_open(pid)] = pid, where
            requests.send(str(pid).encode())


def _become(folder: str, arguments: list[str], env: dict[str, str], is_own_session: bool) -> list[str]:
    """Takes over what exec would bring. Returns the arguments."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    if is_own_session:
        os.setsid()
        die_with_parent()
    return arguments


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
