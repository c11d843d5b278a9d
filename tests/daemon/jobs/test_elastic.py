"""Elastic jobs of a real daemon: slices that are resized, and workers that come and go, also over its death."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.node import Node, wait_until
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(MISSING, reason="the simulated driver or vgpu-job is not built: run make")
ROOT = Path(__file__).resolve().parents[3]
STAYS = "echo $$ >> pid; while [ ! -e go ]; do sleep 0.02; done"
WORKER = f"exec {sys.executable} -m tests.daemon.jobs.elastic_worker"


@pytest.fixture
def queue(node: Node) -> Iterator[QueueNode]:
    """One device; elastic jobs grow at once."""
    with queue_node(node, devices=1) as made:
        made.start()
        set_elastic_times(made, 100, 100)
        yield made


def set_elastic_times(queue: QueueNode, wait_ms: int, idle_ms: int) -> None:
    spec = pb.Queue(name="default")
    for span, given in ((spec.elastic_wait, wait_ms), (spec.elastic_idle, idle_ms), (spec.min_run, 1)):
        span.FromMilliseconds(given)
    queue.queues.SetQueue(pb.SetQueueRequest(queue=spec))


def gpus(queue: QueueNode, name: str) -> int:
    """What a slice has now, as the arbiter knows it."""
    made = queue.node.get(name)
    assert made.spec.gpus_milli == made.devices[0].max_milli
    return made.devices[0].min_milli


def test_an_elastic_slice_grows_when_nothing_happens_and_shrinks_for_a_waiting_job(queue: QueueNode) -> None:
    bounds = pb.ElasticSpec(gpus_milli_min=250, gpus_milli_max=1000)
    (job_id,) = queue.submit(STAYS, 250, elastic=bounds)
    name = f"j-{job_id}"
    wait_until(lambda: queue.read_file("pid"), "its start")
    wait_until(lambda: gpus(queue, name) == 1000, "its growth")
    memory = queue.node.get(name).devices[0].mem_max_bytes
    (other,) = queue.submit("while [ ! -e other ]; do sleep 0.02; done", 600)
    queue.until(other, "running")
    assert gpus(queue, name) <= 400
    assert queue.node.get(name).devices[0].mem_max_bytes == memory
    set_elastic_times(queue, 100, 3_600_000)
    (queue.work / "other").touch()
    queue.wait_for_end(other)
    size = gpus(queue, name)
    queue.restart(signal.SIGKILL)
    assert gpus(queue, name) == size == queue.get(job_id).gpus_milli, "the next daemon goes on with this size"
    set_elastic_times(queue, 100, 100)
    wait_until(lambda: gpus(queue, name) == 1000, "its growth")
    (queue.work / "go").touch()
    job = queue.wait_for_end(job_id)
    assert (job.state, job.attempt) == (pb.JOB_STATE_COMPLETED, 1)
    assert queue.read_file("pid").count("\n") == 1, "it was never started again"
    assert queue.node.names() == []


# ---- workers ----


def submit(
    queue: QueueNode,
    workers_min: int,
    workers_max: int,
    milli: int = 200,
    env: Mapping[str, str] | None = None,
    **fields: Any,
) -> int:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **(env or {})}
    bounds = pb.ElasticSpec(workers_min=workers_min, workers_max=workers_max, batch=8, batch_max=64)
    spec = queue.spec(f"{WORKER} {queue.work}", milli, elastic=bounds, slice={"mem_max_bytes": 512 << 20}, **fields)
    for key, value in environment.items():
        spec.environment[key] = value
    (job_id,) = queue.jobs.SubmitJob(pb.SubmitJobRequest(spec=spec)).job_ids
    return int(job_id)


def lines(queue: QueueNode, what: str) -> dict[int, list[str]]:
    """What each worker has written about this, by number."""
    found: dict[int, list[str]] = {}
    for line in queue.read_file("log").splitlines():
        worker, _pid, said = line.split(" ", 2)
        if said.startswith(what):
            found.setdefault(int(worker), []).append(said)
    return found


def working(queue: QueueNode) -> str:
    """The newest membership in which all that are in it work, "" while they change."""
    newest = [said[-1].split() for said in lines(queue, "works").values()]
    if not newest:
        return ""
    generation = max(int(words[1]) for words in newest)
    members = next(words[2] for words in newest if int(words[1]) == generation)
    return members if sum(int(words[1]) == generation for words in newest) == len(members.split(",")) else ""


def pids(queue: QueueNode) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for line in queue.read_file("log").splitlines():
        found.setdefault(int(line.split()[0]), set()).add(line.split()[1])
    return found


def test_workers_come_and_go_and_those_who_stay_keep_their_process(queue: QueueNode) -> None:
    job_id = submit(queue, 1, 4, 250)
    wait_until(lambda: working(queue) == "0,1,2,3", f"four: {queue.read_file('log')}")
    assert sorted(queue.node.names()) == [f"j-{job_id}-{worker}" for worker in range(4)]
    (other,) = queue.submit("while [ ! -e other ]; do sleep 0.02; done", 500)
    queue.until(other, "running")
    wait_until(lambda: working(queue) == "0,1", "two of them left")
    assert queue.get(job_id).workers == 2
    assert "batch 16" in lines(queue, "works")[0][-1]
    queue.restart(signal.SIGKILL)
    (queue.work / "other").touch()
    queue.wait_for_end(other)
    wait_until(lambda: working(queue) == "0,1,4,5", "two others")
    assert all(len(found) == 1 for found in pids(queue).values()), "each number is one process"
    generations = [int(said.split()[1]) for said in lines(queue, "works")[0]]
    assert generations == sorted(set(generations))
    (queue.work / "done").touch()
    job = queue.wait_for_end(job_id)
    assert (job.state, job.attempt, job.exit_code) == (pb.JOB_STATE_COMPLETED, 1, 0)
    assert queue.node.names() == []
    assert "Traceback" not in queue.node.log.read_text()


def test_an_eager_queue_starts_it_with_all_that_it_can_use(queue: QueueNode) -> None:
    queue.queues.SetQueue(pb.SetQueueRequest(queue=pb.Queue(name="default", elastic_eager=True)))
    job_id = submit(queue, 1, 4)
    (other,) = queue.submit("true", 600)
    wait_until(lambda: working(queue) == "0,1,2,3", f"four: {queue.read_file('log')}")
    queue.restart(signal.SIGKILL)
    assert queue.get(job_id).workers == 4 and queue.get(other).state == pb.JOB_STATE_PENDING
    assert "job.resized" not in queue.node.event_kinds(), "it was started so, and gives nothing to who has waited"
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == queue.wait_for_end(other).state == pb.JOB_STATE_COMPLETED


def test_a_worker_that_fails_is_replaced_as_often_as_the_job_may_be_tried(queue: QueueNode) -> None:
    set_elastic_times(queue, 100, 3_600_000)
    job_id = submit(queue, 2, 2, retries=1)
    wait_until(lambda: working(queue) == "0,1", "both")
    (queue.work / "fail-1").touch()
    wait_until(lambda: working(queue) == "0,2", "another one")
    assert queue.get(job_id).attempt == 1
    (queue.work / "fail-0").touch()
    wait_until(lambda: "job.retried" in queue.node.event_kinds(), "its end: the next try begins from the start")
    assert queue.node.names() == []


def test_one_that_fails_with_no_try_left_ends_the_job(queue: QueueNode) -> None:
    job_id = submit(queue, 2, 2)
    wait_until(lambda: working(queue) == "0,1", "both")
    (queue.work / "fail-1").touch()
    job = queue.wait_for_end(job_id)
    assert (job.state, job.exit_code) == (pb.JOB_STATE_FAILED, 3)
    assert "worker 1" in job.reason
    assert queue.node.names() == []


@pytest.mark.parametrize("how", ["cancel", "requeue"])
def test_all_workers_end_when_the_job_is_ordered_to(queue: QueueNode, how: str) -> None:
    job_id = submit(queue, 2, 2)
    wait_until(lambda: working(queue) == "0,1", "both")
    queue.restart(signal.SIGKILL)
    if how == "cancel":
        queue.jobs.CancelJob(pb.CancelJobRequest(job_id=job_id))
        assert queue.wait_for_end(job_id).state == pb.JOB_STATE_CANCELLED
        assert queue.node.names() == []
        return
    queue.jobs.RequeueJob(pb.RequeueJobRequest(job_id=job_id))
    wait_until(lambda: all(len(found) == 2 for found in pids(queue).values()), "both anew")
    assert queue.get(job_id).attempt == 2
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED
