"""When sessions were last used, and which have not been for too long. Pure: times are arguments, in ns of the queue's
clock, which never goes back.

Use is a request that has come through the console or the API, an open terminal, or a launch on a device. Time in which
no daemon looked does not count: the daemon did not run, or the machine slept, and a use would not have been seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from vgpud.core.jobs.model import SECOND_NS

#: how often sessions are looked at, and a gap between two looks that counts as one in which no daemon looked
LOOK_NS, GAP_NS = 10 * SECOND_NS, 60 * SECOND_NS
#: after a restart no session ends earlier, unless its own time is shorter
GRACE_NS = 300 * SECOND_NS
#: a later use is saved after this time, or a part of the session's own
SAVE_NS, SAVE_PARTS = 60 * SECOND_NS, 8


@dataclass(slots=True)
class _Watched:
    run: int  # which of its job's runs: when it was started
    after_ns: int
    used_ns: int
    saved_ns: int
    launches: int | None = None  # of all time, at the last look


class Idleness:
    """Sessions that run and have a time after which they are idle."""

    def __init__(self) -> None:
        self._watched: dict[int, _Watched] = {}
        self._looked_ns = 0

    def watch(self, job_id: int, run: int, after_ns: int, now_ns: int, saved_ns: int = -1) -> None:
        """The job runs. `saved_ns`: when it was last used, as a former daemon has saved it; -1: it starts now."""
        known = self._watched.get(job_id)
        if known and known.run == run:
            return
        used_ns = now_ns if saved_ns < 0 else max(saved_ns, now_ns - after_ns + min(after_ns, GRACE_NS))
        self._watched[job_id] = _Watched(run, after_ns, min(used_ns, now_ns), used_ns)

    def forget(self, job_id: int) -> None:
        self._watched.pop(job_id, None)

    def use(self, job_id: int, now_ns: int) -> None:
        if known := self._watched.get(job_id):
            known.used_ns = max(known.used_ns, now_ns)

    def note_launches(self, job_id: int, launches: int, now_ns: int) -> None:
        """`launches`: of all time; a new daemon may begin to count again."""
        known = self._watched[job_id]
        if known.launches is not None and launches != known.launches:
            self.use(job_id, now_ns)
        known.launches = launches

    def look(self, now_ns: int) -> list[int]:
        """The jobs that have been idle for their time."""
        gap_ns = now_ns - self._looked_ns
        if self._looked_ns and gap_ns > GAP_NS:
            for known in self._watched.values():
                known.used_ns = min(now_ns, known.used_ns + gap_ns)
        self._looked_ns = now_ns
        return [job_id for job_id, known in self._watched.items() if now_ns - known.used_ns >= known.after_ns]

    def last_use_ns(self, job_id: int) -> int:
        """-1: it is not watched."""
        known = self._watched.get(job_id)
        return known.used_ns if known else -1

    def take_unsaved(self, count: int) -> Iterator[tuple[int, int]]:
        """(job, last use) of at most so many whose use is to be saved; it counts as saved."""
        for job_id, known in self._watched.items():
            if count and known.used_ns - known.saved_ns >= max(SAVE_NS, known.after_ns // SAVE_PARTS):
                count -= 1
                known.saved_ns = known.used_ns
                yield job_id, known.used_ns

    def __iter__(self) -> Iterator[int]:
        return iter(self._watched)
