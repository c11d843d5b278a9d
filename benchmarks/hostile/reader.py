"""A user who reads as much as they are let: `reader TARGET`.

From SIGUSR1 it has WATCHES streams of WatchSlices with the shortest interval and LISTS calls of ListJobs in flight.
Each is made again when it is answered, or a moment later when it is refused. From SIGUSR2 it has none. It has JOBS held
jobs to list.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Awaitable, Callable

import grpc

from benchmarks.hostile import users
from benchmarks.hostile.attacker import BEGIN, END
from benchmarks.hostile.neighbour import held_job
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

WATCHES, LISTS, JOBS = 16, 100, 100
INTERVAL_MS = 1
REPORT_S = 0.05
REFUSED_PAUSE_S = 0.01
#: a connection each, as a user's many programs would have
OPTIONS = (("grpc.use_local_subchannel_pool", 1),)
Call = Callable[[grpc.aio.Channel], Awaitable[None]]


class Reader:
    """Its calls and what became of them."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._tasks: list[asyncio.Task[None]] = []
        self.counts = {"watched": 0, "listed": 0, "refused": 0}

    async def submit(self) -> None:
        """Raises grpc.RpcError."""
        async with grpc.aio.insecure_channel(self._target, options=OPTIONS) as channel:
            jobs = stubs.JobServiceStub(channel)
            for number in range(JOBS):
                await jobs.SubmitJob(pb.SubmitJobRequest(request_id=f"reader-{number}", spec=held_job(10)))

    def begin(self) -> None:
        self._tasks += [asyncio.create_task(self._repeat(self._watch)) for _ in range(WATCHES)]
        self._tasks += [asyncio.create_task(self._repeat(self._list)) for _ in range(LISTS)]

    def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    async def _repeat(self, call: Call) -> None:
        async with grpc.aio.insecure_channel(self._target, options=OPTIONS) as channel:
            while True:
                try:
                    await call(channel)
                except grpc.RpcError:
                    self.counts["refused"] += 1
                    await asyncio.sleep(REFUSED_PAUSE_S)

    async def _watch(self, channel: grpc.aio.Channel) -> None:
        request = pb.WatchSlicesRequest(interval_ms=INTERVAL_MS)
        async for _answer in stubs.SliceServiceStub(channel).WatchSlices(request):
            self.counts["watched"] += 1

    async def _list(self, channel: grpc.aio.Channel) -> None:
        await stubs.JobServiceStub(channel).ListJobs(pb.ListJobsRequest(page_size=500))
        self.counts["listed"] += 1


async def warm_up() -> None:
    """grpc imports what it needs when it needs it."""
    async with grpc.aio.insecure_channel("unix:/nonexistent") as channel:
        with contextlib.suppress(grpc.RpcError):
            await stubs.NodeServiceStub(channel).GetNode(pb.GetNodeRequest(), timeout=1.0)


async def read(target: str) -> None:
    """Until it is ended."""
    await warm_up()
    users.become(users.ATTACKER_UID)
    reader = Reader(target)
    await reader.submit()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(BEGIN, reader.begin)
    loop.add_signal_handler(END, reader.end)
    while True:
        users.say(**reader.counts)
        await asyncio.sleep(REPORT_S)


if __name__ == "__main__":
    asyncio.run(read(sys.argv[1]))
