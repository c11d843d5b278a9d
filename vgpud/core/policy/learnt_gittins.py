"""Highest Gittins index first (gittins.py), learnt from the queue's own jobs: the order of new queues.

Levels double, and for each the order counts how many jobs ended in it and how many got beyond, those that still run or
wait included (Kaplan and Meier, "Nonparametric estimation from incomplete observations", J. American Statistical
Association 1958). Five rules keep it from going wrong while it knows little, or what it knows is out of date:

- Prior. Before there are jobs to learn from, and as if so many had shown it, jobs are taken for heavy-tailed: the old
  half as likely to live four times as long (Lomax). Then the index falls with service, and the order is that of LAS.
- Trial. Jobs in the first levels go before all others, and none is preempted for another one of them. Otherwise, if the
  first jobs to end are long, new ones are taken for long too, wait behind the old ones, and nothing new is learnt.
  Among themselves the one whose narrowest class takes least for each job that ends goes first, and equals in the order
  of arrival; what is known of a class by GPUs alone does not count there.
- Oblivion. With each job that ends, what earlier ones have shown counts a little less.
- Hysteresis. A running job's cost counts with a part of itself, so that it is preempted only by much better ones.
- Classes. A job goes by its narrowest class of which a job has ended. The widest is its GPUs, others are in
  JobSpec.kinds. What the next wider class shows counts as much as a few jobs of its own (Robbins, "An Empirical Bayes
  Approach to Statistics", 1956), so that a class of one job changes little.

A job that was preempted and had to start again is not preempted again: otherwise it might never end.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vgpud.core.jobs.model import GPU_SECOND, SECOND_NS, Job, JobState
from vgpud.core.jobs.similarity import WORDS, word_of
from vgpud.core.policy.base import Key
from vgpud.core.policy.gittins import UNKNOWN, ServiceLevels, costs
from vgpud.core.policy.level_table import JOB, PPM, Table, read_numbers

#: length of the first level, and how often it doubles: 0, 600, 1800, 4200, ... 910 days
FIRST = 600
DOUBLINGS = 16
#: the prior of each level: the chance to end in it is 1 - 2**-0.5
PRIOR = (292_893, 1_000_000)
#: keys change when the jobs that count are more by a 16th
RELEARN_PARTS = 16
#: classes kept: the last used ones
CLASSES_MAX = 1000
#: of knowledge(): what is of another version is not read
VERSION = 1
_JOB_ID_MAX = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Tuning:
    """The five rules' numbers, chosen by the row `learnt` of benchmarks.scheduling."""

    prior_jobs: int = 10
    trial: int = 4200  # (GPU-)seconds; the beginning of a level
    kept_ppm: int = 997_000  # what earlier jobs count after each job that ends
    running_ppm: int = 250_000  # what the cost of a running job counts
    size_jobs: int = 3  # what all jobs count in a class by GPUs, in jobs
    class_jobs: int = 10  # what the next wider class counts in others


DEFAULT_TUNING = Tuning()


class LearntGittins(ServiceLevels):
    """Highest index first, learnt."""

    #: where jobs can only be stopped by starting them again, this order stops none
    restarts = False

    def __init__(self, name: str, *, by_width: bool, tuning: Tuning = DEFAULT_TUNING) -> None:
        unit = GPU_SECOND if by_width else SECOND_NS
        edges = (FIRST * unit * ((2 << power) - 1) for power in range(DOUBLINGS + 1))
        super().__init__(name, by_width=by_width, edges=edges)
        self.tuning = tuning
        self.trial_levels = self._level(tuning.trial * unit)
        self.all = Table.empty(self.levels)
        self.classes: OrderedDict[str, Table] = OrderedDict()
        self.counted_levels: dict[int, int] = {}  # by job that has not ended: up to which level it counts in got_beyond
        self._unpublished: dict[int, Table] = {}  # by identity: their next_costs are not in force
        self._ends_left = 0  # jobs that end until keys change
        self._learn([self.all])
        self._publish()

    # ---- the order ----

    def key(self, job: Job, now_ns: int) -> Key:
        is_running = job.state is JobState.RUNNING
        if is_running and (job.level < self.trial_levels or _has_restarted(job)):
            return (0, 0, 0, job.started_ns)
        is_trial = job.level < self.trial_levels
        class_name, table = self._table(job)
        if is_trial and class_name == _size(job):
            table = self.all
        cost = table.costs[job.level]
        if not (is_trial or self.by_width):
            cost *= job.spec.least_width_milli
        if is_running:
            return (1, cost * self.tuning.running_ppm // PPM, 0, job.started_ns)
        return (int(not is_trial), cost, 1, max(job.level_since_ns, job.submitted_ns))

    def describe(self, job: Job, now_ns: int) -> str:
        if _has_restarted(job):
            return "was preempted and had to start again, and is not preempted again"
        unit = "GPU-seconds" if self.by_width else "seconds"
        served = self._count_service(job, now_ns) // self.unit
        class_name, table = self._table(job)
        text = f"has used {served} {unit}"
        if job.level < self.trial_levels:
            text = f"is in its trial ({served} of {self.edges[self.trial_levels] // self.unit} {unit} used)"
            if job.state is JobState.RUNNING or class_name in ("", _size(job)):
                return text
        cost = table.costs[job.level]
        whose = f"jobs with {WORDS.get(word_of(class_name), 'as many GPUs')}" if class_name else "jobs"
        likely = f"about {cost // self.unit} more each" if cost < UNKNOWN else "more than is known"
        return f"{text}, and {whose} take {likely}"

    def touch(self, job: Job, now_ns: int) -> None:
        super().touch(job, now_ns)
        before = self.counted_levels.get(job.job_id, 0)
        if job.level > before:
            for table in self._tables(job):
                table.count_beyond(before, job.level)
            self.counted_levels[job.job_id] = job.level
            self.knowledge_version += 1

    def _table(self, job: Job) -> tuple[str, Table]:
        """Its narrowest class of which a job has ended, else all jobs (its name is "")."""
        for name in (*job.spec.kinds[:-1], _size(job)):
            table = self.classes.get(name)
            if table is not None and table.costs:
                return name, table
        return "", self.all

    # ---- what is learnt ----

    def record_end(self, job: Job) -> None:
        """A job that was cancelled or ran out of time shows how long jobs run, not when they end."""
        counted = self.counted_levels.pop(job.job_id, 0)
        self.knowledge_version += 1
        if job.state not in (JobState.COMPLETED, JobState.FAILED):
            return
        level = self._last_level(job.attained if self.by_width else job.executed_ns)
        tables = self._tables(job)
        for table in tables:
            table.count_end(counted, level, self.tuning.kept_ppm)
        self._learn(tables)
        self._ends_left -= 1
        if self._ends_left <= 0:
            self._publish()
            self.epoch += 1

    def _tables(self, job: Job) -> list[Table]:
        """To count it in, the widest first. None is dropped before costs are published, since keys would change; new
        classes beyond the limit are left out."""
        found = [self.all]
        for name in (_size(job), *reversed(job.spec.kinds[:-1])):
            if name in self.classes:
                self.classes.move_to_end(name)
            elif len(self.classes) < 2 * CLASSES_MAX:
                self.classes[name] = Table.empty(self.levels)
            else:
                continue
            found.append(self.classes[name])
        return found

    def _learn(self, tables: Sequence[Table]) -> None:
        """Costs of these, each narrower than the one before. As much work for each job that ends, however many wait."""
        chances = [PRIOR] * self.levels
        for depth, table in enumerate(tables):
            tuning = self.tuning
            jobs = (tuning.prior_jobs, tuning.size_jobs)[depth] if depth < 2 else tuning.class_jobs
            chances = table.chances(chances, jobs)
            table.next_costs = [*costs(self.edges, chances, has_even_ends=True), UNKNOWN]
            self._unpublished[id(table)] = table

    def _publish(self) -> None:
        """Keys change here only."""
        for table in self._unpublished.values():
            table.costs = table.next_costs
        self._unpublished.clear()
        while len(self.classes) > CLASSES_MAX:
            self.classes.popitem(last=False)
        self._ends_left = 1 + self.all.jobs // JOB // RELEARN_PARTS

    # ---- what outlives a restart ----

    def knowledge(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "levels": self._name_levels(),
            "ends_left": self._ends_left,
            "all": self.all.encode(),
            "classes": [[name, table.encode()] for name, table in self.classes.items()],
            "counted_levels": [[job_id, level] for job_id, level in self.counted_levels.items()],
        }

    def restore_knowledge(self, knowledge: Mapping[str, Any]) -> None:
        if knowledge.get("version") != VERSION or knowledge.get("levels") != self._name_levels():
            raise ValueError("it is of another version of this order")
        (ends_left,) = read_numbers([knowledge.get("ends_left")], 1, _JOB_ID_MAX)
        classes = _read_pairs(knowledge.get("classes"), str, dict)
        if len(classes) > 2 * CLASSES_MAX:
            raise ValueError(f"it has {len(classes)} classes")
        bodies = {"": knowledge.get("all"), **dict(classes)}
        tables = {name: self._decode_table(body) for name, body in bodies.items()}
        counted = _read_pairs(knowledge.get("counted_levels"), int, int)
        read_numbers([number for pair in counted for number in pair], 2 * len(counted), _JOB_ID_MAX)
        if any(level > self.levels for _, level in counted):
            raise ValueError("it has a job beyond the last level")
        self.all, self._ends_left, self.counted_levels = tables.pop(""), ends_left, dict(counted)
        self.classes = OrderedDict(tables)
        all_tables = (self.all, *self.classes.values())
        self._unpublished = {id(table): table for table in all_tables if not table.is_published}

    def _name_levels(self) -> str:
        """What the numbers of a table are about: `2d 600 16`."""
        return f"{'2d' if self.by_width else '1d'} {FIRST} {DOUBLINGS}"

    def _decode_table(self, body: Any) -> Table:
        if not isinstance(body, dict):
            raise ValueError("it has no table where one should be")
        return Table.decode(body, self.levels)


def _read_pairs(value: Any, first: type, second: type) -> list[Any]:
    """Raises ValueError."""
    if not isinstance(value, list):
        raise ValueError("it has no list where one should be")
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or type(pair[0]) is not first or type(pair[1]) is not second:
            raise ValueError("it has something else than pairs in a list of pairs")
    return value


def _size(job: Job) -> str:
    """Its class by GPUs: the last one of JobSpec.kinds, the widest."""
    return job.spec.kinds[-1] if job.spec.kinds else f"gpus {job.spec.least_width_milli}"


def _has_restarted(job: Job) -> bool:
    return bool(job.lost_runs)
