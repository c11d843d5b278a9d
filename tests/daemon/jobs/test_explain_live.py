"""Explanations of a real daemon: what it learnt outlives it, and they say what would help a waiting job."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import grpc
import pytest

from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.node import Node, wait_until
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

pytestmark = pytest.mark.skipif(MISSING, reason="the simulated driver or vgpu-job is not built: run make")


@pytest.fixture
def queue(node: Node) -> Iterator[QueueNode]:
    with queue_node(node) as made:
        yield made.start()


def explain_job(queue: QueueNode, job_id: int) -> list[tuple[str, str]]:
    answer = queue.jobs.ExplainJob(pb.ExplainJobRequest(job_id=job_id))
    assert answer.job.job_id == job_id
    return [(words.FACT_KIND.to_word(fact.kind), fact.text) for fact in answer.facts]


def estimates(queue: QueueNode, job_id: int) -> list[str]:
    return [text for kind, text in explain_job(queue, job_id) if kind == "estimate"]


def test_what_was_learnt_and_decided_outlives_the_daemon(queue: QueueNode) -> None:
    for _ in range(3):
        queue.wait_for_end(queue.submit("sleep 0.2", 500)[0])
    (job_id,) = queue.submit("while [ ! -e go ]; do sleep 0.05; done", 1000)
    (alike,) = queue.submit("sleep 0.2", 500)
    wait_until(lambda: queue.get(alike).state == pb.JOB_STATE_COMPLETED, "it has room beside")
    queue.until(job_id, "running")
    before = [fact for fact in explain_job(queue, job_id) if fact[0] == "device"]
    assert len(before) == 1 and "GPU on device " in before[0][1] and "best-fit" in before[0][1]
    queue.restart(signal.SIGKILL)
    assert [fact for fact in explain_job(queue, job_id) if fact[0] == "device"] == before
    (waiting,) = queue.submit("sleep 0.2", 500, hold=True)
    (text,) = estimates(queue, waiting)
    assert text.startswith("the last 4 jobs with the same command and size took about 1 s")
    assert 0 < queue.get(waiting).estimated_duration.ToNanoseconds() < 20 * 10**9
    assert estimates(queue, alike)[0].startswith("it ran 1 s; about 1 s")


def test_one_that_waits_starts_when_it_does_what_would_help(queue: QueueNode) -> None:
    held = [queue.submit("while [ ! -e go ]; do sleep 0.05; done", 700)[0] for _ in range(2)]
    for job_id in held:
        queue.until(job_id, "running")
    (waiting,) = queue.submit("true", 500)
    facts = explain_job(queue, waiting)
    assert facts[0][0] == "queue" and "no device has 0.5 GPU" in facts[0][1]
    assert ("help", "with --gpus 0.3 it would start now") in facts
    assert queue.wait_for_end(queue.submit("true", 300)[0]).state == pb.JOB_STATE_COMPLETED


@pytest.fixture
def small_host(node: Node) -> Iterator[QueueNode]:
    """One device of 8 GiB, and a host that holds 1 GiB of what is not on it."""
    with queue_node(node, devices=1, suspended_bytes_max=str(1 << 30)) as made:
        yield made.start()


def test_one_that_the_host_cannot_hold_waits_until_it_may(small_host: QueueNode) -> None:
    """It is not tried meanwhile, and the RAM that may be used is as configured now."""
    queue, node = small_host, small_host.node
    stays = "while [ ! -e go ]; do sleep 0.05; done"
    in_turn = {"mem_min_bytes": 8 << 30, "mem_max_bytes": 8 << 30, "mem_swap": True}
    first, second = (queue.submit(stays, 250, slice=in_turn)[0] for _ in range(2))
    queue.until(first, "running")
    (reason, *_) = [text for kind, text in explain_job(queue, second) if kind == "queue"]
    assert reason.startswith("slices with mem-swap would need 8GiB of the host's RAM, of which 1GiB may be used")
    (cost,) = [text for kind, text in explain_job(queue, second) if kind == "rotation"]
    assert cost.startswith("with this job, slices with mem-swap claim 16GiB together of 8GiB that device 0 has")
    queue.restart(signal.SIGKILL)
    assert queue.get(second).state == pb.JOB_STATE_PENDING and "job.start_failed" not in node.event_kinds()
    node.settings["suspended_bytes_max"] = "0"
    node.write_config()
    assert node.process
    node.process.send_signal(signal.SIGHUP)
    queue.until(second, "running")
    (queue.work / "go").touch()
    for job_id in (first, second):
        assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_who_is_not_there_is_refused(queue: QueueNode) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        explain_job(queue, 99)
    assert (caught.value.code(), caught.value.details()) == (
        grpc.StatusCode.NOT_FOUND,
        "no job 99: `vgpu job ls --all` lists yours",
    )
