"""How the state of a job changes: one table, which every change goes through."""

from __future__ import annotations

from enum import Enum

from vgpud.core.jobs.model import Job, JobState


class JobEvent(Enum):
    """What changes the state of a job."""

    HOLD = "hold"
    RELEASE = "release"
    START = "start"  # it has its devices: for a new attempt, or to continue where it was suspended
    SUSPEND = "suspend"  # preempted or by its user, its memory kept; or a resumed one that could not be started
    RESTART = "restart"  # requeued, to be retried, or not started: it waits for a new attempt
    COMPLETE = "complete"
    FAIL = "fail"
    CANCEL = "cancel"
    TIME_OUT = "time_out"


_S, _E = JobState, JobEvent
#: (state, event) -> state; what is not here does not happen
JOB_TRANSITIONS: dict[tuple[JobState, JobEvent], JobState] = {
    (_S.PENDING, _E.HOLD): _S.HELD,
    (_S.PENDING, _E.START): _S.RUNNING,
    (_S.PENDING, _E.CANCEL): _S.CANCELLED,
    (_S.HELD, _E.RELEASE): _S.PENDING,
    (_S.HELD, _E.CANCEL): _S.CANCELLED,
    (_S.RUNNING, _E.SUSPEND): _S.SUSPENDED,
    (_S.RUNNING, _E.RESTART): _S.PENDING,
    (_S.RUNNING, _E.COMPLETE): _S.COMPLETED,
    (_S.RUNNING, _E.FAIL): _S.FAILED,
    (_S.RUNNING, _E.CANCEL): _S.CANCELLED,
    (_S.RUNNING, _E.TIME_OUT): _S.TIMED_OUT,
    (_S.SUSPENDED, _E.START): _S.RUNNING,
    (_S.SUSPENDED, _E.SUSPEND): _S.SUSPENDED,
    (_S.SUSPENDED, _E.RESTART): _S.PENDING,
    (_S.SUSPENDED, _E.COMPLETE): _S.COMPLETED,
    (_S.SUSPENDED, _E.FAIL): _S.FAILED,
    (_S.SUSPENDED, _E.CANCEL): _S.CANCELLED,
    (_S.SUSPENDED, _E.TIME_OUT): _S.TIMED_OUT,
}
#: the event that leads to each end
END_EVENTS = {
    JobState.COMPLETED: JobEvent.COMPLETE,
    JobState.FAILED: JobEvent.FAIL,
    JobState.CANCELLED: JobEvent.CANCEL,
    JobState.TIMED_OUT: JobEvent.TIME_OUT,
}


def enter(job: Job, event: JobEvent) -> None:
    """Changes the state of the job. Raises KeyError: the table has no such transition."""
    job.state = JOB_TRANSITIONS[job.state, event]
