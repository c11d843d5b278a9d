"""What is said between the daemon and vgpu-job: instructions, the answer, and the files of an attempt. Pure.

The C side is shim/job/job.h. Instructions are pairs of strings, each ended by a 0; files have a key and a value on each
line.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: job id, attempt, and of a worker of an elastic job its number
Key = tuple[int, ...]
INSTRUCTIONS_BYTES_MAX = 16 << 20
MEMBERS_MAX = 1024
#: what the store and the kernel hold: in a damaged file may be more
NUMBER_MAX, PID_MAX, CODE_MAX = (1 << 63) - 1, (1 << 31) - 1, 255
#: of the submitter's limits, the names that a job may be given; as setrlimit(2) numbers them here
LIMITS = {
    name.removeprefix("RLIMIT_").lower(): getattr(resource, name)
    for name in dir(resource)
    if name.startswith("RLIMIT_")
}
LIMITS.pop("ofile", None)  # another name of nofile
_UNLIMITED = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Member:
    """One process of a gang. The environment is all that it gets."""

    argv: tuple[str, ...]
    environment: Mapping[str, str]
    log: str = ""  # absolute; "": nowhere
    slice_name: str = ""  # what its container joins


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory or file of the node for a container. `roots`: it lies below one of these once links are followed."""

    host: str
    container: str
    is_read_only: bool
    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ContainerNeeds:
    """What a container is given of the node. `ports`: of the node and of the container, published at `address`;
    `session_ports`: the same on both, published on loopback; `auth_file`: credentials to pull its image, read as the
    user unless it `is_of_site`."""

    mounts: tuple[Mount, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    address: str = ""
    auth_file: str = ""
    is_of_site: bool = False
    session_ports: tuple[int, ...] = ()


NO_NEEDS = ContainerNeeds()


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a job, as it shall run. The user's identity comes from the kernel, never from a message."""

    job_id: int
    number: int  # of the attempt, from 1
    uid: int
    gid: int
    groups: tuple[int, ...]
    directory: str
    umask: int
    members: tuple[Member, ...]
    limits: tuple[tuple[str, int, int], ...] = ()  # name as in LIMITS, soft, hard; -1 = unlimited
    cpu_milli: int = 0  # of each member; 0 = no limit
    ram_bytes: int = 0
    pids_max: int = 0
    grace_ms: int = 10_000
    signal: int = 0  # number of the one that its processes get when Jobs.signal() is called; 0 = none
    image: str = ""  # its members are containers: argv is what follows the image
    needs: ContainerNeeds = NO_NEEDS  # of its containers
    client: bool = False  # its programs are an engine's client, which runs as the daemon does; logs are the user's
    cleanup: tuple[str, ...] = ()  # a command that removes its containers, run as the daemon when all has ended
    first: tuple[str, ...] = ()  # a command that prints the pids of its containers' first processes, run as the daemon
    terminal: bool = False  # its one member has one
    worker: int = -1  # of an elastic job, each of whose workers is supervised by itself; -1: it is all of the attempt

    @property
    def name(self) -> str:
        return attempt_name(*self.key)

    @property
    def key(self) -> Key:
        return attempt_key(self.job_id, self.number, self.worker)


@dataclass(frozen=True, slots=True)
class Started:
    """A supervisor: its pid and start time are it for ever. `note`: what could not be had."""

    pid: int
    start: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    """The attempt has not begun. `may_retry`: it may go well later."""

    why: str
    may_retry: bool


@dataclass(frozen=True, slots=True)
class Begun:
    """What an attempt's directory says of its supervisor, and where its processes are should that be gone."""

    pid: int
    start: int
    boot: str
    began_wall_ns: int
    cgroup: str = ""
    limits: tuple[str, ...] = ()
    note: str = ""
    cleanup: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """How an attempt ended. `exit_code`: as a shell reports it; `is_lost`: unknown, as its supervisor could not say."""

    exit_code: int
    signal: int = 0
    why: str = ""  # one sentence, where the code does not say all
    is_stopped: bool = False  # it was told to end
    is_lost: bool = False
    cpu_ns: int = 0
    ram_peak_bytes: int = 0
    began_wall_ns: int = 0
    ended_wall_ns: int = 0
    member_codes: tuple[int, ...] = ()


class WireError(ValueError):
    """It cannot be said, or was not understood: one line that names the value."""


def attempt_key(job_id: int, attempt: int, worker: int = -1) -> Key:
    return (job_id, attempt) if worker < 0 else (job_id, attempt, worker)


def attempt_name(*key: int) -> str:
    """Of its directory: JOB.ATTEMPT, or JOB.ATTEMPT.WORKER."""
    return ".".join(map(str, key))


def instructions(attempt: Attempt, directory: str) -> bytes:
    """What vgpu-job reads. Raises WireError for what no process can be given."""
    parts: list[bytes] = []
    for key, value in _pairs(attempt, directory):
        raw = value.encode("utf-8", "surrogateescape")
        if b"\0" in raw:
            shown = value.partition("=")[0] if key == "env" else value  # a variable's value may be a secret
            raise WireError(f"{key} {shown[:40]!r} holds a zero byte, which cannot be passed to a program: remove it")
        parts += [key.encode(), raw]
    encoded = b"".join(part + b"\0" for part in [*parts, b"end", b""])
    if len(encoded) > INSTRUCTIONS_BYTES_MAX:
        most = INSTRUCTIONS_BYTES_MAX >> 20
        raise WireError(f"command and environment are {len(encoded)} bytes, more than {most} MiB: put them into a file")
    return encoded


def _pairs(attempt: Attempt, directory: str) -> Iterator[tuple[str, str]]:
    yield "directory", directory
    yield "name", attempt.name
    yield "cwd", attempt.directory
    yield "umask", str(attempt.umask)
    yield "uid", str(attempt.uid)
    yield "gid", str(attempt.gid)
    yield from (("group", str(group)) for group in attempt.groups)
    yield from (("limit", _limit(*limit)) for limit in attempt.limits)
    yield "cpu_milli", str(attempt.cpu_milli)
    yield "ram_bytes", str(attempt.ram_bytes)
    yield "pids_max", str(attempt.pids_max)
    yield "grace_ms", str(attempt.grace_ms)
    if attempt.signal:
        yield "signal", str(attempt.signal)
    if attempt.terminal:
        yield "terminal", "1"
    if attempt.client:
        yield "client", "1"
    if attempt.cleanup:
        yield "cleanup", " ".join(attempt.cleanup)
    if attempt.first:
        yield "first", " ".join(attempt.first)
    for member in attempt.members:
        yield "member", member.log
        environment = dict(member.environment) | {"VGPU_JOB": attempt.name}  # by which strays are found
        yield from (("env", f"{name}={value}") for name, value in environment.items())
        yield from (("arg", word) for word in member.argv)


def _limit(name: str, soft: int, hard: int) -> str:
    number = LIMITS.get(name)
    if number is None:
        raise WireError(f"unknown limit {name[:40]!r}: write one of {', '.join(sorted(LIMITS))}")
    low, high = (_UNLIMITED if value == -1 else value for value in (soft, hard))
    if not 0 <= low <= high <= _UNLIMITED:
        raise WireError(f"limit {name}: {soft} is not a soft limit below {hard}")
    return f"{number} {low} {high}"


def parse_answer(raw: bytes) -> Started | Refused | None:
    """Its supervisor, or why it cannot be begun; None: another supervisor had begun it before."""
    lines = raw.decode("utf-8", "replace").split("\n")
    word, _, rest = lines[0].partition(" ")
    if word == "begun":
        return None
    if word in ("no", "later"):
        return Refused(rest, may_retry=word == "later")
    numbers = rest.split() if word == "ok" else []
    if len(numbers) != 2 or not all(number.isdigit() for number in numbers):
        return Refused("vgpu-job ended without an answer: see the system's log", may_retry=True)
    notes = [line.removeprefix("note ") for line in lines[1:] if line.startswith("note ")]
    return Started(int(numbers[0]), int(numbers[1]), "; ".join(notes))


def _fields(text: str) -> dict[str, str]:
    return dict(line.partition(" ")[::2] for line in text.split("\n") if line)


def _number(fields: Mapping[str, str], key: str, maximum: int = NUMBER_MAX) -> int:
    found = _parse_integer(fields.get(key, ""), key)
    if not 0 <= found <= maximum:
        raise WireError(f"{key} is {found}, which is not from 0 to {maximum}")
    return found


def _parse_integer(text: str, key: str) -> int:
    """A file may be damaged: whatever is in it, int() is not to fail."""
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or len(digits) > len(str(NUMBER_MAX)):
        raise WireError(f"{key} is {text[:40]!r}, which is not a number")
    return int(text)


def _code(text: str) -> int:
    """Of a member; -1: it has none."""
    found = _parse_integer(text, "members")
    if not -1 <= found <= CODE_MAX:
        raise WireError(f"members has {found}, which is no exit code")
    return found


def parse_begun(text: str) -> Begun:
    """Raises WireError."""
    fields = _fields(text)
    return Begun(
        pid=_number(fields, "pid", PID_MAX),
        start=_number(fields, "start"),
        boot=fields.get("boot", ""),
        began_wall_ns=_number(fields, "began_wall_ns"),
        cgroup=fields.get("cgroup", ""),
        limits=tuple(line.removeprefix("limit ") for line in text.split("\n") if line.startswith("limit ")),
        note=fields.get("note", ""),
        cleanup=tuple(fields.get("cleanup", "").split()),
    )


def parse_result(text: str) -> Result:
    """Raises WireError."""
    fields = _fields(text)
    return Result(
        exit_code=_number(fields, "exit_code", CODE_MAX),
        signal=_number(fields, "signal", CODE_MAX),
        why=fields.get("why", ""),
        is_stopped=fields.get("stopped") == "1",
        cpu_ns=_number(fields, "cpu_ns"),
        ram_peak_bytes=_number(fields, "ram_peak_bytes"),
        began_wall_ns=_number(fields, "began_wall_ns"),
        ended_wall_ns=_number(fields, "ended_wall_ns"),
        member_codes=tuple(_code(code) for code in fields.get("members", "").split()),
    )
