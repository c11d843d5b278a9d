"""The mix of jobs by which FGD measures fragmentation, learnt from the newest jobs as they are submitted."""

from __future__ import annotations

from collections import Counter, deque

from vgpud.core.jobs.model import Ask
from vgpud.core.placement.fgd import PLAIN_MIX, Mix, choose_popular, simplify

#: the mix is that of the newest so many jobs
JOBS_MAX = 1024
#: before there are so many, it is PLAIN_MIX
JOBS_LEAST = 16
#: it is made again when a part of its jobs is new: whatever was ranked by it is ranked again then
NEW_PARTS = 8


class JobMix:
    """Bounded; the same jobs in the same order give the same mix."""

    def __init__(self) -> None:
        self._asks: deque[Ask] = deque()
        self._counts: Counter[Ask] = Counter()
        self._jobs_left = JOBS_LEAST  # until it is made again
        self.mix = PLAIN_MIX

    def add(self, ask: Ask) -> bool:
        """A job was submitted. Whether the mix is another one now."""
        ask = simplify(ask)
        self._asks.append(ask)
        self._counts[ask] += 1
        if len(self._asks) > JOBS_MAX:
            oldest = self._asks.popleft()
            self._counts[oldest] -= 1
            if not self._counts[oldest]:
                del self._counts[oldest]
        self._jobs_left -= 1
        return not self._jobs_left and self._make()

    def _make(self) -> bool:
        before: Mix = self.mix
        self._jobs_left = max(JOBS_LEAST, len(self._asks) // NEW_PARTS)
        self.mix = choose_popular(self._counts)
        return self.mix != before
