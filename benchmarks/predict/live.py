"""Elastic jobs on a real daemon and a simulated device: workers come and go, a slice follows load, a straggler goes.

What is trained is trained on tensors of the processor, so its losses are real. The bounds of the queue (30 s of
waiting, 60 s of idleness) are set to 1 s; times are counted from the moment at which the rule applies.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from benchmarks.predict.live_system import BOUND_S, Live, Training, live
from benchmarks.table import YES, Figure, Near, at_most, equal_to
from vgpud.cli.demo.private_system import ROOT, OwnSystem, wait_for
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb

STEPS = 400
BATCH = 60  # divides by 1, 2, 4 without a rest, by none of them into powers of two
PROGRAM = ["--batch", str(BATCH), "--records", "1000", "--pause", "0.1", "--double"]
SETTLED_STEPS = 20  # of each size
CURVE_PPM = 0.01  # in float64: numbers are added in another order, and training makes differences grow
ALL = YES
NONE = equal_to(0)
IDLE = at_most(2.0)
FOLLOWS = at_most(1.0)


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """All rows."""
    with live() as system:
        yield from workers(raw, system)
        yield from a_slice(raw, system)
    with live() as system:
        yield from straggler(raw, system)
    with live() as system:
        yield from deaths(raw, system)


# ---- 1 -> 4 -> 2 workers ----


def workers(raw: dict[str, Any], system: Live) -> Iterator[Figure]:
    """A neighbour holds the capacity of three workers, ends, and another one starts that needs that of two."""
    first = system.neighbour(750)
    system.wait(first, "running")
    training = Training(system, 4, [*PROGRAM, "--steps", str(STEPS)])
    training.wait_for(1, SETTLED_STEPS)
    system.client.send(calls.cancel(first))
    training.wait_for(4, SETTLED_STEPS)
    second = system.neighbour(500)
    training.wait_for(2, SETTLED_STEPS)
    begun = system.wait(second, "running").state == pb.JOB_STATE_RUNNING
    ended = system.wait(training.job_id)
    system.client.send(calls.cancel(second))
    lines = training.steps()
    wanted = train_alone(STEPS)
    raw["workers"] = {"changes": changes(lines), "reason": ended.reason, "said": training.last_text()}
    case = "CIFAR, 1 -> 4 -> 2 workers as neighbours come and go"
    sizes = [size for size, _ in changes(lines)]
    yield Figure("live", case, "workers went 1, 4, 2 (1 = yes)", float(sizes == [1, 4, 2]), ALL)
    yield Figure("live", case, "the neighbour that waited got its room (1 = yes)", float(begun), ALL)
    yield Figure("live", case, "job completed (1 = yes)", float(ended.state == pb.JOB_STATE_COMPLETED), ALL)
    pids = {(line["worker"], line["pid"]) for line in lines}
    twice = len(pids) - len({worker for worker, _ in pids})
    yield Figure("live", case, "workers whose process was another one later", twice, NONE)
    yield Figure("live", case, "restarts of the job", ended.attempt - 1, NONE)
    off = worst_difference(lines, wanted)
    raw["workers"]["off"] = off
    yield Figure(
        "live", case, "greatest difference of a loss from that of one worker, ppm", off * 1e6, at_most(CURVE_PPM)
    )
    for what, idle_s in idle(lines):
        yield Figure("live", case, f"without a step, {what}, s", idle_s, IDLE)


def changes(lines: list[dict[str, Any]]) -> list[tuple[int, int]]:
    """(workers, first step with so many)."""
    found: list[tuple[int, int]] = []
    for line in lines:
        if not found or found[-1][0] != line["workers"]:
            found.append((line["workers"], line["step"]))
    return found


def idle(lines: list[dict[str, Any]]) -> Iterator[tuple[str, float]]:
    """Of each change, the longest that one of the workers did no step."""
    steps = changes(lines)
    for (before, _), (after, step) in itertools.pairwise(steps):
        waited = []
        for worker in {line["worker"] for line in lines if line["step"] == step}:
            own = {line["step"]: line["idle_s"] for line in lines if line["worker"] == worker}
            if step - 1 in own:
                waited.append(own[step] - own[step - 1])
        yield f"{before} -> {after}", max(waited)


def train_alone(steps: int) -> dict[int, float]:
    """Losses of the same training by one worker, without a daemon."""
    command = [sys.executable, "-m", "benchmarks.elastic.train", *PROGRAM, "--pause", "0", "--steps", str(steps)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("VGPU")}
    done = subprocess.run(command, env=env, cwd=ROOT, capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["step"]: line["loss"] for line in lines if line["event"] == "step"}


def worst_difference(lines: list[dict[str, Any]], losses: dict[int, float]) -> float:
    """Greatest relative difference; a step that is missing is a whole one."""
    found = {line["step"]: line["loss"] for line in lines}
    return max(abs(found[step] - loss) / loss if step in found else 1.0 for step, loss in losses.items())


# ---- an elastic slice ----


def a_slice(raw: dict[str, Any], system: Live) -> Iterator[Figure]:
    """A job with a quarter to a whole device, and a neighbour that needs three quarters."""
    from vgpud.v1alpha1 import vgpud_pb2 as pb

    elastic = pb.ElasticSpec(gpus_milli_min=250, gpus_milli_max=1000)
    job_id = system.submit(["sh", "-c", "echo $$ > pid; exec sleep 1000"], 250, name="slice", elastic=elastic)
    system.wait(job_id, "running")
    wait_for("the whole device", lambda: milli(system, job_id) == 1000)
    asked_s = time.monotonic()
    neighbour = system.neighbour(750)
    shrunk_s = until(system, job_id, 250) - asked_s - BOUND_S
    started_s = until_running(system, neighbour) - asked_s - BOUND_S
    gone_s = time.monotonic()
    system.client.send(calls.cancel(neighbour))
    grown_s = until(system, job_id, 1000) - gone_s - BOUND_S
    job = system.job(job_id)
    same = job.state == pb.JOB_STATE_RUNNING and job.attempt == 1
    pid = int((system.system.folder / "pid").read_text())
    alive = os.path.exists(f"/proc/{pid}")
    system.client.send(calls.cancel(job_id))
    raw["slice"] = {"shrunk_s": shrunk_s, "started_s": started_s, "grown_s": grown_s, "bound_s": BOUND_S}
    case = f"a slice of .25 to 1, bounds set to {BOUND_S:g} s"
    yield Figure("live", case, "smaller after the rule's moment, s", shrunk_s, FOLLOWS)
    yield Figure("live", case, "the neighbour runs after that moment, s", started_s, FOLLOWS)
    yield Figure("live", case, "larger after the rule's moment, s", grown_s, FOLLOWS)
    yield Figure("live", case, "the same process all the time (1 = yes)", float(same and alive), ALL)


def milli(system: Live, job_id: int) -> int:
    """What the job's slice is held to now."""
    for name in system.job(job_id).slices:
        return sum(device.max_milli for device in system.client.send(calls.get_slice(name)).devices)
    return 0


def until(system: Live, job_id: int, share_milli: int) -> float:
    """When its slice had that much, by the monotonic clock."""
    wait_for(f"{share_milli} milli", lambda: milli(system, job_id) == share_milli)
    return time.monotonic()


def until_running(system: Live, job_id: int) -> float:
    """When the job ran."""
    system.wait(job_id, "running")
    return time.monotonic()


# ---- a straggler ----


class Braked(threading.Thread):
    """Stops a process for most of the time, until `end_event` is set or it is gone."""

    STOPPED_S, GOES_S = 0.3, 0.03

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self.end_event = threading.Event()

    def run(self) -> None:
        try:
            while not self.end_event.is_set():
                os.kill(self._pid, signal.SIGSTOP)
                self.end_event.wait(self.STOPPED_S)
                os.kill(self._pid, signal.SIGCONT)
                self.end_event.wait(self.GOES_S)
        except ProcessLookupError:
            pass


def straggler(raw: dict[str, Any], system: Live) -> Iterator[Figure]:
    """Three workers, capacity for a fourth, one of them stopped nine tenths of the time."""
    training = Training(system, 3, [*PROGRAM, "--steps", str(3 * STEPS)])
    training.wait_for(3, SETTLED_STEPS)
    before = training.workers()
    slow = before[-1]
    pid = next(line["pid"] for line in training.steps() if line["worker"] == slow)
    brake = Braked(pid)
    begin_ns = time.monotonic_ns()
    brake.start()
    wait_for("its replacement", lambda: slow not in training.workers() and len(training.workers()) == 3, 120.0)
    end_ns = time.monotonic_ns()
    brake.end_event.set()
    training.wait_for(3, SETTLED_STEPS)
    after = training.workers()
    sizes = [size for size, step in changes(training.steps()) if step > SETTLED_STEPS]
    job = system.job(training.job_id)
    system.client.send(calls.cancel(training.job_id))
    raw["straggler"] = {"before": before, "after": after, "sizes": sizes, "took_s": (end_ns - begin_ns) / 1e9}
    case = "three workers, one of them stopped nine tenths of the time"
    replaced = slow not in after and len(after) == 3 and set(before) - {slow} < set(after)
    yield Figure("live", case, "it was replaced, the others stayed (1 = yes)", float(replaced), ALL)
    yield Figure("live", case, "replaced after, s", (end_ns - begin_ns) / 1e9)
    yield Figure("live", case, "fewest workers meanwhile", min(sizes, default=3), Near(3, 0, "= 3"))
    yield Figure("live", case, "restarts of the job", job.attempt - 1, NONE)
    alone_s = step_s(training, 0, begin_ns)
    yield Figure("live", case, "a step meanwhile, of one before", step_s(training, begin_ns, end_ns) / alone_s)
    yield Figure(
        "live", case, "a step afterwards, of one before", step_s(training, end_ns, time.monotonic_ns()) / alone_s
    )


def step_s(training: Training, begin_ns: int, end_ns: int) -> float:
    """The median of the steps that were done between these times."""
    times = [line["time_ns"] for line in training.steps() if line["rank"] == 0]
    inside = [
        early_late for early_late in itertools.pairwise(times) if begin_ns < early_late[0] and early_late[1] < end_ns
    ]
    return float(statistics.median(late - early for early, late in inside)) / 1e9


# ---- deaths ----


def deaths(raw: dict[str, Any], system: Live) -> Iterator[Figure]:
    """The daemon is killed, then the last in rank, then both the first and the daemon, while three workers train."""
    training = Training(system, 3, [*PROGRAM, "--steps", str(STEPS)], retries=5)
    training.wait_for(3, SETTLED_STEPS)
    daemon = system.system
    kill_daemon(daemon)
    training.wait_steps(SETTLED_STEPS)
    daemon.start_daemon()
    killed = [kill_worker(training, -1)]
    training.wait_for(3, SETTLED_STEPS)
    killed.append(kill_worker(training, 0))
    kill_daemon(daemon)
    daemon.start_daemon()
    training.wait_for(3, SETTLED_STEPS)
    ended = system.wait(training.job_id)
    lines = training.steps()
    off = worst_difference(lines, train_alone(STEPS))
    raw["deaths"] = {"killed": killed, "changes": changes(lines), "reason": ended.reason, "off": off}
    case = "three workers; the daemon and two of them are killed"
    yield Figure("live", case, "job completed (1 = yes)", float(ended.state == pb.JOB_STATE_COMPLETED), ALL)
    yield Figure("live", case, "restarts of the job", ended.attempt - 1, NONE)
    yield Figure(
        "live", case, "greatest difference of a loss from that of one worker, ppm", off * 1e6, at_most(CURVE_PPM)
    )


def kill_daemon(system: OwnSystem) -> None:
    """By SIGKILL; what runs continues."""
    assert system.daemon
    system.daemon.kill()


def kill_worker(training: Training, rank: int) -> int:
    """By SIGKILL, in the middle of whatever it does."""
    worker = training.workers()[rank]
    os.kill(next(line["pid"] for line in training.steps() if line["worker"] == worker), signal.SIGKILL)
    return worker
