"""All that the windows of one user show live: one stream of slices, and one of jobs while a window shows jobs.

However many windows a user has open, the daemon sends once, and each fragment of a page is rendered once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from vgpud.client import calls
from vgpud.console.live.data import Api
from vgpud.errors import CliError, ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: interval of the stream while a window is open, and while none is: the next page begins with what is there
SHOWN_MS, UNSEEN_MS = 1000, 5000
AWAY_S = 1.0
#: the stream of jobs stays open for this long after its last window
JOBS_LINGER_S = 60.0
#: ended jobs that are remembered from the stream
ENDED_KEPT_MAX = 20_000
#: events that are shown; more would be a log, which `vgpu events` has
EVENTS_MAX = 500
#: how old the course of the last hour, and what each user has used, may become while a window shows them
TRENDS_S = 30.0
_HOUR_NS, _DAY_NS = 3600 * 10**9, 86_400 * 10**9


class Board:
    """One user's view. open() before use."""

    def __init__(self, api: Api, unreachable: str = "") -> None:
        """`unreachable`: what to say when the daemon does not answer; "": what the client says."""
        self.api = api
        self._unreachable = unreachable
        self.slices: list[pb.Slice] = []
        self.devices: list[pb.Device] = []
        self.queues: list[pb.Queue] = []
        self.events: list[pb.Event] = []
        self.jobs: dict[int, pb.Job] = {}
        self.trend = pb.History()  # of the node, in the last hour
        self.usage: list[pb.Usage] = []  # of each user, in the last day
        self._trends_due_s = 0.0
        self._problems: dict[str, str] = {}  # by stream, why nothing new arrives
        self.tick = 0  # grows with every answer
        self.slices_tick = self.jobs_tick = 0
        self.used_s = time.monotonic()
        self._windows = 0
        self._job_windows = 0
        self._changed = asyncio.Event()
        self._jobs_loaded = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._jobs_task: asyncio.Task[None] | None = None
        self._slices_task: asyncio.Task[None] | None = None
        self._interval_ms = UNSEEN_MS
        self._loaded = asyncio.Event()
        self._awaited = {"_watch_slices", "_watch_queues", "_watch_events"}  # streams without an answer so far
        self._fragments: dict[object, tuple[object, bytes]] = {}

    # ---- life ----

    def open(self) -> None:
        self._slices_task = asyncio.create_task(self._forever(self._watch_slices))
        self._tasks = [asyncio.create_task(self._forever(work)) for work in (self._watch_queues, self._watch_events)]

    async def close(self) -> None:
        tasks = [task for task in (*self._tasks, self._jobs_task, self._slices_task) if task]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.api.close()

    async def _forever(self, work: Callable[[], AsyncIterator[None]]) -> None:
        """Repeats a stream whenever it ends; says why nothing arrives meanwhile."""
        name = work.__name__
        while True:
            try:
                async for _ in work():
                    self._problems.pop(name, None)
                    self._awaited.discard(name)
                    if not self._awaited:
                        self._loaded.set()
                    self.notify()
            except CliError as error:
                is_away = error.exit_code == ExitCode.UNREACHABLE
                self._problems[name] = (self._unreachable if is_away else "") or error.message
                self.notify()
            await asyncio.sleep(AWAY_S)

    @property
    def problem(self) -> str:
        """Why something shown is no longer new; "" = all is."""
        return next(iter(self._problems.values()), "")

    def notify(self) -> None:
        """What windows show has changed."""
        self.tick += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def _watch_slices(self) -> AsyncIterator[None]:
        async for answer in self.api.watch_slices(self._interval_ms):
            self.slices, self.devices = list(answer.slices), list(answer.devices)
            self.slices_tick += 1
            yield

    async def _watch_queues(self) -> AsyncIterator[None]:
        """Queues have no stream: they are asked for as often as windows show them."""
        while True:
            self.queues = await self.api.queues()
            yield
            await asyncio.sleep(2.0 if self._windows else 30.0)

    async def _watch_events(self) -> AsyncIterator[None]:
        self.events = (await self.api.events())[-EVENTS_MAX:]
        yield
        async for event in self.api.watch_events(self.events[-1].sequence if self.events else 0):
            self.events = [*self.events[-EVENTS_MAX + 1 :], event]
            yield

    async def _watch_jobs(self) -> AsyncIterator[None]:
        self.jobs = {}
        async for jobs in self.api.watch_jobs():
            for job in jobs:
                self.jobs[job.job_id] = job
            if len(self.jobs) > ENDED_KEPT_MAX:
                self._forget_ended()
            self.jobs_tick += 1
            self._jobs_loaded.set()
            yield

    def _forget_ended(self) -> None:
        ended = [job_id for job_id, job in self.jobs.items() if job.state in calls.ENDED]
        for job_id in ended[: len(self.jobs) - ENDED_KEPT_MAX]:
            del self.jobs[job_id]

    # ---- windows ----

    async def ready(self, timeout_s: float = 3.0) -> None:
        """Until slices, queues and events have come for the first time."""
        self.used_s = time.monotonic()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._loaded.wait(), timeout_s)

    async def ready_jobs(self, timeout_s: float = 5.0) -> None:
        """The same for jobs, whose stream starts now unless it runs."""
        self.used_s = time.monotonic()
        if self._jobs_task is None:
            self._jobs_loaded.clear()
            self._jobs_task = asyncio.create_task(self._jobs_while_shown())
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._jobs_loaded.wait(), timeout_s)

    async def load_trends(self) -> None:
        """What was used, unless it was asked for lately. A page has all else without it, so a daemon that does not say
        it is no problem of the page."""
        if time.monotonic() < self._trends_due_s:
            return
        self._trends_due_s = time.monotonic() + TRENDS_S
        now_ns = time.time_ns()
        with contextlib.suppress(CliError):
            self.trend = await self.api.history("node", "", now_ns - _HOUR_NS, now_ns)
        with contextlib.suppress(CliError):
            self.usage = await self.api.usage(now_ns - _DAY_NS, "user")

    async def _jobs_while_shown(self) -> None:
        watch = asyncio.create_task(self._forever(self._watch_jobs))
        try:
            unused_s = 0.0
            while unused_s < JOBS_LINGER_S:
                await asyncio.sleep(5.0)
                unused_s = 0.0 if self._job_windows else unused_s + 5.0
        finally:
            watch.cancel()
            self._problems.pop(self._watch_jobs.__name__, None)
            self._jobs_task = None

    @contextmanager
    def window(self, jobs: bool = False) -> Iterator[None]:
        """While a window is open that shows changes."""
        self._windows += 1
        self._job_windows += jobs
        self._set_interval()
        try:
            yield
        finally:
            self._windows -= 1
            self._job_windows -= jobs
            self.used_s = time.monotonic()
            self._set_interval()

    @property
    def windows(self) -> int:
        return self._windows

    def _set_interval(self) -> None:
        """Begins the stream again when the first window opens or the last one closes."""
        wanted = SHOWN_MS if self._windows else UNSEEN_MS
        if wanted != self._interval_ms:
            self._interval_ms = wanted
            if self._slices_task:
                self._slices_task.cancel()
                self._slices_task = asyncio.create_task(self._forever(self._watch_slices))

    async def wait_change(self, tick: int, timeout_s: float) -> int:
        """Waits for something later than this tick. Returns the present one."""
        if self.tick == tick:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), timeout_s)
        return self.tick

    async def shows_changes(self, old_tick: int, timeout_s: float = 1.0) -> None:
        """Until the slices are newer than `old_tick` (slices_tick): a change is sent at once."""
        until_s = time.monotonic() + timeout_s
        while self.slices_tick == old_tick and time.monotonic() < until_s:
            await self.wait_change(self.tick, max(0.0, until_s - time.monotonic()))

    def fragment(self, key: object, state: object, render: Callable[[], bytes]) -> bytes:
        """What render() makes, made once for all windows as long as the state is the same."""
        known = self._fragments.get(key)
        if known is None or known[0] != state:
            if len(self._fragments) > 256:
                self._fragments.clear()
            known = self._fragments[key] = (state, render())
        return known[1]

    # ---- look-ups ----

    def slice(self, name: str) -> pb.Slice | None:
        return next((item for item in self.slices if item.name == name), None)

    def device(self, uuid: str) -> pb.Device | None:
        return next((d for d in self.devices if uuid in (d.uuid, str(d.index))), None)

    @property
    def simulated_uuids(self) -> frozenset[str]:
        return frozenset(d.uuid for d in self.devices if d.simulated)

    @property
    def simulated_indices(self) -> frozenset[int]:
        return frozenset(d.index for d in self.devices if d.simulated)
