"""Runs tenants on a private system, without a hook or in slices, and observes them for a while.

The rows say what runs, most of the time tenants/load.c; this starts the programs, waits until all are at work, lets the
warm-up pass, and takes the device's busy log, the programs' reports and their latencies for exactly the measured time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import psutil

from benchmarks import harness
from benchmarks.sharing.measure import (
    Histogram,
    ProcessorTime,
    completed_between,
    share,
    spans_by_tenant,
    spans_of_work,
    stolen_windows,
    window_shares,
)
from benchmarks.sharing.plain import Plain, Portion, options
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError, wait_for
from vgpud.client import calls
from vgpud.simdevice.busy_log import SECOND_NS, STEP_NS, WINDOW_NS, Span, read_busy_log
from vgpud.simdevice.process import environment

WARM_UP_S = 2.0
#: the simulated device writes its log at most some 10 ms late, and a report after the end closes the last interval
SETTLE_S = 0.3
START_TIMEOUT_S = 150.0  # a trainer compiles first
END_TIMEOUT_S = 20.0
#: how often a load reports where shares are worked out from its reports
REPORT_MS = 5


#: compiles a program of benchmarks/tenants/ once
built = functools.cache(harness.build)


class Program(Portion, Protocol):
    """What runs in a slice (fractions of the device)."""

    @property
    def latency(self) -> bool: ...
    @property
    def warm_up_s(self) -> float:
        """How long it runs before it is measured."""
        ...

    @property
    def env(self) -> Mapping[str, str]:
        """What its environment has besides."""
        ...

    @property
    def times_bursts(self) -> bool:
        """Whether it measures latencies from SIGUSR1 to SIGUSR2 and writes them to a file."""
        ...

    def command(self, rng: random.Random, seconds: int, histogram: Path) -> list[str]:
        """The command line of one of its processes, which runs for so long unless SIGTERM ends it."""
        ...

    def work(self, line: Mapping[str, Any]) -> tuple[int, int] | None:
        """Work issued and completed, as a line of its output says it; None while it is not at work yet."""
        ...


@dataclass(frozen=True)
class Tenant:
    """A slice (fractions of the device) and the load in each of its processes; see tenants/load.c for the options."""

    name: str
    minimum: float
    maximum: float
    kernel_us: int = 200
    burst: int = 16
    depth: int = 3
    gap_us: int = 0
    period_us: int = 0
    active_ms: int = 0
    idle_ms: int = 0
    streams: int = 1
    graph: bool = False
    processes: int = 1
    latency: bool = False  # its slice is of the latency class
    warm_up_s: float = WARM_UP_S

    @property
    def env(self) -> Mapping[str, str]:
        return {}

    @property
    def times_bursts(self) -> bool:
        return True

    @property
    def unbroken(self) -> Tenant:
        """The same kernels without a pause in one process with a device to itself."""
        return dataclasses.replace(
            self, minimum=1, maximum=1, gap_us=0, period_us=0, active_ms=0, idle_ms=0, processes=1
        )

    @property
    def queued_ms(self) -> float:
        """Device time that it keeps queued at most."""
        return self.processes * self.depth * self.burst * self.kernel_us / 1000

    def options(self, rng: random.Random) -> list[str]:
        """Options of load.c. The seed moves the burst where it is only a way of feeding the device."""
        has_options = self.gap_us or self.period_us or self.graph or self.streams > 1
        burst = self.burst if has_options else max(1, self.burst + rng.randint(-self.burst // 4, self.burst // 4))
        pairs = {
            "--kernel-us": self.kernel_us,
            "--burst": burst,
            "--depth": self.depth,
            "--gap-us": self.gap_us,
            "--period-us": self.period_us,
            "--active-ms": self.active_ms,
            "--idle-ms": self.idle_ms,
            "--streams": self.streams if self.streams > 1 else 0,
            "--graph": int(self.graph),
        }
        return [word for name, value in pairs.items() if value for word in (name, str(value))]

    def command(self, rng: random.Random, seconds: int, histogram: Path) -> list[str]:
        words = ["--seconds", str(seconds), "--histogram", str(histogram)]
        return [str(built("tenants/load.c")), *self.options(rng), *words]

    def work(self, line: Mapping[str, Any]) -> tuple[int, int] | None:
        return line["issued"], line["completed"]


@dataclass
class Process:
    """One running program: its reports so far."""

    program: Program
    part: Part
    histogram: Path
    pid: int = 0
    issued_work: int = 0
    points: list[tuple[int, int]] = field(default_factory=list)
    phases: list[tuple[int, str]] = field(default_factory=list)

    def poll(self) -> None:
        """Reads new lines. Raises PartError when the program has ended by itself."""
        self.read()
        self.part.check()

    def read(self) -> None:
        """Reads new lines."""
        for line in self.part.lines():
            work = self.program.work(line)
            if work is None:
                continue
            self.pid, self.issued_work = line["pid"], work[0]
            self.points.append((line["time_ns"], work[1]))
            if line["event"] in ("idle", "active"):
                self.phases.append((line["time_ns"], line["event"]))

    @property
    def lost_work(self) -> float:
        """Work that it issued and that never completed; infinite when it has failed. Known when it has ended."""
        return float("inf") if self.part.process.returncode else self.issued_work - self.points[-1][1]

    def ready(self) -> bool:
        self.poll()
        return self.pid != 0

    def time_bursts(self, begin: bool) -> None:
        """Latencies count from here on, or no more."""
        if self.program.times_bursts:
            os.kill(self.pid, signal.SIGUSR1 if begin else signal.SIGUSR2)

    def read_histogram(self) -> Histogram:
        if not self.program.times_bursts:
            return Histogram(())
        raw = json.loads(self.histogram.read_text())
        return Histogram(tuple((upper_ns, count) for upper_ns, count in raw["buckets"]), raw["skipped"])


@dataclass(frozen=True)
class Observed:
    """What happened in [begin_ns, end_ns), by tenant."""

    begin_ns: int
    end_ns: int
    spans: dict[str, list[Span]]
    completed: dict[str, float]  # kernels, or what else its program counts
    latencies: dict[str, list[Histogram]]
    phases: dict[str, list[tuple[int, str]]]
    lost_work: dict[str, float] = field(default_factory=dict)  # of its work, over the whole life of its programs
    notes: Any = None  # what was done to the tenants meanwhile, as JSON
    machine: Mapping[str, float] = field(default_factory=dict)  # how much of its processors was idle, or stolen, 0..1
    processors: list[ProcessorTime] = field(default_factory=list)  # every 0.1 s of the measured time

    def share(self, name: str) -> float:
        """Share of the device over the whole time, 0..1."""
        return share(self.spans[name], self.begin_ns, self.end_ns)

    def shares(self) -> dict[str, float]:
        return {name: self.share(name) for name in self.spans}

    def windows(self, name: str, window_ns: int = WINDOW_NS) -> list[float]:
        """Share in each window, sliding by 100 ms."""
        return window_shares(self.spans[name], self.begin_ns, self.end_ns, window_ns)

    def stolen(self, window_ns: int = WINDOW_NS) -> list[float]:
        """Which part of the machine's processors' time its host took in each of these windows, 0..1."""
        found = stolen_windows(self.processors, self.begin_ns, self.end_ns, window_ns)
        return found or [0.0] * len(range(self.begin_ns, self.end_ns - window_ns + 1, STEP_NS))

    def as_json(self) -> dict[str, Any]:
        """All of it, for observed_of_json()."""
        return dataclasses.asdict(dataclasses.replace(self, spans={})) | {
            "spans": {name: [(s.begin_ns, s.end_ns, s.pid) for s in spans] for name, spans in self.spans.items()}
        }


def observed_of_json(data: Mapping[str, Any]) -> Observed:
    """What as_json() was made of."""

    def histogram(raw: Mapping[str, Any]) -> Histogram:
        return Histogram(tuple((upper_ns, count) for upper_ns, count in raw["buckets"]), raw["skipped_periods"])

    again = {
        "spans": {name: [Span(*span) for span in spans] for name, spans in data["spans"].items()},
        "latencies": {name: [histogram(one) for one in several] for name, several in data["latencies"].items()},
        "phases": {name: [(at_ns, phase) for at_ns, phase in phases] for name, phases in data["phases"].items()},
        "processors": [ProcessorTime(**sample) for sample in data["processors"]],
    }
    return Observed(**{**data, **again})


@dataclass(frozen=True)
class Running:
    """The measured time as it begins, for a function that does something to the tenants meanwhile."""

    own: OwnSystem
    slices: Mapping[str, str]  # tenant -> the name of its slice
    begin_ns: int
    end_ns: int
    given_up: threading.Event

    def wait_until(self, time_ns: int) -> None:
        """Raises PartError when the run has been given up."""
        if self.given_up.wait(max(0, time_ns - time.monotonic_ns()) / SECOND_NS):
            raise PartError("the run was given up")


#: what it returns is the run's `noted`: JSON
Meanwhile = Callable[[Running], Any]


def wait_for_devices(own: OwnSystem) -> None:
    """Until the daemon has seen the unhooked programs of the run before go: it leaves them the memory that they had.

    Real devices may have strangers for good. No daemon is asked where it was killed to see how programs coast.
    """

    def clear() -> bool:
        with own.client() as client:
            return not any(device.taken_by for device in client.all(calls.devices()))

    if own.is_simulated and own.daemon and own.daemon.running:
        wait_for("the device without programs outside slices", clear, START_TIMEOUT_S)


class Bench:
    """One private system; runs observations on it one after the other.

    is_shipped: whether the device is as it is shipped; the plain ways run only there. by_work: shares come from
    completed work, against the same work alone on the device without a hook, and not from the device's own log.
    """

    def __init__(self, own: OwnSystem, seconds: float, is_shipped: bool, by_work: bool = False) -> None:
        self.is_shipped = is_shipped
        self._own = own
        self._seconds = seconds
        self._by_work = by_work
        self._costs_ns: dict[Program, float] = {}
        self._runs = 0

    def observe(
        self,
        tenants: Sequence[Program],
        *,
        is_hooked: bool,
        seed: int,
        side_task: Meanwhile | None = None,
        plain: Plain | None = None,
    ) -> Observed:
        """Runs the tenants for the warm-up and the measured time. Raises PartError when one of them fails.

        side_task: called in a thread of its own when the measured time begins; what it raises is raised here.
        plain: without a hook the tenants may keep each other apart in one of the plain ways.
        """
        costs_ns = {tenant.name: self._cost_ns(tenant) for tenant in tenants} if self._by_work else {}
        before = psutil.cpu_times()
        started, begin_ns, end_ns, noted, processors = self._run(tenants, is_hooked, seed, side_task, plain)
        machine = quietness(before, psutil.cpu_times())
        if self._by_work:
            spans = {
                name: [s for process in several for s in spans_of_work(process.points, costs_ns[name], process.pid)]
                for name, several in started.items()
            }
        else:
            pids = {name: [process.pid for process in several] for name, several in started.items()}
            spans = spans_by_tenant(read_busy_log(self._own.busy_log()), pids)
        inside = {
            name: [s for s in mine if s.end_ns > begin_ns and s.begin_ns < end_ns] for name, mine in spans.items()
        }
        return Observed(
            begin_ns,
            end_ns,
            inside,
            {name: _completed(several, begin_ns, end_ns) for name, several in started.items()},
            {name: [process.read_histogram() for process in several] for name, several in started.items()},
            {name: [at for process in several for at in process.phases] for name, several in started.items()},
            {name: sum(process.lost_work for process in several) for name, several in started.items()},
            noted,
            machine,
            processors,
        )

    def _cost_ns(self, program: Program) -> float:
        """Device time of a unit of the program's work: how long one takes when it is alone; measured once."""
        alone = program.unbroken if isinstance(program, Tenant) else program
        if alone not in self._costs_ns:
            started, begin_ns, end_ns, *_ = self._run([alone], False, 1, None, None)
            self._costs_ns[alone] = (end_ns - begin_ns) / _completed(started[alone.name], begin_ns, end_ns)
        return self._costs_ns[alone]

    def _run(
        self, tenants: Sequence[Program], is_hooked: bool, seed: int, side_task: Meanwhile | None, plain: Plain | None
    ) -> tuple[dict[str, list[Process]], int, int, Any, list[ProcessorTime]]:
        """The tenants' processes, ended again, the measured time, what was noted meanwhile, and processors' time."""
        self._runs += 1
        rng = random.Random(seed)
        more = options(plain, tenants)
        started: dict[str, list[Process]] = {}
        if is_hooked:
            wait_for_devices(self._own)
        try:
            for tenant in rng.sample(list(tenants), len(tenants)):
                started[tenant.name] = self._start(tenant, is_hooked, more[tenant.name], rng)
                time.sleep(rng.uniform(0, 0.1))
            everyone = [process for several in started.values() for process in several]
            wait_for("the tenants", lambda: all(process.ready() for process in everyone), START_TIMEOUT_S)
            slices = {tenant.name: self._slice_name(tenant) for tenant in tenants}
            begin_ns, end_ns, noted, processors = self._measure(everyone, slices, side_task)
        finally:
            self._end([process for several in started.values() for process in several])
        for several in started.values():
            for process in several:
                process.read()
        return started, begin_ns, end_ns, noted, processors

    def _slice_name(self, tenant: Program) -> str:
        return f"{tenant.name}-{self._runs}"

    def _start(self, tenant: Program, is_hooked: bool, options: Sequence[str], rng: random.Random) -> list[Process]:
        """All processes of a tenant: the first makes the slice, the others join it."""
        own, several = self._own, []
        slice_name = self._slice_name(tenant)
        for index in range(tenant.processes):
            name = f"{slice_name}-{index}"
            histogram = own.folder / f"{name}.histogram"
            command = [*tenant.command(rng, int(self._seconds) + 120, histogram), *options]
            if self._by_work and isinstance(tenant, Tenant):
                command += ["--report-ms", str(REPORT_MS)]
            if is_hooked:
                amounts = ["--gpus", f"{tenant.minimum:g}", "--max", f"{tenant.maximum:g}"] if index == 0 else []
                if index == 0 and tenant.latency:
                    amounts += ["--class", "latency"]
                part = own.run(slice_name, amounts, command, tenant.env)
            else:
                env = environment(own.sim_dir, own.env) if own.is_simulated else own.env
                part = Part(name, command, {**env, **tenant.env}, own.folder)
                own.tenants.append(part)
            several.append(Process(tenant, part, histogram))
            if is_hooked and tenant.processes > 1 and index == 0:
                wait_for("the slice's first program", several[0].ready, START_TIMEOUT_S)
        return several

    def _measure(
        self, everyone: Sequence[Process], slices: Mapping[str, str], side_task: Meanwhile | None
    ) -> tuple[int, int, Any, list[ProcessorTime]]:
        processors: list[ProcessorTime] = []

        def wait_until(time_ns: int) -> None:
            while (left_ns := time_ns - time.monotonic_ns()) > 0:
                time.sleep(min(STEP_NS, left_ns) / SECOND_NS)
                processors.append(processor_time())
                for process in everyone:
                    process.poll()

        begin_ns = time.monotonic_ns() + int(max(process.program.warm_up_s for process in everyone) * SECOND_NS)
        end_ns = begin_ns + int(self._seconds * SECOND_NS)
        wait_until(begin_ns)
        for process in everyone:
            process.time_bursts(True)
        running = Running(self._own, slices, begin_ns, end_ns, threading.Event())
        with ThreadPoolExecutor(1) as aside:
            future = aside.submit(side_task, running) if side_task else None
            try:
                wait_until(end_ns)
            except BaseException:  # the executor waits for the thread
                running.given_up.set()
                raise
        noted = future.result() if future else None
        for process in everyone:
            process.time_bursts(False)
        wait_until(end_ns + int(SETTLE_S * SECOND_NS))
        return begin_ns, end_ns, noted, processors

    def _end(self, everyone: Sequence[Process]) -> None:
        for process in everyone:
            if process.part.running and process.pid:
                with contextlib.suppress(ProcessLookupError):  # it may just have failed: that is reported elsewhere
                    os.kill(process.pid, signal.SIGTERM)
        for process in everyone:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.part.process.wait(END_TIMEOUT_S if process.pid else 0)
            process.part.stop()
            self._own.tenants.remove(process.part)


def quietness(base: Any, after: Any) -> dict[str, float]:
    """Which parts of its processors' time the machine was idle, and did not have at all, between psutil.cpu_times()."""
    passed = {name: getattr(after, name) - getattr(base, name) for name in after._fields if "guest" not in name}
    total = sum(passed.values()) or 1.0
    return {"idle": passed["idle"] / total, "stolen": passed.get("steal", 0.0) / total}


def processor_time() -> ProcessorTime:
    """Of now."""
    now_ns, times = time.monotonic_ns(), psutil.cpu_times()
    total_s = sum(getattr(times, name) for name in times._fields if "guest" not in name)
    return ProcessorTime(now_ns, total_s, getattr(times, "steal", 0.0))


def _completed(several: Sequence[Process], begin_ns: int, end_ns: int) -> float:
    return sum(completed_between(process.points, begin_ns, end_ns) for process in several)


@contextlib.contextmanager
def open_bench(
    seconds: float,
    kernels_us: Sequence[int],
    switch_us: int | None = None,
    real: bool = False,
    by_work: bool = False,
    config: Sequence[str] = (),
) -> Iterator[Bench]:
    """A system of one device: the real one, or one simulated. switch_us: what a change of context costs the simulated
    one (None: as shipped). The real one keeps no log. config: lines of the daemon's configuration.
    """
    device = harness.one_device()
    if switch_us is not None:
        device["switch_us"] = str(switch_us)
    with harness.system(None if real else device, config, kernels_us) as own:
        yield Bench(own, seconds, switch_us is None, by_work or real)
