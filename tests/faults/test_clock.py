"""The machine's clock is set while the daemon runs, by hours and by a year, forward and back."""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.node import Node, wait_until
from tests.faults.programs import HERE, ROOT
from tests.ports import find_free_ports
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = [pytest.mark.slow, pytest.mark.skipif(MISSING, reason="vgpu-job is not built: run make")]
HOUR_S = 3600
YEAR_S = 365 * 24 * HOUR_S


class Machine:
    """A daemon on a machine whose clock a test sets."""

    def __init__(self, queue: QueueNode, metrics: str) -> None:
        self.queue, self.metrics = queue, metrics
        self._off = queue.node.directory / "off"
        self.set_clock(0)
        library = queue.node.directory / "clock.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", library, HERE / "clock.c"], check=True)
        queue.node.env |= {"LD_PRELOAD": str(library), "CLOCK_OFF": str(self._off)}

    def set_clock(self, off_s: int) -> None:
        """Off from the host's by so much from now on."""
        fresh = self._off.with_suffix(".new")
        fresh.write_text(str(off_s))
        fresh.rename(self._off)

    def clock_messages(self) -> list[str]:
        return self.queue.node.messages("node.clock")


@pytest.fixture
def machine(node: Node) -> Iterator[Machine]:
    (port,) = find_free_ports(1)
    with queue_node(node, metrics=f'"127.0.0.1:{port}"') as queue:
        made = Machine(queue, f"127.0.0.1:{port}")
        queue.start()
        yield made


def metrics(machine: Machine) -> dict[str, float]:
    """Counters by their whole names."""
    with urllib.request.urlopen(f"http://{machine.metrics}/metrics", timeout=30) as answer:
        lines = [line.rpartition(" ") for line in answer.read().decode().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines if name.partition("{")[0].endswith("_total")}


@pytest.mark.parametrize("off_s", [2 * HOUR_S, -2 * HOUR_S, YEAR_S, -YEAR_S])
def test_times_of_jobs_do_not_follow_a_clock_that_is_set(machine: Machine, off_s: int) -> None:
    queue = machine.queue
    (ended,) = queue.submit("true")
    queue.wait_for_end(ended)
    (limited,) = queue.submit("sleep 1000", 500, time_limit={"seconds": 1800})
    (short,) = queue.submit("sleep 1000", 500, time_limit={"seconds": 6})
    for job in (limited, short):
        queue.until(job, "running")
    begun_s = time.monotonic()
    begin = Timestamp()
    begin.FromNanoseconds(time.time_ns() + 3_000_000_000)
    (later,) = queue.submit("true", 1000, begin_time=begin)
    machine.set_clock(off_s)
    wait_until(machine.clock_messages, "the event")
    assert ("ahead of" if off_s > 0 else "behind") in machine.clock_messages()[0]
    assert queue.get(limited).state == pb.JOB_STATE_RUNNING
    assert queue.until(short, "timed_out", "failed").state == pb.JOB_STATE_TIMED_OUT
    assert time.monotonic() - begun_s > 5, "not before its time"
    queue.wait_for_end(later)
    queue.restart(15)
    assert queue.get(limited).state == pb.JOB_STATE_RUNNING, "also for the next daemon"
    assert queue.get(ended).state == pb.JOB_STATE_COMPLETED, "nothing is forgotten earlier"
    ran = queue.get(limited)
    assert 0 < ran.start_time.seconds - ran.submit_time.seconds + 1 < HOUR_S
    machine.set_clock(0)
    assert queue.get(limited).state == pb.JOB_STATE_RUNNING


def test_metrics_only_count_up(machine: Machine) -> None:
    before = metrics(machine)
    for off_s in (YEAR_S, -YEAR_S, 0):
        machine.set_clock(off_s)
        after = metrics(machine)
        assert before.keys() <= after.keys() and all(after[name] >= before[name] for name in before)
        before = after


def test_what_decides_on_the_device_looks_at_no_clock_that_is_set() -> None:
    folders = ("arbiter", "attach_server", "gate", "ledger", "attach", "base", "hooks", "session", "context")
    sources = [path for folder in folders for path in Path(ROOT / "shim" / folder).glob("*.[ch]")]
    assert len(sources) > 50
    assert [str(path) for path in sources if re.search(r"CLOCK_REALTIME|gettimeofday|\btime\(", path.read_text())] == []
