"""Which events of jobs their users are notified of, and how many in an hour. Pure."""

from __future__ import annotations

from vgpud.core.jobs.model import END, FAILURE, NOTICES, SECOND_NS, Job, JobState

#: notices of one user: so many at once, and so many in an hour after that
PER_HOUR_MAX = 100
_REFILL_NS = 3600 * SECOND_NS // PER_HOUR_MAX


class Notices:
    """The budget of each user: a token bucket."""

    def __init__(self) -> None:
        #: by uid: when the bucket is full again
        self._full_ns: dict[int, int] = {}

    def due(self, job: Job, event: str, now_ns: int) -> bool:
        """Whether the user is notified of it, which is counted then."""
        return event in job.spec.notify and self._take(job.spec.uid, now_ns)

    def due_at_end(self, job: Job, now_ns: int) -> str:
        """The notice of a job that has ended, "" for none: one, whatever was asked for."""
        failed = job.state in (JobState.FAILED, JobState.TIMED_OUT)
        wanted = (FAILURE in job.spec.notify and failed) or END in job.spec.notify
        if not wanted or not self._take(job.spec.uid, now_ns):
            return ""
        return FAILURE if failed else END

    def _take(self, uid: int, now_ns: int) -> bool:
        full_ns = max(now_ns, self._full_ns.get(uid, 0))
        if full_ns - now_ns > (PER_HOUR_MAX - 1) * _REFILL_NS:
            return False
        self._full_ns[uid] = full_ns + _REFILL_NS
        return True


def wrong_events(events: tuple[str, ...]) -> str:
    """Why these are no events of a job, "" when they are."""
    for event in events:
        if event not in NOTICES:
            return f"{event[:40]!r} is no event of a job: choose from {', '.join(NOTICES)}"
    return ""
