"""Arrays of many jobs on the live queue: other requests are answered meanwhile, and each is there as a whole or not."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.node import Node
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

pytestmark = pytest.mark.skipif(MISSING, reason="the simulated driver or vgpu-job is not built: run make")
JOBS = 1500


@pytest.fixture
def queue(node: Node) -> Iterator[QueueNode]:
    with queue_node(node) as made:
        yield made.start()


def asked_meanwhile(queue: QueueNode, work: Callable[[], object]) -> tuple[float, list[float]]:
    """How long the work takes, and what other calls took that were made while it ran."""
    took_s: list[float] = []
    ended = threading.Event()

    def ask() -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"unix:{queue.node.runtime / 'vgpud.sock'}", options=options) as channel:
            nodes = stubs.NodeServiceStub(channel)
            while not ended.is_set():
                began_s = time.monotonic()
                nodes.GetNode(pb.GetNodeRequest(), timeout=120)
                took_s.append(time.monotonic() - began_s)

    asking = threading.Thread(target=ask)
    asking.start()
    while len(took_s) < 3:
        time.sleep(0.01)
    took_s.clear()
    began_s = time.monotonic()
    work()
    whole_s = time.monotonic() - began_s
    ended.set()
    asking.join()
    return whole_s, took_s


def are_answered(whole_s: float, took_s: list[float]) -> bool:
    """Many calls, and nine of ten in a small part of the time: one may meet the start of a job, or a busy host."""
    return len(took_s) >= 20 and sorted(took_s)[len(took_s) * 9 // 10] < whole_s / 10


def test_other_requests_are_answered_while_an_array_is_submitted_and_cancelled(queue: QueueNode) -> None:
    ids: list[int] = []
    whole_s, took_s = asked_meanwhile(
        queue, lambda: ids.extend(queue.submit("sleep 1000", 1000, array_indices=range(1, JOBS + 1)))
    )
    assert ids == list(range(ids[0], ids[0] + JOBS))
    assert are_answered(whole_s, took_s), f"submission: {len(took_s)} calls, {max(took_s):.3f} of {whole_s:.3f} s"
    jobs = queue.all()
    assert [jobs[i].array_index for i in ids] == list(range(1, JOBS + 1))
    assert {i for i in ids if jobs[i].state == pb.JOB_STATE_RUNNING} <= set(ids[:2])
    whole_s, took_s = asked_meanwhile(
        queue, lambda: queue.jobs.CancelJob(pb.CancelJobRequest(job_id=ids[0], whole_array=True))
    )
    assert are_answered(whole_s, took_s), f"cancellation: {len(took_s)} calls, {max(took_s):.3f} of {whole_s:.3f} s"
    assert {job.state for job in queue.all().values() if not job.start_time.seconds} == {pb.JOB_STATE_CANCELLED}


def test_an_array_is_there_as_a_whole_or_not_at_all(queue: QueueNode) -> None:
    """The daemon is killed while the array is submitted, earlier and later."""
    for share in (0.1, 0.5, 0.9):
        begun = threading.Event()
        request = pb.SubmitJobRequest(spec=queue.spec("true", 2000, array_indices=range(1, JOBS + 1), hold=True))
        with grpc.insecure_channel(f"unix:{queue.node.runtime / 'vgpud.sock'}") as channel:
            answer = stubs.JobServiceStub(channel).SubmitJob.future(request)
            begun.set()
            while not answer.done() and len(queue.all()) < share * JOBS:
                time.sleep(0.001)
            queue.restart(signal.SIGKILL)
            answer.cancel()
        there = queue.all()
        assert len(there) in (0, JOBS), f"after {share}"
        if there:
            queue.jobs.CancelJob(pb.CancelJobRequest(job_id=min(there), whole_array=True))
            return


def test_a_submission_that_is_repeated_meanwhile_is_one(queue: QueueNode) -> None:
    request = pb.SubmitJobRequest(
        spec=queue.spec("true", 1000, array_indices=range(1, JOBS + 1), hold=True), request_id="same"
    )
    answers = [queue.jobs.SubmitJob.future(request) for _ in range(3)]
    assert len({tuple(answer.result().job_ids) for answer in answers}) == 1
    assert len(queue.all()) == JOBS
