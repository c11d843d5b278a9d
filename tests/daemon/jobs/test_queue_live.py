"""The queue of a real daemon on simulated devices: jobs from their submission to their end, also over its death."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.node import Node, wait_until
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(MISSING, reason="the simulated driver or vgpu-job is not built: run make")


@pytest.fixture
def queue(node: Node) -> Iterator[QueueNode]:
    with queue_node(node) as made:
        yield made.start()


def test_a_job_runs_on_its_slice_and_completes(queue: QueueNode) -> None:
    (job_id,) = queue.submit('echo "$VGPU_SOCKET"; echo of $VGPU_JOB_ID', 500)
    job = queue.wait_for_end(job_id)
    assert (job.state, job.exit_code, job.attempt) == (pb.JOB_STATE_COMPLETED, 0, 1)
    assert queue.read_file(f"{job_id}.log") == f"{queue.node.socket(f'j-{job_id}')}\nof {job_id}\n"
    assert queue.node.names() == []
    event_kinds = [kind for kind in queue.node.event_kinds() if kind.startswith("job.")]
    assert event_kinds == ["job.started", "job.completed"]


def catch_refusal(call: Callable[[], object]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    return caught.value.code(), caught.value.details()


def test_exit_codes_and_what_they_used(queue: QueueNode) -> None:
    ids = {code: queue.submit(f"exit {code}", 100)[0] for code in (0, 3, 77)}
    ids |= {143: queue.submit("kill -TERM $$", 100)[0], 127: queue.submit("exec /nonexistent", 100)[0]}
    for code, job_id in ids.items():
        job = queue.wait_for_end(job_id)
        assert (job.state, job.exit_code) == (pb.JOB_STATE_COMPLETED if code == 0 else pb.JOB_STATE_FAILED, code), (
            job.reason
        )
    assert queue.node.names() == []


def test_a_gang_has_a_slice_for_each_member(queue: QueueNode) -> None:
    script = 'echo "$VGPU_MEMBER of $VGPU_MEMBERS at $VGPU_SOCKET" >> out; while [ ! -e go ]; do sleep 0.02; done'
    (job_id,) = queue.submit(script, 800, members=2)
    wait_until(lambda: queue.read_file("out").count("\n") == 2, "both members")
    job = queue.get(job_id)
    assert list(job.slices) == [f"j-{job_id}-0", f"j-{job_id}-1"]
    assert sorted(queue.node.names()) == list(job.slices)
    assert list(job.device_indices) == [0, 1]
    lines = sorted(queue.read_file("out").splitlines())
    assert lines == [f"{i} of 2 at {queue.node.socket(f'j-{job_id}-{i}')}" for i in range(2)]
    (queue.work / "go").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_arrays_dependencies_and_holds(queue: QueueNode) -> None:
    wait_for_file = "until [ -e told ]; do sleep 0.05; done"  # not before the others are submitted
    array = queue.submit(
        f"{wait_for_file}; echo $VGPU_ARRAY_INDEX >> array; test $VGPU_ARRAY_INDEX != 3",
        200,
        array_indices=[1, 2, 3],
    )
    assert len(array) == 3
    (any_end,) = queue.submit("cat array | wc -l > counted", 200, after=array, after_any=True)
    (never,) = queue.submit("touch never", 200, after=[array[2]])
    (tidied,) = queue.submit("touch tidied", 200, after_fail=[array[2]], after=array[:2])
    (held,) = queue.submit("touch held", 200, hold=True)
    assert queue.get(held).state == pb.JOB_STATE_HELD
    (queue.work / "told").touch()
    assert queue.wait_for_end(any_end).state == pb.JOB_STATE_COMPLETED
    assert queue.read_file("counted").strip() == "3"
    assert queue.get(array[2]).state == pb.JOB_STATE_FAILED
    assert queue.wait_for_end(tidied).state == pb.JOB_STATE_COMPLETED
    cancelled = queue.wait_for_end(never)
    assert cancelled.state == pb.JOB_STATE_CANCELLED
    assert f"job {array[2]}" in cancelled.reason
    assert not (queue.work / "held").exists()
    queue.jobs.ReleaseJob(pb.ReleaseJobRequest(job_id=held))
    assert queue.wait_for_end(held).state == pb.JOB_STATE_COMPLETED


def test_cancelled_and_timed_out_jobs_end_with_all_they_started(queue: QueueNode) -> None:
    (slow,) = queue.submit("sleep 1000 & echo $! > child; wait", 500)
    (limited,) = queue.submit("sleep 1000", 500, time_limit={"nanos": 300_000_000})
    wait_until(lambda: queue.read_file("child").strip(), "its child")
    queue.jobs.CancelJob(pb.CancelJobRequest(job_id=slow))
    assert queue.wait_for_end(slow).state == pb.JOB_STATE_CANCELLED
    child = int(queue.read_file("child"))
    wait_until(lambda: not Path(f"/proc/{child}").exists(), "the end of its child")
    assert queue.wait_for_end(limited).state == pb.JOB_STATE_TIMED_OUT
    assert queue.node.names() == []
    code, text = catch_refusal(lambda: queue.jobs.CancelJob(pb.CancelJobRequest(job_id=slow)))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "cancelled" in text


def test_one_without_capacity_says_why_and_starts_when_there_is(queue: QueueNode) -> None:
    made = queue.node.create("direct", 2000)
    assert made.queue == "default"
    (job_id,) = queue.submit("true", 500)
    job = queue.get(job_id)
    assert (job.state, job.position) == (pb.JOB_STATE_PENDING, 1)
    assert job.reason
    queue.node.slices.DeleteSlice(pb.DeleteSliceRequest(name="direct"))
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_a_repeated_request_is_one_job(queue: QueueNode) -> None:
    first = queue.submit("echo once >> out", 100, request_id="r")
    assert queue.submit("echo once >> out", 100, request_id="r") == first
    code, _ = catch_refusal(lambda: queue.submit("echo other", 100, request_id="r"))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    queue.wait_for_end(first[0])
    queue.restart(signal.SIGKILL)
    assert queue.submit("echo once >> out", 100, request_id="r") == first
    assert queue.read_file("out") == "once\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_jobs_outlive_the_daemon(queue: QueueNode, number: int) -> None:
    """One that continues, one that ends meanwhile, one that waits, one that is held: each once, with its result."""
    wait = "echo $VGPU_JOB_ID >> ran; while [ ! -e {0} ]; do sleep 0.02; done; exit {1}"
    (stays,) = queue.submit(wait.format("late", 5), 1000)
    (ends,) = queue.submit(wait.format("early", 6), 1000)
    (waits,) = queue.submit("echo $VGPU_JOB_ID >> ran", 1000)
    (held,) = queue.submit("touch held", 100, hold=True)
    wait_until(lambda: queue.read_file("ran").count("\n") == 2, "both")
    before = {name: queue.node.get(name).uid for name in queue.node.names()}
    queue.node.stop(number)
    (queue.work / "early").touch()
    time.sleep(0.3)
    queue.start()
    assert queue.wait_for_end(ends).exit_code == 6
    assert queue.wait_for_end(waits).state == pb.JOB_STATE_COMPLETED
    assert queue.get(held).state == pb.JOB_STATE_HELD
    running = queue.get(stays)
    assert (running.state, running.attempt) == (pb.JOB_STATE_RUNNING, 1)
    assert queue.node.get(f"j-{stays}").uid == before[f"j-{stays}"]
    (queue.work / "late").touch()
    assert queue.wait_for_end(stays).exit_code == 5
    assert sorted(queue.read_file("ran").split()) == sorted(map(str, (stays, ends, waits)))
    assert queue.node.names() == []


def test_numbers_are_never_given_twice(queue: QueueNode) -> None:
    first = queue.submit("true", 100, array_indices=range(1, 6))
    queue.restart(signal.SIGKILL)
    (after,) = queue.submit("true", 100)
    assert after > max(first)


def test_queues_are_kept_and_their_limits_hold(queue: QueueNode) -> None:
    team = pb.Queue(name="team", limit_milli=1000, members=["uid:0"])
    queue.queues.SetQueue(pb.SetQueueRequest(queue=team))
    queue.restart(signal.SIGKILL)
    (listed,) = [q for q in queue.queues.ListQueues(pb.ListQueuesRequest()).queues if q.name == "team"]
    assert (listed.limit_milli, list(listed.members)) == (1000, ["uid:0"])
    script = "while [ ! -e go ]; do sleep 0.02; done"
    ids = [queue.submit(script, 600)[0] for _ in range(2)]
    queue.until(ids[0], "running")
    second = queue.get(ids[1])
    assert (second.state, second.spec.queue) == (pb.JOB_STATE_PENDING, "team")
    assert "queue team" in second.reason
    code, text = catch_refusal(lambda: queue.queues.DeleteQueue(pb.DeleteQueueRequest(name="team")))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert "2 job(s)" in text
    (queue.work / "go").touch()
    for job_id in ids:
        queue.wait_for_end(job_id)
    queue.queues.DeleteQueue(pb.DeleteQueueRequest(name="team"))


def test_slices_made_otherwise_are_held_to_a_queues_limit_unless_the_site_says_otherwise(node: Node) -> None:
    with queue_node(node) as queue:
        queue.start()
        queue.queues.SetQueue(pb.SetQueueRequest(queue=pb.Queue(name="team", limit_milli=1000, members=["uid:0"])))
        assert queue.node.create("a", 700).queue == "team"
        code, text = catch_refusal(lambda: queue.node.create("b", 400))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "queue team has a limit of 1 GPUs and 0.7 in use (slice a 0.7)" in text
        (job_id,) = queue.submit("true", 400)
        assert queue.get(job_id).state == pb.JOB_STATE_PENDING
        queue.node.slices.DeleteSlice(pb.DeleteSliceRequest(name="a"))
        assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_a_jobs_slice_is_the_queues_alone(queue: QueueNode) -> None:
    (job_id,) = queue.submit("while [ ! -e go ]; do sleep 0.02; done", 500)
    queue.until(job_id, "running")
    name = f"j-{job_id}"
    wait_until(lambda: name in queue.node.names(), "its slice")
    for call in (
        lambda: queue.node.slices.DeleteSlice(pb.DeleteSliceRequest(name=name, force=True)),
        lambda: queue.node.slices.UpdateSlice(pb.UpdateSliceRequest(name=name, spec=pb.SliceSpec(gpus_milli=900))),
        lambda: queue.node.create("j-99999", 100),
    ):
        assert catch_refusal(call)[0] in (grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.INVALID_ARGUMENT)
    (queue.work / "go").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_usage_is_asked_granted_and_used(queue: QueueNode) -> None:
    (job_id,) = queue.submit("sleep 0.5", 500, members=2)
    queue.wait_for_end(job_id)
    queue.node.create("direct", 250)
    queue.restart(signal.SIGKILL)
    (row,) = queue.queues.GetUsage(pb.GetUsageRequest(by=pb.USAGE_BY_JOB)).usage[:1]
    assert (row.job_id, row.slice) == (0, "direct")
    rows = {u.job_id: u for u in queue.queues.GetUsage(pb.GetUsageRequest(by=pb.USAGE_BY_JOB)).usage}
    row = rows[job_id]
    assert 0.5 <= row.gpu_seconds_granted <= row.gpu_seconds_asked < 5
    assert (row.state, row.members, row.gpus_milli) == (pb.JOB_STATE_COMPLETED, 2, 500)
    assert rows[0].gpu_seconds_granted > 0
    (queue_sum,) = queue.queues.GetUsage(pb.GetUsageRequest(by=pb.USAGE_BY_QUEUE)).usage
    assert (queue_sum.queue, queue_sum.jobs) == ("default", 1)
