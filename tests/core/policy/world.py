"""The smallest world in which a policy can be judged: counted GPUs, no costs, a walk in order at every event.

The queue's machine has the same decisions to make among quotas and placements; here nothing but the policy decides.
"""

from __future__ import annotations

import bisect
import heapq
from dataclasses import dataclass, field

from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Ask, Job, JobSpec, JobState
from vgpud.core.model import Spec
from vgpud.core.policy.base import Key, Policy


def make_job(job_id: int, gpus: float, seconds: float, at: float = 0, **spec: object) -> Job:
    ask = Ask(Spec(round(gpus * 1000)))
    made = JobSpec(ask, duration_ns=round(seconds * SECOND_NS), **spec)  # type: ignore[arg-type]
    at_ns = round(at * SECOND_NS)
    return Job(job_id, made, at_ns, waiting_since_ns=at_ns)


@dataclass
class World:
    policy: Policy
    gpus: int
    strict: bool = False
    #: decide once in a unit of time too, and not only when something has happened
    unit_ns: int = 0
    #: see at every decision that no key has changed but when the policy had said so
    watch: bool = False
    #: jobs that come for ever are cut off here
    until_ns: int = NEVER_NS
    now_ns: int = 0
    preemptions: int = 0
    jobs: dict[int, Job] = field(default_factory=dict)
    waits_ns: dict[int, int] = field(default_factory=dict)  # by job: its longest without a break
    schedule: list[tuple[int, ...]] = field(default_factory=list)  # with unit_ns: the jobs that run in each
    _lists: dict[int, list[tuple[Key, int, Job]]] = field(default_factory=dict)  # by width: waiting and running
    _keys: dict[int, Key] = field(default_factory=dict)
    _running: dict[int, Job] = field(default_factory=dict)
    _due: list[tuple[int, int, int]] = field(default_factory=list)  # changes_at, job, version
    _versions: dict[int, int] = field(default_factory=dict)
    _epoch: int = 0

    def run(self, jobs: list[Job]) -> None:
        coming = sorted(jobs, key=lambda job: (job.submitted_ns, job.job_id))[::-1]
        left = len(jobs)
        while left and self.now_ns < self.until_ns:
            for job in [j for j in self._running.values() if j.executed_at(self.now_ns) >= j.spec.duration_ns]:
                self._end(job)
                left -= 1
            while coming and coming[-1].submitted_ns <= self.now_ns:
                self._enter(coming.pop())
            while self._due and self._due[0][0] <= self.now_ns:
                _, job_id, version = heapq.heappop(self._due)
                if self._versions.get(job_id) == version:
                    self._touch(self.jobs[job_id])
            if not left:
                break
            self._decide()
            times = [j.started_ns + j.spec.duration_ns - j.executed_ns for j in self._running.values()]
            times += [coming[-1].submitted_ns] if coming else []
            while self._due and self._versions.get(self._due[0][1]) != self._due[0][2]:
                heapq.heappop(self._due)
            times += [self._due[0][0]] if self._due else []
            if self.unit_ns:
                if self.now_ns % self.unit_ns == 0:
                    self.schedule.append(tuple(sorted(self._running)))
                times.append(self.now_ns - self.now_ns % self.unit_ns + self.unit_ns)
            then_ns = min(times)
            assert then_ns > self.now_ns, "time stands still: a change that has come does not go away"
            if self.watch and not self.policy.dynamic:
                self._see_keys(then_ns - 1, "until the next event")
            self.now_ns = then_ns

    @property
    def longest_wait_ns(self) -> int:
        return max(self.waits_ns.values())

    def _see_keys(self, at_ns: int, when: str) -> None:
        for job_id, key in self._keys.items():
            job = self.jobs[job_id]
            if self.policy.drifts and job.state is JobState.RUNNING and at_ns > self.now_ns:
                key = (key[0], key[1] - self.policy.pace(job) * (at_ns - self.now_ns), *key[2:])
            assert self.policy.key(job, at_ns) == key, f"{when}: key of job {job_id} has changed by itself"

    def _enter(self, job: Job) -> None:
        self.jobs[job.job_id] = job
        self._touch(job)

    def _leave(self, job: Job) -> None:
        key = self._keys.pop(job.job_id, None)
        if key is not None:
            held = self._lists[job.width_milli]
            del held[bisect.bisect_left(held, (key, job.job_id))]
        self._versions[job.job_id] = self._versions.get(job.job_id, 0) + 1

    def _touch(self, job: Job) -> None:
        self._leave(job)
        self.policy.touch(job, self.now_ns)
        self._rekey(job)

    def _rekey(self, job: Job) -> None:
        key = self.policy.key(job, self.now_ns)
        self._keys[job.job_id] = key
        bisect.insort(self._lists.setdefault(job.width_milli, []), (key, job.job_id, job))
        at_ns = self.policy.changes_at(job, self.now_ns)
        if at_ns < NEVER_NS:
            heapq.heappush(self._due, (at_ns, job.job_id, self._versions[job.job_id]))

    def _end(self, job: Job) -> None:
        self._stop(job, JobState.COMPLETED)
        job.ended_ns = self.now_ns
        self._leave(job)
        self.policy.record_end(job)

    def _stop(self, job: Job, state: JobState) -> None:
        job.executed_ns, job.attained = job.executed_at(self.now_ns), job.attained_at(self.now_ns)
        job.state = state
        job.waiting_since_ns = self.now_ns
        del self._running[job.job_id]

    def _decide(self) -> None:
        if self.policy.dynamic:
            self.policy.before_all(list(self._jobs_in_order()), self.now_ns)
        if self.policy.dynamic or self.policy.epoch != self._epoch:
            fresh_jobs = list(self._jobs_in_order())
            self._epoch = self.policy.epoch
        else:
            fresh_jobs = list(self._running.values()) if self.policy.drifts else []
        for job in fresh_jobs:
            self._leave(job)
        for job in fresh_jobs:
            self._rekey(job)
        if self.watch:
            self._see_keys(self.now_ns, "now")
        chosen = self._walk()
        for job in [j for j in self._running.values() if j.job_id not in chosen]:
            self._stop(job, JobState.SUSPENDED)
            job.preemptions += 1
            self.preemptions += 1
            self._touch(job)
        for job in [j for j in chosen.values() if j.job_id not in self._running]:
            self.waits_ns[job.job_id] = max(self.waits_ns.get(job.job_id, 0), job.waited_at(self.now_ns))
            job.state = JobState.RUNNING
            job.started_ns = self.now_ns
            if job.first_started_ns < 0:
                job.first_started_ns = self.now_ns
            self._running[job.job_id] = job
            self._touch(job)

    def _jobs_in_order(self) -> list[Job]:
        return [job for held in self._lists.values() for _, _, job in held]

    def _walk(self) -> dict[int, Job]:
        """The jobs that run: from scratch in the policy's order, taking whatever still fits."""
        free = self.gpus * 1000
        chosen: dict[int, Job] = {}
        if not self.policy.preempts:
            chosen.update(self._running)
            free -= sum(job.width_milli for job in chosen.values())
        heads = [(held[0], width, 0) for width, held in self._lists.items() if held]
        heapq.heapify(heads)
        while heads and free:
            (_, job_id, job), width, index = heapq.heappop(heads)
            if job_id not in chosen:
                if width > free:
                    if self.strict:
                        break
                    continue
                chosen[job_id] = job
                free -= width
            if index + 1 < len(self._lists[width]):
                heapq.heappush(heads, (self._lists[width][index + 1], width, index + 1))
        return chosen


def mean_jct_s(jobs: list[Job]) -> float:
    return sum(job.ended_ns - job.submitted_ns for job in jobs) / len(jobs) / SECOND_NS
