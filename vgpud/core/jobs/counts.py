"""Numbers of jobs by user, queue and state, updated with every change, so that no request walks over all jobs. Pure."""

from __future__ import annotations

from collections import Counter

from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import Job, JobState
from vgpud.core.observed import JobWaits


class JobCounts:
    """Of jobs that have not ended; and how many have ended since the daemon started."""

    def __init__(self) -> None:
        self._seen: dict[int, tuple[str, JobState]] = {}
        self._unstarted: set[int] = set()  # jobs that have never started
        self._by_uid: Counter[int] = Counter()
        #: of what a job runs; the jobs of an array run the same, which is held while one of them has not ended
        self._bytes: dict[int, int] = {}
        self._runners: Counter[int] = Counter()
        self._bytes_by_uid: Counter[int] = Counter()
        self._by_state: Counter[tuple[str, JobState]] = Counter()
        self.ends_by_state: Counter[tuple[str, JobState]] = Counter()
        self.waits: dict[str, JobWaits] = {}  # by queue, of jobs that started since the daemon did

    @property
    def total(self) -> int:
        return len(self._seen)

    def of_user(self, uid: int) -> int:
        return self._by_uid[uid]

    def bytes_of_user(self, uid: int) -> int:
        """What a user's jobs run, their commands and environments, takes."""
        return self._bytes_by_uid[uid]

    def in_state(self, queue: str, *states: JobState) -> int:
        return sum(self._by_state[queue, state] for state in states)

    def rows(self) -> list[tuple[str, str, int]]:
        """(queue, state, count) where the count is not 0, in a fixed order."""
        found = ((queue, state.value, count) for (queue, state), count in self._by_state.items() if count)
        return sorted(found)

    def see(self, job: Job) -> None:
        """A job as it is now."""
        queue, uid = job.spec.queue, job.spec.uid
        before = self._seen.pop(job.job_id, None)
        if job.first_started_ns < 0 and not job.state.is_final:
            self._unstarted.add(job.job_id)
        elif job.job_id in self._unstarted:
            self._unstarted.remove(job.job_id)
            if job.first_started_ns >= 0:
                wait_ns = max(0, job.first_started_ns - job.submitted_ns)
                self.waits[queue] = self.waits.get(queue, JobWaits()).plus(wait_ns)
        if before:
            self._by_state[before] -= 1
            self._by_uid[uid] -= 1
        if job.state.is_final:
            self.ends_by_state[queue, job.state] += before is not None
            if before:
                self._end_runner(job)
            return
        if before is None:
            self._begin_runner(job)
        self._seen[job.job_id] = queue, job.state
        self._by_state[queue, job.state] += 1
        self._by_uid[uid] += 1

    def _begin_runner(self, job: Job) -> None:
        first, run = job.spec.array or job.job_id, job.spec.run
        self._runners[first] += 1
        if isinstance(run, Launch) and first not in self._bytes:
            self._bytes[first] = run.words_bytes
            self._bytes_by_uid[job.spec.uid] += run.words_bytes

    def _end_runner(self, job: Job) -> None:
        first = job.spec.array or job.job_id
        self._runners[first] -= 1
        if not self._runners[first]:
            del self._runners[first]
            self._bytes_by_uid[job.spec.uid] -= self._bytes.pop(first, 0)
