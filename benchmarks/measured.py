"""Programs of tenants/measured.h, run on simulated devices without a hook, on slower devices, and in a slice.

A slice's maximum makes a program slower, and how much is legitimate is the question here. It takes at least what it
takes without a hook, and its device time over the maximum. Where it computes now more, now less than its maximum, that
is not enough, for what it may save up is little (15 ms of device time, SAVED_S). Two ways show what is: its run without
a hook, replayed with each moment of computing delayed until there is device time for it; and a run without a hook on
devices whose kernels are longer by one over the maximum. The first delays everything where one stream would wait, the
second knows nothing of what is saved: the shorter one counts.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks import harness
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem, PartError
from vgpud.client import calls
from vgpud.libraries import environment
from vgpud.simdevice.busy_log import RECORD, Span, parse_busy_log
from vgpud.simdevice.process import SimulatedDevice
from vgpud.v1alpha1 import vgpud_pb2 as pb

DEVICES = 2
#: exit code of a program that was not done after its limit
STUCK = 3
#: the device writes its log at most some 10 ms late
SETTLE_S = 0.05
#: how long a program in a slice stays when its work is done: what a slice has used is at most a tenth of a second old
STAY_MS = 300
#: above this ratio to the simple reference, the slower device is asked what is legitimate
SLOWER_FROM = 1.1
#: device time that a slice may save up, of a whole device: arbiter.cap_depth_ns
SAVED_S = 0.015
#: what a run may compute beyond its maximum: what was saved and what is queued when a gate closes; and a part of all
BEYOND_S = 0.02
BEYOND_PART = 0.05
_KILL_AFTER_S = 10.0


@functools.cache
def build(source: str, *sources: str) -> Path:
    """Compiles a program of benchmarks/tenants/ that includes measured.h, of these files."""
    others = [str(harness.ROOT / "benchmarks" / name) for name in sources]
    driver = str(paths.sim_lib_dir() / "libcuda.so.1")
    return harness.build(source, *others, "-iquote", str(harness.ROOT / "shim"), driver)


def write_model(path: Path, lengths_us: Sequence[int], slowness: float = 1) -> Path:
    """Kernels spin_N of these lengths, and `waves`, whose time is in its grid; all longer by this factor."""
    rules = [f"^spin_{us}$  us={us * slowness:g}  wave_us=0" for us in lengths_us]
    rules.append(f"^waves$  us={2 * slowness:g}  wave_us={2 * slowness:g}")
    path.write_text("\n".join([*rules, harness.SHIPPED_MODEL.read_text()]))
    return path


@dataclass(frozen=True)
class Outcome:
    """One run. devices: how many it used; device_s: by device, what it computed from its start to its end, by the log.

    got_pp: in a slice, what the slice is said to have used, minus the log, in points of the elapsed time. stuck_text:
    what the program said about it; "": it ended. busy: by device, when it computed, in seconds from its start, by time.
    """

    seconds: float
    devices: int
    device_s: tuple[float, ...]
    got_pp: float | None = None
    stuck_text: str = ""
    busy: tuple[tuple[tuple[float, float], ...], ...] = ()


def replay_s(run: Outcome, maximum: float) -> float:
    """How long a run without a hook takes when no device computes for more than its maximum and what was saved."""
    times = sorted({0.0, run.seconds, *(at for spans in run.busy for span in spans for at in span)})
    saved = [SAVED_S * maximum] * len(run.busy)
    at = [0] * len(run.busy)  # the first span that is not over
    total_s = 0.0
    for begin, end in pairwise(one for one in times if 0 <= one <= run.seconds):
        computes = []
        for index, spans in enumerate(run.busy):
            while at[index] < len(spans) and spans[at[index]][1] <= begin:
                at[index] += 1
            computes.append(at[index] < len(spans) and spans[at[index]][0] <= begin)
        length_s = end - begin
        needs_s = [(length_s - has_s) / maximum for has_s, busy in zip(saved, computes, strict=True) if busy]
        takes_s = max([length_s, *needs_s])
        saved = [
            min(SAVED_S * maximum, has_s + takes_s * maximum - length_s * busy)
            for has_s, busy in zip(saved, computes, strict=True)
        ]
        total_s += takes_s
    return total_s


@dataclass(frozen=True)
class Comparison:
    """A run in a slice with a maximum, and what it is compared with; slower_s: on the slower device, if that ran."""

    maximum: float
    unhooked_s: float
    run: Outcome
    replayed_s: float = 0
    slower_s: float | None = None

    @property
    def least_s(self) -> float:
        """Without a hook, or the device time of the device with most of it over the maximum."""
        return max(self.unhooked_s, max(self.run.device_s, default=0) / self.maximum)

    @property
    def simple_ratio(self) -> float:
        """To the simple reference."""
        return self.run.seconds / self.least_s

    @property
    def ratio(self) -> float:
        """To the reference that it is judged by."""
        return self.run.seconds / max(self.least_s, min(self.slower_s or self.replayed_s, self.replayed_s))

    @property
    def beyond_s(self) -> float:
        """Device time beyond its maximum, on the device with most of it."""
        return max(self.run.device_s, default=0) - self.maximum * self.run.seconds

    def as_json(self) -> dict[str, Any]:
        """For the raw data of a result."""
        return {
            "maximum": self.maximum,
            "unhooked_s": round(self.unhooked_s, 4),
            "replayed_s": round(self.replayed_s, 4),
            "slower_s": None if self.slower_s is None else round(self.slower_s, 4),
            "seconds": round(self.run.seconds, 4),
            "device_s": [round(one, 4) for one in self.run.device_s],
            "ratio": round(self.ratio, 3),
            "simple_ratio": round(self.simple_ratio, 3),
            "beyond_s": round(self.beyond_s, 4),
            "got_pp": None if self.run.got_pp is None else round(self.run.got_pp, 2),
            "stuck": self.run.stuck_text,
        }


def execute(
    command: Sequence[str], env: Mapping[str, str], folder: Path, limit_s: float
) -> tuple[dict[str, Any] | None, str]:
    """What the program printed, or None and what it said when it was stuck. Raises PartError when it failed."""
    scratch = Path(tempfile.mkdtemp(dir=folder))
    whole = [*command, "--folder", str(scratch), "--limit", f"{limit_s:g}"]
    process = subprocess.Popen(
        whole, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=limit_s + _KILL_AFTER_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        process.returncode = STUCK
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # its other process
        shutil.rmtree(scratch)
    if process.returncode == STUCK:
        return None, err.strip() or "it did not even hear its own alarm"
    if process.returncode:
        raise PartError(f"{' '.join(command)} ended with code {process.returncode}: {err.strip()}")
    line: dict[str, Any] = json.loads(out)
    return line, ""


@dataclass(frozen=True)
class Goals:
    """What a run is judged by: its ratio, its GOT's distance from the log in points, its maximum; and that it ends."""

    ratio: float
    got_pp: float

    def badness(self, comparison: Comparison) -> float:
        """How far a run is from its goals, whichever is worse; above 1 it misses one."""
        if comparison.run.stuck_text:
            return float("inf")
        beyond = comparison.beyond_s / (BEYOND_S + BEYOND_PART * max(comparison.run.device_s, default=0))
        return max(comparison.ratio / self.ratio, abs(comparison.run.got_pp or 0) / self.got_pp, beyond)

    def why_missed(self, comparison: Comparison) -> str:
        """Empty: it met them."""
        if comparison.run.stuck_text:
            return "stuck"
        got_pp = comparison.run.got_pp or 0
        whys = {
            f"ratio {comparison.ratio:.2f}": comparison.ratio > self.ratio,
            f"GOT {got_pp:+.1f} points": abs(got_pp) > self.got_pp,
            f"{comparison.beyond_s * 1000:.0f} ms beyond its maximum": comparison.beyond_s
            > BEYOND_S + BEYOND_PART * max(comparison.run.device_s, default=0),
        }
        return ", ".join(why for why, is_so in whys.items() if is_so)


class _Log:
    """The busy logs of a server's devices, each read from where the last run ended."""

    def __init__(self, folder: Path) -> None:
        self._files = [folder / f"busy-{index}.log" for index in range(DEVICES)]
        self._from = [0] * DEVICES

    def skip(self) -> None:
        """What has been logged so far belongs to other runs."""
        self._from = [path.stat().st_size // RECORD.size * RECORD.size for path in self._files]

    def spans(self, pids: Sequence[int]) -> list[list[Span]]:
        """By device, what these processes computed since skip()."""
        found = []
        for path, begin in zip(self._files, self._from, strict=True):
            with path.open("rb") as file:
                file.seek(begin)
                found.append([span for span in parse_busy_log(file.read()) if span.pid in pids])
        return found


def _busy_s(spans: Sequence[Span], begin_ns: int, end_ns: int) -> float:
    return sum(max(0, min(s.end_ns, end_ns) - max(s.begin_ns, begin_ns)) for s in spans) / 1e9


def _outcome(line: dict[str, Any], spans: Sequence[Sequence[Span]], got_pp: float | None = None) -> Outcome:
    begin_ns, end_ns = line["begin_ns"], line["end_ns"]
    busy = tuple(
        tuple(sorted(((s.begin_ns - begin_ns) / 1e9, (s.end_ns - begin_ns) / 1e9) for s in one)) for one in spans
    )
    device_s = tuple(_busy_s(one, begin_ns, end_ns) for one in spans)
    return Outcome(line["seconds"], len(line["kernels_ns"]), device_s, got_pp, busy=busy)


class Bench:
    """Two simulated devices with a daemon, and two without for what runs without a hook, or slower."""

    def __init__(self, own: OwnSystem, bare: SimulatedDevice, folder: Path, lengths_us: Sequence[int]) -> None:
        self._own, self._bare, self._folder = own, bare, folder
        self._lengths_us = lengths_us
        self._logs = {True: _Log(own.sim_dir), False: _Log(bare.directory)}
        self._runs = 0

    @property
    def device_name(self) -> str:
        """Of the first device."""
        return self._own.device_name()

    def run_unhooked(self, command: Sequence[str], limit_s: float, slowness: float = 1) -> Outcome:
        """Without a hook, with kernels longer by this factor. Raises PartError when it fails, and when it is stuck."""
        model = write_model(self._folder / f"{slowness:g}.model", self._lengths_us, slowness)
        env = {**self._bare.environment(self._own.env), "VGPU_SIM_KERNELS": str(model)}
        self._logs[False].skip()
        line, said = execute(command, env, self._folder, limit_s)
        if line is None:
            raise PartError(f"{' '.join(command)} is stuck without a hook: {said}")
        time.sleep(SETTLE_S)
        spans = self._logs[False].spans(line["pids"])
        return _outcome(line, spans)

    def run_capped(self, command: Sequence[str], devices: int, maximum: float, limit_s: float) -> Outcome:
        """In a slice of that part of each of so many devices, alone on them. Raises PartError when it fails."""
        self._runs += 1
        name = f"s{self._runs}"
        milli = round(maximum * devices * 1000)
        spec = pb.SliceSpec(gpus_milli=milli, max_milli=milli, spread=devices)
        with self._own.client() as client:
            made = client.send(calls.create_slice(name, spec, ephemeral=False, owner_uid=os.getuid()))
            env = environment.for_slice(self._own.env, client.send(calls.node()), made, True)
        self._logs[True].skip()
        try:
            line, said = execute([*command, "--stay", str(STAY_MS)], env, self._folder, limit_s)
            time.sleep(SETTLE_S)
            with self._own.client() as client:
                charged_s = sum(device.charged_ns for device in client.send(calls.get_slice(name)).devices) / 1e9
        finally:
            with self._own.client() as client:
                client.send(calls.delete_slice(name, force=True))
        if line is None:
            return Outcome(limit_s, devices, (), None, said)
        spans = self._logs[True].spans(line["pids"])
        logged_s = sum(_busy_s(one, 0, 1 << 63) for one in spans)
        return _outcome(line, spans, (charged_s - logged_s) / line["seconds"] * 100)

    def compare(self, command: Sequence[str], maximum: float, unhooked_run: Outcome, limit_s: float) -> Comparison:
        """Runs it in a slice; on the slower device only where the simple reference says that the slice was slow."""
        least_s = max(unhooked_run.seconds, max(unhooked_run.device_s) / maximum)
        run = self.run_capped(command, unhooked_run.devices, maximum, limit_s + 5 * least_s)
        found = Comparison(maximum, unhooked_run.seconds, run, replay_s(unhooked_run, maximum))
        if run.stuck_text or found.simple_ratio <= SLOWER_FROM:
            return found
        slower = self.run_unhooked(command, limit_s + 10 * least_s, 1 / maximum)
        return replace(found, slower_s=slower.seconds)

    def try_twice(
        self, command: Sequence[str], maximum: float, unhooked_run: Outcome, limit_s: float, goals: Goals
    ) -> list[Comparison]:
        """Runs it, and once more, also without a hook, if it misses by a figure: the machine may have been busy.

        The best comes first. What is stuck is not tried again, and comes first.
        """
        first = self.compare(command, maximum, unhooked_run, limit_s)
        if first.run.stuck_text or goals.badness(first) <= 1:
            return [first]
        second = self.compare(command, maximum, self.run_unhooked(command, limit_s), limit_s)
        return [second, first] if second.run.stuck_text else sorted([first, second], key=goals.badness)


@contextlib.contextmanager
def open_bench(lengths_us: Sequence[int]) -> Iterator[Bench]:
    """Kernels spin_N of these lengths exist."""
    with tempfile.TemporaryDirectory(prefix="vgpu-bench-") as name:
        folder = Path(name)
        own = OwnSystem(folder / "own", {"devices": str(DEVICES)})
        own.env["VGPU_SIM_KERNELS"] = str(write_model(folder / "kernels.model", lengths_us))
        with SimulatedDevice(folder / "bare", {"devices": DEVICES}) as bare, own:
            yield Bench(own, bare, folder, lengths_us)
