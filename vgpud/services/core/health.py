"""What the results of checks mean for a replica. Pure."""

from __future__ import annotations

from vgpud.services.core.model import Health, JobPhase, Replica

#: checks in a row that fail until a replica gets no more requests, and until it is ended and replaced
FAILURES_OUT, FAILURES_END = 3, 10


def see_job(replica: Replica, phase: JobPhase, attempt: int, now_s: float) -> None:
    """The daemon has said what its job is doing. A new attempt is another program; one that has slept is the same."""
    if attempt != replica.attempt:
        replica.attempt, replica.port = attempt, 0
        replica.healthy_since_s, replica.was_healthy = None, False
        replica.failures, replica.last_failure, replica.is_suspect = 0, "", False
    if phase is JobPhase.RUNNING and replica.phase is not JobPhase.RUNNING:
        replica.running_since_s = now_s
        if replica.was_healthy:  # it was suspended, and continues where it was
            replica.healthy_since_s, replica.failures, replica.is_suspect = now_s, 0, False
    if phase is not JobPhase.RUNNING:
        replica.healthy_since_s = None
    replica.phase = phase


def see_check(replica: Replica, why_not: str, now_s: float) -> None:
    """The result of a check, "": it is healthy."""
    if replica.phase is not JobPhase.RUNNING:
        return
    replica.last_failure = why_not
    if not why_not:
        replica.failures, replica.is_suspect, replica.was_healthy = 0, False, True
        if replica.healthy_since_s is None:
            replica.healthy_since_s = now_s
        return
    replica.failures += 1
    if replica.is_suspect or replica.failures >= FAILURES_OUT:
        replica.healthy_since_s = None


def why_ended(replica: Replica, health: Health, now_s: float) -> str:
    """Why a replica that runs should be ended and replaced; "": it should not."""
    if replica.phase is not JobPhase.RUNNING or replica.healthy_since_s is not None:
        return ""
    why = replica.last_failure or "it was not checked yet"
    if replica.was_healthy:
        return f"{replica.failures} checks have failed: {why}" if replica.failures >= FAILURES_END else ""
    if now_s - replica.running_since_s > health.start_s:
        return f"it was not healthy {health.start_s:g} s after its start: {why}"
    return ""
