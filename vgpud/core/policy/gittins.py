"""Highest Gittins index first: the job most likely to end soon for the service that takes, by a table of jobs' needs.

Gittins, "Bandit Processes and Dynamic Allocation Indices" (J. Royal Statistical Society B 1979); for jobs on GPUs: Gu
et al., "Tiresias" (NSDI 2019), 2D-Gittins. The index of a job that has attained a, where S is what jobs need in all:

    G(a) = sup over d of  P(S - a <= d | S > a) / E[min(S - a, d) | S > a]

2D: service is GPUs x time. In time only: the distribution is that of times, and the index is divided by the job's
GPUs: what it asks for is known, so its service is its GPUs times an unknown time.

Here the distribution is given, as a table of the GPU-seconds (in time only: seconds) that jobs needed; its values, or
64 quantiles of them, are the levels. learnt_gittins.py has the same index learnt from the queue's own jobs.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from fractions import Fraction

from vgpud.core.jobs.model import GPU_SECOND, NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.policy.base import Key, Plain

#: fixed point of probabilities
ONE = 1 << 40
#: cost of a level that no job was seen to end in: jobs beyond the last level come last
UNKNOWN = 1 << 100
#: a table with more values is reduced to this many quantiles
TABLE_LEVELS_MAX = 64


def costs(edges: Sequence[int], ends: Sequence[tuple[int, int]], *, has_even_ends: bool) -> list[int]:
    """1 / G at the beginning of each level: the least service that a job done costs from there on, in units of `edges`.

    `edges` begin with 0; `ends`: the chance (dividend, divisor) that a job which has reached a level ends in it,
    `has_even_ends`, or all at its end. The best d is always a corner of the upper hull of the points (service spent,
    jobs done) that lie ahead, so one walk from the end finds all of them.
    """
    alive, spent = [ONE], [0]
    for level, (dividend, divisor) in enumerate(ends):
        alive.append(alive[-1] - alive[-1] * dividend // divisor)
        working = (alive[-2] + alive[-1]) // 2 if has_even_ends else alive[-2]
        spent.append(spent[-1] + working * (edges[level + 1] - edges[level]))
    hull: list[int] = []
    found: list[int] = []
    for level in reversed(range(len(edges))):
        while len(hull) > 1:
            # the corner in front goes when the one behind it is seen under a steeper angle
            near, far = hull[-1], hull[-2]
            done_near, done_far = alive[level] - alive[near], alive[level] - alive[far]
            if done_near * (spent[far] - spent[level]) > done_far * (spent[near] - spent[level]):
                break
            hull.pop()
        if hull:
            done = alive[level] - alive[hull[-1]]
            found.append((spent[hull[-1]] - spent[level]) // done if done else UNKNOWN)
        hull.append(level)
    return found[::-1]


class ServiceLevels(Plain):
    """Levels of attained service that begin at `edges`, in service (2D) or ns: what a policy by level has in common."""

    def __init__(self, name: str, *, by_width: bool, edges: Iterable[int]) -> None:
        self.name = name
        self.by_width = by_width
        self.edges = sorted({0, *edges})
        self.levels = len(self.edges) - 1

    def changes_at(self, job: Job, now_ns: int) -> int:
        rate = job.width_milli if self.by_width else 1
        if job.state is not JobState.RUNNING or job.level == self.levels or not rate:
            return NEVER_NS
        return now_ns - (self._count_service(job, now_ns) - self.edges[job.level + 1]) // rate

    def touch(self, job: Job, now_ns: int) -> None:
        level = self._level(self._count_service(job, now_ns))
        if level != job.level:
            job.level = level
            job.level_since_ns = now_ns

    @property
    def unit(self) -> int:
        """Service of a GPU-second, or ns of a second."""
        return GPU_SECOND if self.by_width else SECOND_NS

    def _count_service(self, job: Job, now_ns: int) -> int:
        return job.attained_at(now_ns) if self.by_width else job.executed_at(now_ns)

    def _level(self, service: int) -> int:
        """Of a job that has attained `service` and has not ended."""
        return bisect.bisect_right(self.edges, service) - 1

    def _last_level(self, service: int) -> int:
        """In which a job ended that needed so much."""
        return min(self._level(max(service - 1, 0)), self.levels - 1)


class Gittins(ServiceLevels):
    """`table`: what jobs needed, in (GPU-)seconds."""

    def __init__(self, name: str, *, by_width: bool, table: Sequence[Fraction]) -> None:
        unit = GPU_SECOND if by_width else SECOND_NS
        needed = sorted(int(value * unit) for value in table)
        parts = min(len(needed), TABLE_LEVELS_MAX)
        super().__init__(
            name, by_width=by_width, edges=(needed[(part + 1) * len(needed) // parts - 1] for part in range(parts))
        )
        self.ended_in = [0] * self.levels
        for service in needed:
            self.ended_in[self._last_level(service)] += 1
        reached = [sum(self.ended_in[level:]) for level in range(self.levels)]
        chances = list(zip(self.ended_in, reached, strict=True))
        self.costs = [*costs(self.edges, chances, has_even_ends=False), UNKNOWN]

    def key(self, job: Job, now_ns: int) -> Key:
        cost = self.costs[job.level] * (1 if self.by_width else job.spec.least_width_milli)
        if job.state is JobState.RUNNING:
            return (cost, 0, job.started_ns)
        return (cost, 1, max(job.level_since_ns, job.submitted_ns))
