"""Highest Gittins index first: the job most likely to end soon for the service that takes, judged by earlier jobs.

Gittins, "Bandit Processes and Dynamic Allocation Indices" (J. Royal Statistical Society B 1979); for jobs on GPUs: Gu
et al., "Tiresias" (NSDI 2019), 2D-Gittins. The index of a job that has attained a, where S is what jobs need in all:

    G(a) = sup over d of  P(S - a <= d | S > a) / E[min(S - a, d) | S > a]

2D: service is GPUs x time. In time only: the distribution is that of times, and the index is divided by the job's
GPUs: what it asks for is known, so its service is its GPUs times an unknown time.

The distribution is learnt from the jobs themselves: levels that double, and for each how many ended in it and how many
got beyond, those that still run or wait included (Kaplan and Meier, "Nonparametric estimation from incomplete
observations", J. American Statistical Association 1958). Before there are any, jobs are taken for heavy-tailed, the
old half as likely to live four times as long (Lomax): then the index falls with service, and the order is that of LAS.
Jobs that have classes (JobSpec.kinds) go by the narrowest one of which enough have ended, in which all jobs' chances
count as much as a few of its own (Robbins, "An Empirical Bayes Approach to Statistics", 1956). Or it is given, as a
table of the GPU-seconds (in time only: seconds) that jobs needed; its values, or 64 quantiles of them, are the levels.
"""

from __future__ import annotations

import bisect
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from vgpud.core.jobs.model import GPU_SECOND, NEVER_NS, SECOND_NS, Job, JobState
from vgpud.core.policy.base import Key, Plain

#: fixed point of probabilities
ONE = 1 << 40
#: length of the first level, and how often it doubles: 0, 600, 1800, 4200, ... 910 days
FIRST = 600
DOUBLINGS = 16
#: cost of a level that no job was seen to end in: jobs beyond the last level come last
UNKNOWN = 1 << 100
#: a table with more values is reduced to this many quantiles
TABLE_LEVELS_MAX = 64
#: prior of each level: the chance to end in it is 1 - 2**-0.5, as if three jobs had shown it
PRIOR_PPM = 292_893
PRIOR_JOBS = 3
#: the table is recomputed when the jobs that ended are more by a 16th
RELEARN_PARTS = 16
#: a class has its own table after this many of its jobs have ended; classes kept, the last used ones
CLASS_JOBS = 8
CLASSES_MAX = 1000


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


@dataclass(slots=True)
class Table:
    """How many jobs ended in each level of service, and how many got beyond it; the costs that follow from that."""

    ended_in: list[int]
    got_beyond: list[int]
    total_ends: int = 0
    fresh: bool = False  # something was counted since `costs` were made
    costs: list[int] = field(default_factory=list)

    @classmethod
    def empty(cls, levels: int) -> Table:
        """Nothing was counted yet."""
        return cls([0] * levels, [0] * levels)

    def count_beyond(self, first: int, level: int) -> None:
        for passed in range(first, level):
            self.got_beyond[passed] += 1
        self.fresh = True

    def count_end(self, first: int, level: int) -> None:
        self.count_beyond(first, level)
        self.ended_in[level] += 1
        self.total_ends += 1

    def chances(self, prior: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
        """(dividend, divisor) to end in each level; `prior` counts as much as PRIOR_JOBS of them."""
        found = []
        for ended, beyond, (dividend, divisor) in zip(self.ended_in, self.got_beyond, prior, strict=True):
            found.append((ended * divisor + PRIOR_JOBS * dividend, (ended + beyond + PRIOR_JOBS) * divisor))
        return found


class Gittins(Plain):
    """`table`: what jobs needed, in (GPU-)seconds; without one it is learnt."""

    def __init__(self, name: str, *, by_width: bool, table: Sequence[Fraction] = ()) -> None:
        self.name = name
        self.by_width = by_width
        self.learns = not table
        unit = GPU_SECOND if by_width else SECOND_NS
        needed = sorted(int(value * unit) for value in table)
        parts = min(len(needed), TABLE_LEVELS_MAX)
        quantiles = {needed[(part + 1) * len(needed) // parts - 1] for part in range(parts)}
        doubling = {FIRST * unit * ((2 << power) - 1) for power in range(DOUBLINGS + 1)}
        self.edges = sorted({0} | (quantiles or doubling))
        self.levels = len(self.edges) - 1
        self.all = Table.empty(self.levels)
        self.classes: OrderedDict[str, Table] = OrderedDict()
        self.counted_levels: dict[int, int] = {}  # by job that has not ended: up to which level it counts in got_beyond
        self.relearn_at = 1
        for served in needed:
            self.all.count_end(0, self._last_level(served))
        self._learn()

    def key(self, job: Job, now_ns: int) -> Key:
        cost = self._table(job).costs[job.level] * (1 if self.by_width else job.spec.least_width_milli)
        if job.state is JobState.RUNNING:
            return (cost, 0, job.started_ns)
        return (cost, 1, max(job.level_since_ns, job.submitted_ns))

    def _table(self, job: Job) -> Table:
        """The costs of its narrowest class that has its own, else those of all jobs."""
        for kind in job.spec.kinds:
            table = self.classes.get(kind)
            if table is not None and table.costs:
                return table
        return self.all

    def _classes_of(self, job: Job) -> list[Table]:
        """The classes to count it in. None is dropped before all costs are recomputed, since keys would change; new
        classes beyond the limit are left out."""
        found = []
        for kind in job.spec.kinds:
            if kind in self.classes:
                self.classes.move_to_end(kind)
            elif len(self.classes) < 2 * CLASSES_MAX:
                self.classes[kind] = Table.empty(self.levels)
            else:
                continue
            found.append(self.classes[kind])
        return found

    def changes_at(self, job: Job, now_ns: int) -> int:
        rate = job.width_milli if self.by_width else 1
        if job.state is not JobState.RUNNING or job.level == self.levels or not rate:
            return NEVER_NS
        return now_ns - (self._count_service(job, now_ns) - self.edges[job.level + 1]) // rate

    def touch(self, job: Job, now_ns: int) -> None:
        level = self._level(self._count_service(job, now_ns))
        before = self.counted_levels.get(job.job_id, 0)
        if self.learns and level > before:
            self.all.count_beyond(before, level)
            for table in self._classes_of(job):
                table.count_beyond(before, level)
            self.counted_levels[job.job_id] = level
        if level != job.level:
            job.level = level
            job.level_since_ns = now_ns

    def record_end(self, job: Job) -> None:
        """A job that was cancelled or ran out of time shows how long jobs run, not when they end."""
        counted = self.counted_levels.pop(job.job_id, 0)
        if not self.learns or job.state not in (JobState.COMPLETED, JobState.FAILED):
            return
        level = self._last_level(job.attained if self.by_width else job.executed_ns)
        self.all.count_end(counted, level)
        for table in self._classes_of(job):
            table.count_end(counted, level)
        if self.all.total_ends >= self.relearn_at:
            self.relearn_at = self.all.total_ends + 1 + self.all.total_ends // RELEARN_PARTS
            self._learn()
            self.epoch += 1

    def _count_service(self, job: Job, now_ns: int) -> int:
        return job.attained_at(now_ns) if self.by_width else job.executed_at(now_ns)

    def _level(self, service: int) -> int:
        """Of a job that has attained `service` and has not ended."""
        return bisect.bisect_right(self.edges, service) - 1

    def _last_level(self, service: int) -> int:
        """In which a job ended that needed so much."""
        return min(self._level(max(service - 1, 0)), self.levels - 1)

    def _learn(self) -> None:
        """Recomputes all costs, those of classes too: keys change here only."""
        table = self.all
        chances = table.chances([(PRIOR_PPM, 1_000_000)] * self.levels) if self.learns else _plain(table)
        table.costs = [*costs(self.edges, chances, has_even_ends=self.learns), UNKNOWN]
        while len(self.classes) > CLASSES_MAX:
            self.classes.popitem(last=False)
        for known in self.classes.values():
            if known.fresh and known.total_ends >= CLASS_JOBS:
                known.costs = [*costs(self.edges, known.chances(chances), has_even_ends=True), UNKNOWN]
                known.fresh = False


def _plain(table: Table) -> list[tuple[int, int]]:
    """Of a table that was given, each value in it counted."""
    return [(ended, ended + beyond) for ended, beyond in zip(table.ended_in, table.got_beyond, strict=True)]
