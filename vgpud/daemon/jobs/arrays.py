"""Arrays of many jobs are submitted and cancelled a part at a time, so that no request waits for all of one.

An array is there as a whole or not at all. Its jobs are written part by part, and none starts meanwhile. Last is the
part with its first job, whose row alone says what the array runs; a daemon that was killed before has left jobs that
refer to a row which is not there, and they are removed when the store is opened (store/quarantine.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import TypeVar

from vgpud.api.turns import charge_work
from vgpud.core.jobs.events import ArrayThere, Cancelled, Submitted
from vgpud.core.jobs.facts import Submission
from vgpud.core.jobs.model import JobState
from vgpud.daemon.jobs.controller import JobController
from vgpud.errors import StoreError
from vgpud.store.jobs import Request

T = TypeVar("T")

#: jobs that are decided on and written before others' requests are answered: some milliseconds
PART_JOBS = 25


class Arrays:
    """The arrays that are being submitted or cancelled. `to_come`: by user, jobs that the queue does not know yet."""

    def __init__(self, jobs: JobController) -> None:
        self._jobs = jobs
        self._under_way: dict[tuple[int, str], asyncio.Task[StoreError | None]] = {}
        self.to_come: Counter[int] = Counter()

    async def wait_for_same(self, uid: int, request_id: str) -> None:
        """Until no submission of the user with this id is under way."""
        while request_id and (task := self._under_way.get((uid, request_id))):
            await asyncio.wait([task])

    async def submit(self, submission: Submission, request: Request) -> StoreError | None:
        """All of the array or nothing, also where the client has gone meanwhile. Returns why nothing."""
        self.to_come[request.uid] += len(request.job_ids)
        task = self._jobs.spawn(_run(charge_work(self._submit(submission, request))))
        if request.request_id:
            key = request.uid, request.request_id
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key))
        return await asyncio.shield(task)

    async def _submit(self, submission: Submission, request: Request) -> StoreError | None:
        jobs, ids, spec, at_ns = self._jobs, request.job_ids, submission.spec, self._jobs.clock.now_ns()
        indices = submission.indices or tuple(range(spec.index, spec.index + len(ids)))
        kept = request if request.request_id else None
        entered: list[int] = []
        try:
            for begin in [*range(PART_JOBS, len(ids), PART_JOBS), 0]:
                part, began_s = slice(begin, begin + PART_JOBS), time.monotonic()
                if denied := jobs.machine.check(spec, len(ids[part])):  # its queue may have gone meanwhile
                    raise StoreError(denied.message)
                event = Submitted(ids[part], spec, submission.held, indices[part], ids[0], at_ns)
                jobs.process_events(event, request=None if begin else kept)
                entered += ids[part]
                self.to_come[request.uid] -= len(ids[part])
                await jobs.saver.wait_until_written(ids[part])
                await _let_others_go(began_s)
            await jobs.saver.on_disk(ids)
        except StoreError as error:
            await self._cancel(entered, "it could not be saved")
            # a repeated request must not be answered with these
            jobs.process_events(ArrayThere(ids), request=replace(kept, until_ns=0) if kept else None)
            return error
        finally:
            self.to_come[request.uid] -= len(ids) - len(entered)
        for begin in range(0, len(ids), PART_JOBS):
            began_s = time.monotonic()
            jobs.process_events(ArrayThere(ids[begin : begin + PART_JOBS]))
            await _let_others_go(began_s)
        return None

    async def cancel(self, job_ids: Sequence[int], why: str) -> None:
        """Those that have not ended, also where the client has gone meanwhile."""
        await asyncio.shield(self._jobs.spawn(_run(charge_work(self._cancel(job_ids, why)))))

    async def _cancel(self, job_ids: Sequence[int], why: str) -> None:
        """The last ones first, and those that run behind the others: none starts for one that ends."""
        known = self._jobs.machine.jobs
        running = [i for i in job_ids if i in known and known[i].state is JobState.RUNNING]
        order = [*sorted(set(job_ids) - set(running), reverse=True), *running]
        for begin in range(0, len(order), PART_JOBS):
            began_s = time.monotonic()
            part = [i for i in order[begin : begin + PART_JOBS] if i in known and not known[i].state.is_final]
            self._jobs.process_events(*(Cancelled(i, why) for i in part))
            with contextlib.suppress(StoreError):  # they end all the same; it is tried again, and reported at the end
                await self._jobs.saver.wait_until_written(part)
            await _let_others_go(began_s)


async def _let_others_go(began_s: float) -> None:
    """For as long as the part took: a call needs several turns of the loop, so one turn between two parts would have it
    wait for as many parts."""
    await asyncio.sleep(time.monotonic() - began_s)


async def _run(work: Awaitable[T]) -> T:
    return await work
