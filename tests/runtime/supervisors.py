"""Starts vgpu-job as the daemon does, also where there are no cgroups, and reads what it leaves."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpud.jobs import messages as wire
from vgpud.jobs.leftovers import end_leftovers

#: no user's on any machine
USER = 12345
WAIT_S = 60.0
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin"}
#: what a supervisor finds -> what is unmounted in a world of its own before it starts
WORLDS: Mapping[str, Sequence[str]] = {
    "cgroups": (),
    "old-cgroups": ("cgroup2",),
    "no-cgroups": ("cgroup2", "cgroup"),
}

#: other tests run beside us, and cgroups are the machine's
_JOB_IDS = itertools.count(os.getpid() * 10_000)


def wait_until(what: str, ready: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not (value := ready()):
        assert time.monotonic() < deadline, f"{what}: not within {WAIT_S} s"
        time.sleep(0.01)
    return value


def is_alive(pid: int) -> bool:
    """Whether there is such a process and it is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def cgroups_left(name: str) -> list[str]:
    """Directories of an attempt in any hierarchy."""
    found = subprocess.run(
        ["find", "/sys/fs/cgroup", "-name", f"{name}.*"], capture_output=True, text=True, check=False
    )
    return found.stdout.split()


def end_all(jobs: Path) -> None:
    """Ends what a test that failed has left."""
    for path in jobs.glob("*/begun"):
        begun = wire.parse_begun(path.read_text())
        if Path(f"/proc/{begun.pid}/stat").exists() and not (path.parent / "result").exists():
            os.kill(begun.pid, signal.SIGKILL)
        end_leftovers(path.parent.name, begun, {})


@dataclass(slots=True)
class Running:
    """One supervisor."""

    process: subprocess.Popen[bytes]
    answer: wire.Started | wire.Refused | None
    attempt: wire.Attempt
    directory: Path
    errors: Path

    @property
    def path(self) -> Path:
        return self.directory / self.attempt.name

    def wait(self) -> wire.Result:
        """Its result, after its end. What a sanitizer has found is a failure."""
        self.process.wait(WAIT_S)
        said = self.errors.read_text()
        assert self.process.returncode == 0 and not said, said
        assert not cgroups_left(self.attempt.name)
        return wire.parse_result((self.path / "result").read_text())

    def stop(self, grace_s: float) -> None:
        (self.path / "stop").write_text(f"grace_ms {int(grace_s * 1000)}\n")
        self.process.send_signal(signal.SIGTERM)


@dataclass(slots=True)
class World:
    """A place where attempts run: a folder that the user may enter, one that is the user's, and how to start."""

    program: Path
    world: str = "cgroups"
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix="vgj-")))
    running: list[Running] = field(default_factory=list)
    job_id: int = 0  # of the last attempt

    def __post_init__(self) -> None:
        self.folder.chmod(0o711)
        self.program = Path(shutil.copy2(self.program, self.folder))  # where users can run it too
        self.jobs.mkdir(mode=0o700)
        self.home.mkdir()
        os.chown(self.home, USER, USER)

    @property
    def jobs(self) -> Path:
        return self.folder / "jobs"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def close(self) -> None:
        end_all(self.jobs)
        for running in self.running:
            running.process.wait(WAIT_S)
        shutil.rmtree(self.folder, ignore_errors=True)

    def attempt(self, *argv: str, **fields: Any) -> wire.Attempt:
        """One member that runs this as USER; `members`, `env` and `log` besides an Attempt's own fields."""
        self.job_id = next(_JOB_IDS)
        log = fields.pop("log", str(self.home / f"log{self.job_id}"))
        members = fields.pop("members", None) or (wire.Member(argv, fields.pop("env", ENVIRONMENT), log),)
        base: dict[str, Any] = {"job_id": self.job_id, "number": 1, "uid": USER, "gid": USER, "groups": (USER,)}
        base |= {"directory": str(self.home), "umask": 0o022, "grace_ms": 5000}
        return wire.Attempt(members=members, **base | fields)

    def command(self) -> list[str]:
        hidden = WORLDS[self.world]
        if not hidden:
            return [str(self.program)]
        words = "".join(f"umount -a -l -t {kind}; " for kind in hidden)
        return ["unshare", "-m", "sh", "-c", f"{words} exec {self.program}"]

    def talk(
        self, message: bytes, under: Sequence[str] = (), **options: Any
    ) -> tuple[subprocess.Popen[bytes], bytes, Path]:
        """Says something to a new supervisor, started by the program `under`. Returns what it answers."""
        os.seteuid(options.get("user", 0))  # whose socket it is
        ours, theirs = socket.socketpair()
        os.seteuid(0)
        errors = self.folder / f"errors{len(self.running)}"
        with ours, theirs, errors.open("wb") as sink:
            process = subprocess.Popen([*under, *self.command()], stdin=theirs, stdout=theirs, stderr=sink, **options)
            theirs.close()
            ours.settimeout(WAIT_S)
            with contextlib.suppress(BrokenPipeError):  # it has read enough
                ours.sendall(message)
                ours.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionResetError):  # it has not listened to all of it
                while part := ours.recv(4096):
                    answer += part
        return process, answer, errors

    def start(self, attempt: wire.Attempt, **options: Any) -> Running:
        process, answer, errors = self.talk(wire.instructions(attempt, str(self.jobs)), **options)
        running = Running(process, wire.parse_answer(answer), attempt, self.jobs, errors)
        self.running.append(running)
        return running

    def run(self, *argv: str, **fields: Any) -> wire.Result:
        """Runs it to its end."""
        running = self.start(self.attempt(*argv, **fields))
        assert isinstance(running.answer, wire.Started), running.answer
        return running.wait()

    def log(self) -> str:
        """What the last attempt has written."""
        return (self.home / f"log{self.job_id}").read_text()

    def pids(self, name: str, count: int = 1) -> list[int]:
        """Waits until a job has noted so many pids, one a line, in a file below its home."""

        def read_pids() -> list[int]:
            path = self.home / name
            lines = path.read_text().split("\n")[:-1] if path.exists() else []
            return [int(line) for line in lines] if len(lines) >= count else []

        found: list[int] = wait_until(f"{count} pids in {name}", read_pids)
        return found
