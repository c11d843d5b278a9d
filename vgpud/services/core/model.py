"""What a service is: as its user wants it, and a replica as it is known. Pure.

Times are seconds of a clock that never goes back, which the caller passes in: no decision looks at the wall clock.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from typing import Any

ALWAYS, ON_FAILURE, NEVER = "always", "on-failure", "never"
RESTARTS = (ALWAYS, ON_FAILURE, NEVER)
REPLICAS_MAX = 64
#: a name is a folder's, a job's, and a word of sentences
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
#: of a record's texts, and of the file
TEXT_MAX = 4096
RECORD_BYTES_MAX = 1 << 20


#: of a record's fields, what JSON may have for them
_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "float": (int, float)}


class RecordError(Exception):
    """One sentence: what is wrong with a record. `field`: of Service or Health, "" = several, or the whole."""

    def __init__(self, sentence: str, field: str = "") -> None:
        super().__init__(sentence)
        self.field = field


@dataclass(frozen=True, slots=True)
class Health:
    """How it is found out whether a replica answers: the HTTP path, or the command; neither: its port is open."""

    http_path: str = ""
    command: str = ""
    every_s: float = 5.0
    deadline_s: float = 2.0
    #: from a replica's start to its first success: loading a model may take this long
    start_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Service:
    """The record. `template`: the replicas' JobSpec as JSON, with its environment; `generation` counts its changes, by
    which replicas are replaced; `idle_s` 0: it never sleeps."""

    name: str
    template: dict[str, Any]
    token: str
    replicas: int = 1
    generation: int = 1
    restart: str = ALWAYS
    health: Health = field(default_factory=Health)
    idle_s: float = 0.0
    wake_s: float = 120.0  # how long a request waits for a replica that can answer it
    drain_s: float = 30.0  # how long a replica that is to end may still answer
    host: str = "127.0.0.1"
    port: int = 0  # the command line chooses one where its user does not
    is_public: bool = False
    repeats: bool = True  # any request that got no answer is sent to another replica, not only an idempotent one

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def read_record(text: str) -> Service:
    """Raises RecordError."""
    if len(text) > RECORD_BYTES_MAX:
        raise RecordError(f"it has more than {RECORD_BYTES_MAX} bytes")
    try:
        data = json.loads(text)
        health = Health(**data.pop("health"))
        made = Service(health=health, **data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RecordError(f"it is no record of a service: {error}") from error
    for one in (made, health):
        for given in fields(one):
            value = getattr(one, given.name)
            if type(value) not in _TYPES.get(str(given.type), (type(value),)):
                raise RecordError(f"its {given.name} is {value!r}")
    check(made)
    return made


def check(service: Service) -> None:
    """Raises RecordError, with the value and the fix."""
    health = service.health
    if not NAME.fullmatch(service.name):
        raise RecordError(f"name {service.name[:50]!r}: use up to 40 small letters, digits and - between them", "name")
    if not 0 <= service.replicas <= REPLICAS_MAX:
        raise RecordError(f"{service.replicas} replicas: use 0 to {REPLICAS_MAX}", "replicas")
    if service.restart not in RESTARTS:
        raise RecordError(f"restart {service.restart[:50]!r}: use one of {', '.join(RESTARTS)}", "restart")
    if not 0 <= service.port <= 65535:
        raise RecordError(f"port {service.port}: use 1 to 65535", "port")
    if not _is_address(service.host):
        raise RecordError(f"address {service.host[:50]!r}: write an IP address", "host")
    if health.http_path and health.command:
        raise RecordError("a health path and a health command: use one of the two", "command")
    if health.http_path and not re.fullmatch(r"/[!-~]*", health.http_path):
        text = f"health path {health.http_path[:50]!r}: write it from / on, without spaces"
        raise RecordError(text, "http_path")
    if max(len(health.http_path), len(health.command)) > TEXT_MAX:
        raise RecordError(f"a text of more than {TEXT_MAX} characters")
    spans = (
        ("interval of its health check", "every_s", health.every_s, 0.1),
        ("deadline of its health check", "deadline_s", health.deadline_s, 0.1),
        ("time for its start", "start_s", health.start_s, 1.0),
        ("time for its drain", "drain_s", service.drain_s, 0.0),
        ("time for waking", "wake_s", service.wake_s, 1.0),
    )
    for what, name, value, least in spans:
        if not least <= value <= 86_400.0:
            raise RecordError(f"the {what} is {value:g} s: use {least:g} s to 24h", name)
    if service.idle_s and not 1.0 <= service.idle_s <= 30 * 86_400.0:
        raise RecordError(f"it sleeps after {service.idle_s:g} s: use 1s to 30d", "idle_s")


def _is_address(host: str) -> bool:
    """No other name: to look it up would hold up whoever listens there."""
    try:
        return host == "localhost" or bool(ipaddress.ip_address(host))
    except ValueError:
        return False


class JobPhase(Enum):
    """What a replica's job is doing, as far as a service is concerned."""

    WAITING = "pending"  # for capacity
    RUNNING = "running"
    SUSPENDED = "suspended"
    ENDED = "ended"


@dataclass(slots=True, eq=False)
class Replica:
    """A job of the service, and what its checks have shown. Changed by `health` and by the balancer, in its one
    thread."""

    job_id: int
    generation: int
    phase: JobPhase = JobPhase.WAITING
    reason: str = ""  # why its job waits
    attempt: int = 0
    port: int = 0  # of 127.0.0.1; 0 = not known yet
    is_published: bool = False  # by the engine of its container, as root
    token: str = ""
    exit_code: int = 0  # of one that has ended
    running_since_s: float = 0.0
    healthy_since_s: float | None = None  # None: it is not healthy
    was_healthy: bool = False  # in this attempt
    failures: int = 0  # checks that have failed, in a row
    last_failure: str = ""  # what the last check has found, "" = nothing wrong
    is_suspect: bool = False  # a connection to it has failed since its last check
    draining_since_s: float | None = None  # None: it may get requests
    outstanding: int = 0  # requests that it is answering
    answers: int = 0  # that it has given

    @property
    def is_ready(self) -> bool:
        """Whether a request may be passed to it."""
        runs = self.phase is JobPhase.RUNNING and self.port > 0
        return runs and self.healthy_since_s is not None and not self.is_suspect and self.draining_since_s is None

    @property
    def words(self) -> str:
        """Its state, for people."""
        if self.draining_since_s is not None:
            return "draining"
        if self.phase is JobPhase.SUSPENDED:
            return "asleep"
        if self.phase is not JobPhase.RUNNING:
            return str(self.phase.value)
        if self.healthy_since_s is not None:
            return "healthy"
        return "unhealthy" if self.was_healthy else "starting"
