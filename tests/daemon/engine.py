"""Stands in for a container engine: vgpu-runtime's requests, and processes in cgroups of their own.

Run as a program it is the front that becomes the low-level runtime: it sends what it reads on stdin to the socket,
prints the reply and then lives until it is killed.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ID = "0123456789abcdef" * 4
OTHER = "fedcba9876543210" * 4
_ATTACH = str(Path(__file__).parents[1] / "attach")
sys.path.insert(0, _ATTACH)  # also as a program
import client  # noqa: E402

sys.path.remove(_ATTACH)

_BASES = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup", "/sys/fs/cgroup/pids")
_numbers = itertools.count()


def message(operation: str, content: bytes, **header: object) -> bytes:
    """A request of vgpu-runtime; `header` replaces or adds lines."""
    lines = {"op": operation, "id": ID, "bundle": "/b", "self": "/usr/lib/vgpu/current/vgpu-runtime"}
    lines |= {"body": len(content)} | header
    return b"vgpu-runtime 1\n" + "".join(f"{k} {v}\n" for k, v in lines.items()).encode() + b"\n" + content


def parse(reply: bytes) -> tuple[str, bytes]:
    """(status, body) of a reply; ("", b"") when there is none."""
    head, _, body = reply.partition(b"\n\n")
    lines = dict(line.split(b" ", 1) for line in head.split(b"\n") if line)
    assert not reply or (lines[b"vgpu-runtime"] == b"1" and int(lines[b"body"]) == len(body)), reply[:200]
    return lines.get(b"status", b"").decode(), body


def ask(path: str, request: bytes, *, half_close: bool = True) -> tuple[str, bytes]:
    """Sends a request from this process and returns the reply."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(60)
        sock.connect(path)
        try:
            sock.sendall(request)
            if half_close:
                sock.shutdown(socket.SHUT_WR)
        except (BrokenPipeError, OSError):
            pass  # it has read enough and may have answered
        return parse(_receive(sock))


def _receive(sock: socket.socket) -> bytes:
    whole = b""
    try:
        while part := sock.recv(1 << 16):
            whole += part
    except ConnectionResetError:
        pass
    return whole


@dataclass
class Engine:
    """Creates containers on a daemon's runtime socket. `folder`: for bundles and root file systems."""

    socket: str
    folder: Path
    mounts: list[dict[str, str]] = field(default_factory=list)  # of every bundle
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    annotations: dict[str, str] = field(default_factory=dict)  # of every bundle

    def bundle(self, *env: str, container_id: str = ID) -> Path:
        """A bundle whose root looks like an image with glibc."""
        path = self.folder / container_id[:12]
        for directory in ("lib64", "usr/lib/x86_64-linux-gnu", "etc", "run"):
            (path / "rootfs" / directory).mkdir(parents=True, exist_ok=True)
        for file in ("lib64/ld-linux-x86-64.so.2", "usr/lib/x86_64-linux-gnu/libc.so.6"):
            (path / "rootfs" / file).touch()
        config: dict[str, Any] = {"ociVersion": "1.0.2", "root": {"path": "rootfs"}}
        config["process"] = {"env": ["PATH=/bin", *env], "args": ["sh"], "cwd": "/"}
        (path / "config.json").write_text(
            json.dumps(config | {"mounts": self.mounts, "annotations": self.annotations, "linux": {}})
        )
        return path

    def create(self, *env: str, container_id: str = ID, who: str = "") -> tuple[str, bytes, subprocess.Popen[bytes]]:
        """`runc create` by the user `who` ("UID:GID"): (status, body, the process that the runtime is by now)."""
        path = self.bundle(*env, container_id=container_id)
        request = message("create", (path / "config.json").read_bytes(), id=container_id, bundle=path)
        command = [sys.executable, __file__, self.socket]
        made = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | {"AS": who})
        self.running.append(made)
        assert made.stdin and made.stdout
        made.stdin.write(request)
        made.stdin.close()
        length = int(made.stdout.readline() or b"0")
        return *parse(made.stdout.read(length)), made

    def hook(self, operation: str, container_id: str = ID, pid: int = 0) -> tuple[str, bytes]:
        """The hook `started` or `stopped`."""
        bundle = self.folder / container_id[:12]
        state = {"ociVersion": "1.0.2", "id": container_id, "status": "created", "pid": pid, "bundle": str(bundle)}
        return ask(self.socket, message(operation, json.dumps(state).encode(), id=container_id, bundle=bundle))

    def start_container(self, cgroup: Path, *env: str, container_id: str = ID) -> subprocess.Popen[bytes]:
        """A whole start: its first process, which sleeps in the cgroup."""
        status, body, runtime = self.create(*env, container_id=container_id)
        assert status == "config", body
        init = self.process(cgroup, "sleep", "600")
        assert self.hook("started", container_id, init.pid) == ("ok", b"")
        end(runtime)
        return init

    def process(self, cgroup: Path, *command: str, who: str = "") -> subprocess.Popen[bytes]:
        """A process in a cgroup; client.py turns into the user `who`."""
        enter = ["sh", "-c", 'echo 0 > "$0" && exec "$@"', str(cgroup / "cgroup.procs")]
        pipe = subprocess.PIPE
        made = subprocess.Popen([*enter, *command], stdout=pipe, stdin=pipe, env=os.environ | {"AS": who})
        while str(made.pid) not in (cgroup / "cgroup.procs").read_text().split():
            assert made.poll() is None, "it did not come into its cgroup"
        self.running.append(made)
        return made

    def close(self) -> None:
        for process in self.running:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and waits for its end; twice does no harm."""
    process.kill()
    process.wait(30)
    for stream in (process.stdin, process.stdout):
        if stream and not stream.closed:
            stream.close()


def why_no_cgroup() -> str:
    """Why no cgroup can be made here, "" when one can."""
    try:
        with cgroup():
            return ""
    except OSError as error:
        return f"no cgroup can be made here ({error})"


@contextmanager
def cgroup(parent: Path | None = None) -> Iterator[Path]:
    """A cgroup of the test's own. Raises OSError where none can be made."""
    bases = [str(parent)] if parent else [base for base in _BASES if os.access(f"{base}/cgroup.procs", os.W_OK)]
    if not bases:
        raise PermissionError("no writable cgroup hierarchy")
    path = Path(bases[0]) / f"vgpu-test-{os.getpid()}-{next(_numbers)}"
    path.mkdir()
    try:
        yield path
    finally:
        for pid in (path / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        while (path / "cgroup.procs").read_text().split():
            pass
        path.rmdir()


def main() -> None:
    request = sys.stdin.buffer.read()
    if os.environ.get("AS"):
        client.become(os.environ["AS"])
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.connect(sys.argv[1])
        with suppress(BrokenPipeError):  # it has refused without reading; its answer is there all the same
            sock.sendall(request)
            sock.shutdown(socket.SHUT_WR)
        reply = _receive(sock)
    sys.stdout.buffer.write(b"%d\n%s" % (len(reply), reply))
    sys.stdout.flush()
    signal.pause()


if __name__ == "__main__":
    main()
