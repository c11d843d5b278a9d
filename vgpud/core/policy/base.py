"""The interface of policies: they order jobs and say when that order changes by itself; they know nothing of capacity
or quotas."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol

from vgpud.core.jobs.model import NEVER_NS, Job

Key = tuple[int, ...]


class Policy(Protocol):
    """Orders the jobs of one queue, waiting and running alike. Integers only, so that two runs are equal."""

    #: as users write it, with its parameters
    name: str
    #: a waiting job may preempt running ones behind it
    preempts: bool
    #: keys depend on other jobs or on time: the queue is sorted again at every decision
    dynamic: bool
    #: the second part of running jobs' keys falls with time, by pace() (those of waiting ones do not)
    drifts: bool
    #: dynamic, and its waiting jobs are in lanes (queue/lanes.py)
    has_lanes: bool
    #: grows when all keys may have changed, because the policy has learnt: they are computed again, part by part
    epoch: int
    #: a job may be preempted that will have to start again. False: where jobs cannot be stopped otherwise, none is
    restarts: bool
    #: grows whenever what it has learnt has changed
    knowledge_version: int

    def key(self, job: Job, now_ns: int) -> Key:
        """Least first. Between equals the machine goes by job_id. Not dynamic: holds until one of the calls below."""
        ...

    def pace(self, job: Job) -> int:
        """Where it drifts: by how much the second part of a running job's key falls in a ns, until changes_at()."""
        ...

    def changes_at(self, job: Job, now_ns: int) -> int:
        """When the key of this job changes if it stays as it is (running or waiting); NEVER_NS for never."""
        ...

    def touch(self, job: Job, now_ns: int) -> None:
        """Its state has just changed, or changes_at() is reached: updates levels and promotions."""
        ...

    def record_end(self, job: Job) -> None:
        """It is over, in whatever way (its state): policies that learn do it here, and forget the job."""
        ...

    def before_all(self, jobs: list[Job], now_ns: int) -> None:
        """Of dynamic policies: what is the same for all keys of this decision."""
        ...

    def update(self, changed_jobs: list[Job], gone_ids: list[int], now_ns: int) -> Iterable[tuple[int, Key]]:
        """Where it has lanes: the same as before_all(), by what has changed since the last decision: jobs that came to
        the queue, began to run or to wait; jobs that left. Returns (job_id, key) of running jobs whose keys may be
        others now."""
        ...

    def lane(self, job: Job) -> tuple[Hashable, Key]:
        """Where it has lanes: that of a waiting job, and its place there, least first."""
        ...

    def bound(self, lane: Hashable, place: Key, key: Key, now_ns: int) -> Key:
        """Where it has lanes: no job behind this place has a smaller key. `key`: of the job at this place."""
        ...

    def describe(self, job: Job, now_ns: int) -> str:
        """What its place follows from, in words that continue "job 7"; "" = no more than the policy's name."""
        ...

    def knowledge(self) -> dict[str, Any] | None:
        """What it has learnt, as JSON values; None: it learns nothing."""
        ...

    def restore_knowledge(self, knowledge: Mapping[str, Any]) -> None:
        """Takes over what a policy of the same name has learnt, before it sees any job. Raises ValueError: it cannot be
        that, and nothing is taken over."""
        ...


class Plain:
    """What most policies have in common: they preempt, keys hold until the job's state changes, nothing is learnt."""

    name = ""
    preempts = True
    dynamic = False
    drifts = False
    has_lanes = False
    epoch = 0
    restarts = True
    knowledge_version = 0

    def pace(self, job: Job) -> int:
        return 0

    def changes_at(self, job: Job, now_ns: int) -> int:
        return NEVER_NS

    def touch(self, job: Job, now_ns: int) -> None:
        return

    def record_end(self, job: Job) -> None:
        return

    def before_all(self, jobs: list[Job], now_ns: int) -> None:
        return

    def update(self, changed_jobs: list[Job], gone_ids: list[int], now_ns: int) -> Iterable[tuple[int, Key]]:
        return ()

    def lane(self, job: Job) -> tuple[Hashable, Key]:
        return 0, ()

    def bound(self, lane: Hashable, place: Key, key: Key, now_ns: int) -> Key:
        return ()

    def describe(self, job: Job, now_ns: int) -> str:
        return ""

    def knowledge(self) -> dict[str, Any] | None:
        return None

    def restore_knowledge(self, knowledge: Mapping[str, Any]) -> None:
        return
