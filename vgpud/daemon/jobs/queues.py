"""The part of the composition root that knows queues: their users, what they hold, and the accounting.

Made by JobController; the machine decides on jobs, core/slices/queue_quota.py on slices that are made otherwise.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from vgpud.api.turns import breathe
from vgpud.core import events as ev
from vgpud.core.history.sampling import QueueBounds
from vgpud.core.jobs.facts import UsageRow
from vgpud.core.jobs.model import NEVER_NS, Job, JobState, QueueSpec
from vgpud.core.model import DEFAULT_QUEUE, Asker, Denied, Quota, Reason, Slice
from vgpud.core.policy.registry import NEW_QUEUE
from vgpud.core.queue.accounting import Counts, Ledger, Row, Sums, make_waiting_row
from vgpud.core.slices import queue_quota
from vgpud.core.slices.queue_quota import name_queues
from vgpud.daemon.slices.counters import Counters
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.store.jobs import JobStore, Kept
from vgpud.store.usage import INTEGER_MAX

#: states in which a job waits for its turn
WAITING = (JobState.PENDING, JobState.SUSPENDED)
#: the state in which only the job says what it requests: a suspended job has slices, whose rows say it
ASKS = JobState.PENDING
#: of the store, read in one go
ROWS_AT_ONCE = 50


class QueueRegistry:
    """The queues as the store has them, and the rows of the accounting. All raise StoreError where they write."""

    def __init__(
        self,
        machine: SliceMachine,
        counters: Counters,
        store: JobStore,
        saved_state: Kept,
        now_ns: Callable[[], int],
    ) -> None:
        self._machine = machine
        self._counters = counters
        self._store = store
        self._now_ns = now_ns
        given = {spec.name: (spec, members) for spec, members in saved_state.queues}
        # one that was removed before the end of its last job was kept: without it no daemon would ever start
        lost = {job.spec.queue for job in saved_state.jobs if not job.state.is_final}
        default = QueueSpec(DEFAULT_QUEUE, policy=NEW_QUEUE)
        missing = {name: (QueueSpec(name), ()) for name in sorted(lost - {DEFAULT_QUEUE})}
        self._queues = {DEFAULT_QUEUE: (default, ())} | missing | given
        self._ledger = Ledger()
        self._unsaved: dict[tuple[str, int], Row] = {}
        # copies: the machine changes its jobs
        self._waiting = {job.job_id: replace(job) for job in saved_state.jobs if job.state is ASKS}
        self._tell()
        for made in machine.state.slices.values():
            self._ledger.open(made, store.last_end(made.uid) or now_ns())

    # ---- queues ----

    @property
    def specs(self) -> tuple[QueueSpec, ...]:
        return tuple(spec for _, (spec, _) in sorted(self._queues.items()))

    def bounds(self) -> list[QueueBounds]:
        """As the history records them."""
        limits = {spec.name: 0 if spec.limit_milli >= NEVER_NS else spec.limit_milli for spec in self.specs}
        return [QueueBounds(q.name, q.parent, q.guarantee_milli, limits[q.name]) for q in self.specs]

    def members(self, name: str) -> tuple[str, ...]:
        return self._queues[name][1] if name in self._queues else ()

    def _tell(self) -> None:
        """The core's part: limits and members, for slices that are made otherwise."""
        known = self._queues.values()
        known_quotas = (Quota(spec.name, spec.parent, spec.limit_milli, members) for spec, members in known)
        self._machine.run(ev.QuotasChanged(tuple(known_quotas)))

    def choose(self, name: str, asker: Asker) -> str | Denied:
        """The queue of that name if the user may use it, or the user's default queue for ""."""
        return queue_quota.choose(self._machine.state.quotas, name, asker)

    def with_queue(self, spec: QueueSpec, members: Sequence[str]) -> tuple[QueueSpec, ...] | Denied:
        """All queues as they would be, for the machine to check."""
        for member in members:
            if wrong := queue_quota.member_refusal(member):
                return Denied(Reason.INVALID, wrong, field="members")
            for other, (_, theirs) in self._queues.items():
                if other != spec.name and member in theirs:
                    text = f"{member} has {other} as its default queue: take it out there first"
                    return Denied(Reason.PRECONDITION, text, field="members")
        return (*(known for known in self.specs if known.name != spec.name), spec)

    def set(self, spec: QueueSpec, members: Sequence[str]) -> None:
        self._store.save_queue(spec, members)
        self._queues[spec.name] = (spec, tuple(members))
        self._tell()

    def why_kept(self, name: str, jobs: int) -> Denied | None:
        """Why a queue cannot be deleted; `jobs` that have not ended are in it."""
        if name not in self._queues:
            return Denied(Reason.NOT_FOUND, f"no queue {name!r}: {name_queues(sorted(self._queues))}", "name")
        if name == DEFAULT_QUEUE:
            return Denied(
                Reason.PRECONDITION,
                f"queue {name} is that of all users without another queue: change it instead",
                "name",
            )
        children = [spec.name for spec in self.specs if spec.parent == name]
        there = [made for made in self._machine.state.slices.values() if made.queue == name]
        slices = [made.name for made in there if not made.origin.queue_job_id]
        for count, what, first in ((len(children), "queue(s)", children), (len(slices), "slice(s)", slices)):
            if count:
                text = f"queue {name} has {count} {what}, the first is {first[0]}: remove them first"
                return Denied(Reason.PRECONDITION, text, field="name")
        if jobs:
            text = f"queue {name} has {jobs} job(s) that have not ended: let them end or cancel them"
            return Denied(Reason.PRECONDITION, text, field="name")
        return None

    def delete(self, name: str) -> None:
        self._store.delete_queue(name)
        del self._queues[name]
        self._tell()

    # ---- the accounting ----

    def _read_counts(self, slice_: Slice) -> Counts:
        found = self._counters.of_slice(slice_)
        return Counts(
            sum(stats.charged_ns for stats in found),
            sum(stats.copy_to_device_bytes for stats in found),
            sum(stats.copy_from_device_bytes for stats in found),
        )

    def slice_changed(self, slice_: Slice) -> None:
        """The slice is new, or has other numbers from now on."""
        if self._ledger.knows(slice_.uid):
            self._keep(self._ledger.see(slice_, self._read_counts(slice_), self._now_ns()))
        else:
            self._ledger.open(slice_, self._now_ns(), self._read_counts(slice_))

    def slice_goes(self, slice_: Slice) -> None:
        """Its last counters are still there."""
        if self._ledger.knows(slice_.uid):
            self._keep(self._ledger.close(slice_, self._read_counts(slice_), self._now_ns()))

    def job_changed(self, job: Job) -> None:
        """Counts the time that the job has waited; to be called whenever it is saved."""
        before = self._waiting.pop(job.job_id, None)
        if before:
            until_ns = job.ended_ns if job.state.is_final else self._now_ns()
            if job.state is ASKS and job.waiting_since_ns == before.waiting_since_ns:
                until_ns = before.waiting_since_ns  # it is still waiting
            if row := make_waiting_row(before, until_ns):
                self._keep(row)
        if job.state is ASKS:
            self._waiting[job.job_id] = replace(job)

    def _keep(self, row: Row) -> None:
        self._unsaved[row.slice_uid, row.begin_ns] = row

    @property
    def unsaved_rows(self) -> list[Row]:
        return list(self._unsaved.values())

    def mark_saved(self) -> None:
        self._unsaved.clear()

    def save(self) -> None:
        """Brings the rows up to now and writes those that have grown."""
        self._see_all()
        self._store.save_rows(self.unsaved_rows)
        self.mark_saved()

    def _see_all(self) -> None:
        now_ns = self._now_ns()
        for made in self._machine.state.slices.values():
            if self._ledger.knows(made.uid):
                self._keep(self._ledger.see(made, self._read_counts(made), now_ns))

    async def usage(
        self, since_ns: int, until_ns: int, by: str, uid: int | None, jobs: Sequence[Job]
    ) -> list[UsageRow]:
        """Sums over that time; `jobs`: those that have not ended. Other calls are served while this reads."""
        self._see_all()
        now_ns = self._now_ns()
        until_ns = min(until_ns, now_ns)
        found = Sums(by, since_ns, until_ns)
        fresh = dict(self._unsaved)  # of the slices that are there: they may grow in the store meanwhile
        waits = [make_waiting_row(job, now_ns) for job in jobs if job.state is ASKS]
        for row in (*fresh.values(), *waits):
            if row and uid in (None, row.uid):
                found.add(row)
            await breathe()
        async for row in self._kept_rows(since_ns):
            if uid in (None, row.uid) and (row.slice_uid, row.begin_ns) not in fresh:
                found.add(row)
        known = {job.job_id: job for job in jobs if uid in (None, job.spec.uid)}
        if by == "job":
            async for job in self._ended_jobs(since_ns, until_ns, uid):
                known.setdefault(job.job_id, job)
        made = []
        for one in found.rows(known):
            made.append(one)
            await breathe()
        return made

    async def _kept_rows(self, since_ns: int) -> AsyncIterator[Row]:
        """The store's, from that time on."""
        at = since_ns, INTEGER_MAX
        while part := self._store.rows_from(*at, ROWS_AT_ONCE):
            for _, row in part:
                yield row
            at = part[-1][1].end_ns, part[-1][0]
            await breathe()

    async def _ended_jobs(self, since_ns: int, until_ns: int, uid: int | None) -> AsyncIterator[Job]:
        at = since_ns, INTEGER_MAX
        while part := self._store.ended_from(*at, ROWS_AT_ONCE):
            for owner, job in part:
                if job.submitted_ns < until_ns and uid in (None, owner):
                    yield job
            at = part[-1][1].ended_ns, part[-1][1].job_id
            await breathe()

    def of_job(self, job_id: int) -> tuple[int, int]:
        """(granted, used) of a job so far, milli-GPU x ns."""
        rows = {(row.slice_uid, row.begin_ns): row for row in self._store.rows_of(job_id)}
        rows |= {key: row for key, row in self._unsaved.items() if row.job_id == job_id}
        return sum(row.granted for row in rows.values()), sum(row.used for row in rows.values())
