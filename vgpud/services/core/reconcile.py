"""Which replicas are started, ended, suspended and resumed so that a service becomes what its user wants. Pure.

`step()` compares what is wanted with what there is and says what to do. It is asked again after every change and at
least once a second, so it may do one thing at a time, and what was not carried out is said again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vgpud.services.core import health
from vgpud.services.core.model import NEVER, ON_FAILURE, JobPhase, Replica, Service

#: before a replica that has ended is replaced: doubled each time, until one has been healthy for a while
BACKOFF_FIRST_S, BACKOFF_MAX_S = 1.0, 300.0
STEADY_S = 60.0


@dataclass(frozen=True, slots=True)
class Start:
    """A new replica of the present generation."""


@dataclass(frozen=True, slots=True)
class End:
    """The replica's job is cancelled; it has no requests left, or had its time."""

    job_id: int
    why: str


@dataclass(frozen=True, slots=True)
class Suspend:
    job_id: int


@dataclass(frozen=True, slots=True)
class Resume:
    job_id: int


Action = Start | End | Suspend | Resume


@dataclass(slots=True)
class Traffic:
    """What requests do: how many wait for a replica or are answered, and when the last one ended."""

    waiting: int = 0
    under_way: int = 0
    last_s: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.under_way


class Reconciler:
    """Remembers between steps: how often replicas have failed, which have ended for good, and whether it sleeps."""

    def __init__(self, now_s: float) -> None:
        self.failures = 0  # in a row
        self.not_before_s = now_s
        self.finished_count = 0  # replicas that have ended and are not replaced, of this generation
        self.last_end = ""  # how the last replica ended that was not to
        self.is_asleep = False
        self._generation = 0
        self._awake_s = now_s

    def begin(self, replicas: Sequence[Replica]) -> None:
        """After a restart of the balancer: whether the service slept."""
        self.is_asleep = bool(replicas) and all(one.phase is JobPhase.SUSPENDED for one in replicas)

    def note_end(self, service: Service, replica: Replica, now_s: float) -> None:
        """A replica's job has ended by itself, or was ended because of its checks."""
        is_failure = replica.exit_code != 0
        if service.restart == NEVER or (service.restart == ON_FAILURE and not is_failure):
            if replica.generation == service.generation:
                self.finished_count += 1
            self.last_end = f"replica {replica.job_id} has ended with exit code {replica.exit_code}, and stays so"
            return
        self.note_failure(f"replica {replica.job_id} has ended with exit code {replica.exit_code}", replica, now_s)

    def note_failure(self, what: str, replica: Replica | None, now_s: float) -> None:
        """What waits a while before it is tried again: longer each time, unless the replica had worked for long."""
        if replica is not None and replica.was_healthy and now_s - replica.running_since_s >= STEADY_S:
            self.failures = 0
        wait_s = min(BACKOFF_FIRST_S * 2.0 ** min(self.failures, 20), BACKOFF_MAX_S)
        self.failures += 1
        self.not_before_s = now_s + wait_s
        self.last_end = what

    def step(self, service: Service, replicas: Sequence[Replica], traffic: Traffic, now_s: float) -> list[Action]:
        if service.generation != self._generation:
            self._generation, self.finished_count, self.failures, self.not_before_s = service.generation, 0, 0, now_s
            self._awake_s = now_s
        if self.not_before_s - now_s > BACKOFF_MAX_S:  # whatever a clock does, the wait is bounded
            self.not_before_s = now_s + BACKOFF_MAX_S
        alive = [one for one in replicas if one.phase is not JobPhase.ENDED]
        out: list[Action] = [End(one.job_id, "drained") for one in alive if _is_drained(one, service, now_s)]
        serving = [one for one in alive if one.draining_since_s is None]
        for one in serving:
            if service.restart != NEVER and (why := health.why_ended(one, service.health, now_s)):
                out.append(End(one.job_id, why))
                self.note_failure(f"replica {one.job_id} was ended: {why}", one, now_s)
                one.draining_since_s = now_s
        serving = [one for one in serving if one.draining_since_s is None]
        self._decide_sleep(service, serving, traffic, now_s)
        if self.is_asleep:
            out += [Suspend(one.job_id) for one in serving if one.phase is JobPhase.RUNNING]
            return out
        old = [one for one in serving if one.generation != service.generation]
        new = [one for one in serving if one.generation == service.generation]
        wanted = max(0, service.replicas - self.finished_count)
        if old:
            is_one_draining = len(serving) < sum(one.phase is not JobPhase.ENDED for one in replicas)
            out += self._replace(old, new, wanted, is_one_draining, now_s)
        else:
            out += self._fill(new, wanted, now_s)
        for one in serving:
            if one.phase is JobPhase.SUSPENDED and one.draining_since_s is None:
                out.append(Resume(one.job_id))  # the queue refuses it for one that it has preempted
        return out

    # ---- sleep ----

    def _decide_sleep(self, service: Service, serving: Sequence[Replica], traffic: Traffic, now_s: float) -> None:
        is_settled = bool(serving) and all(
            one.generation == service.generation and (one.is_ready or one.phase is JobPhase.SUSPENDED)
            for one in serving
        )
        idle_s = now_s - max(traffic.last_s, self._awake_s)
        if self.is_asleep:
            if not traffic.is_idle or not service.idle_s or not serving or not _all_of(serving, service):
                self.is_asleep, self._awake_s = False, now_s
        elif service.idle_s and traffic.is_idle and is_settled:
            is_complete = len(serving) >= service.replicas - self.finished_count
            self.is_asleep = is_complete and idle_s >= service.idle_s

    # ---- how many there are ----

    def _fill(self, new: Sequence[Replica], count: int, now_s: float) -> list[Action]:
        """All that are missing, or drains of those that are too many: the newest, and those that do not work first."""
        if len(new) < count:
            return [Start() for _ in range(count - len(new))] if now_s >= self.not_before_s else []
        _drain(sorted(new, key=lambda one: (one.is_ready, -one.job_id))[: len(new) - count], now_s)
        return []

    def _replace(
        self, old: list[Replica], new: list[Replica], count: int, is_one_draining: bool, now_s: float
    ) -> list[Action]:
        """One at a time: a new one is healthy before an old one ends, so that as many answer as before."""
        ready = sum(one.is_ready for one in (*old, *new))
        useless = [one for one in old if one.phase is JobPhase.WAITING or (_runs(one) and one.healthy_since_s is None)]
        _drain(useless if ready or not count else [], now_s)
        spare = ready - count
        if spare > 0 or not count:
            _drain([one for one in sorted(old, key=lambda one: one.job_id) if one.is_ready][:spare], now_s)
            return []
        is_one_starting = any(not one.is_ready for one in new)
        if is_one_starting or is_one_draining or len(new) >= count or now_s < self.not_before_s:
            return []
        return [Start()]


def _runs(replica: Replica) -> bool:
    return replica.phase is JobPhase.RUNNING


def _all_of(serving: Sequence[Replica], service: Service) -> bool:
    return all(one.generation == service.generation for one in serving)


def _is_drained(replica: Replica, service: Service, now_s: float) -> bool:
    since_s = replica.draining_since_s
    return since_s is not None and (not replica.outstanding or now_s - since_s >= service.drain_s)


def _drain(replicas: Sequence[Replica], now_s: float) -> None:
    """They get no further requests; step() ends them when they have answered those that they have."""
    for one in replicas:
        one.draining_since_s = now_s
