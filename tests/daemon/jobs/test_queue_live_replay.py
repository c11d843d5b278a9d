"""Live = simulated: what a live queue received and decided is replayed, and the same is decided in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.node import Node, wait_until
from vgpud.core.jobs.model import JobState
from vgpud.simulate import replay
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

pytestmark = pytest.mark.skipif(MISSING, reason="the simulated driver or vgpu-job is not built: run make")

JOBS = 20


@pytest.fixture
def recording(node: Node) -> Path:
    return node.directory / "recording.jsonl"


@pytest.fixture
def queue(node: Node, recording: Path) -> Iterator[QueueNode]:
    with queue_node(node, record_queue=f'"{recording}"') as made:
        yield made.start()


def submit_mixed(queue: QueueNode, policy: str) -> list[int]:
    """20 jobs on two devices: fractions, a gang, an array, dependencies, priorities, one that fails and one that is
    cancelled, on two queues, one with a limit; more than fit."""
    limited = pb.Queue(name="team", limit_milli=1000, policy=policy, min_run={"nanos": 1})
    queue.queues.SetQueue(pb.SetQueueRequest(queue=limited))
    ids = queue.submit("sleep 0.4", 600, queue="team")
    queue.until(ids[0], "running")
    ids += [queue.submit("sleep 0.4", 600, queue="team", priority=priority)[0] for priority in (1, 2, 5)]
    ids += [queue.submit(f"sleep 0.{number}", 300 + 100 * number)[0] for number in range(1, 6)]
    ids += queue.submit("sleep 0.3", 500, members=2)
    ids += queue.submit("sleep 0.2", 400, array_indices=range(1, 6))
    ids += queue.submit("exit 3", 200)
    ids += queue.submit("true", 1000, after=[ids[4], ids[9]])
    ids += queue.submit("sleep 100", 500, time_limit={"nanos": 400_000_000})
    (last,) = queue.submit("sleep 100", 500, hold=True)
    ids += [last, *queue.submit("true", 1500)]
    queue.jobs.ReleaseJob(pb.ReleaseJobRequest(job_id=last))
    queue.jobs.CancelJob(pb.CancelJobRequest(job_id=last))
    return ids


@pytest.mark.parametrize("policy", ["priority", "priority(preempt)"])
def test_a_live_run_is_decided_again_in_the_same_way(queue: QueueNode, recording: Path, policy: str) -> None:
    ids = submit_mixed(queue, policy)
    assert len(ids) == JOBS
    states = {words.JOB_STATE.to_word(queue.wait_for_end(job_id).state) for job_id in ids}
    assert {state.value for state in (JobState.COMPLETED, JobState.FAILED, JobState.TIMED_OUT)} <= states
    queue.node.stop()
    recorded = replay.read(recording)
    assert not list(replay.same_commands(recorded))
    live = replay.recorded_decisions(recorded)
    assert len([decision for decision in live if decision[0] == "StartJob"]) >= JOBS - 1
    if policy == "priority":
        # it gets only what came from outside and how long each job ran: a preempted one continues meanwhile if it does
        # not need the device, so that it is not known how long it would have run
        assert replay.simulated_decisions(recorded) == live
    else:
        assert {decision[2] for decision in live if decision[0] == "StopJob"} & {"pause", "evict"}, "some made room"


def test_what_was_decided_otherwise_is_found(queue: QueueNode, recording: Path) -> None:
    queue.wait_for_end(queue.submit("true", 500)[0])
    wait_until(lambda: "JobEnded" in recording.read_text(), "the end in the recording")
    queue.node.stop()
    text = recording.read_text()
    assert '"attempt": 1' in text
    recording.write_text(text.replace('"attempt": 1', '"attempt": 7'))
    assert list(replay.same_commands(replay.read(recording)))
