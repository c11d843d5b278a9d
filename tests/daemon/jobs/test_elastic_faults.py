"""Elastic jobs when something fails: daemons that die between two steps, stragglers, nonsense that workers report."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.jobs.test_elastic import lines, pids, set_elastic_times, submit, working
from tests.daemon.jobs.test_queue_live import catch_refusal
from tests.daemon.node import Node, wait_until
from vgpud.core.elastic.worker_group import WorkerEvent, WorkerGroup
from vgpud.core.jobs.model import Job, JobState
from vgpud.core.queue import group_record, sizes
from vgpud.store.database import Store
from vgpud.store.elastic import ElasticStore
from vgpud.store.jobs import JobStore
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MISSING, reason="the simulated driver or vgpu-job is not built: run make"),
]
LONG_MS = 3_600_000


@pytest.fixture
def queue(node: Node) -> Iterator[QueueNode]:
    """One device; nothing grows by itself."""
    with queue_node(node, devices=1) as made:
        made.start()
        set_elastic_times(made, LONG_MS, LONG_MS)
        yield made


def change(queue: QueueNode, job_id: int, change_record: Callable[[Job, WorkerGroup], None]) -> None:
    """Has the database say something else, as it would if the daemon had been killed at another point."""
    store = Store(queue.node.state)
    jobs = JobStore(store)
    job, group = jobs.find(job_id), group_record.parse(ElasticStore(store).groups()[job_id])
    assert job
    change_record(job, group)
    jobs.save([job], groups={job_id: group_record.dump(group)})
    store.close()


def drop_group(queue: QueueNode, job_id: int) -> None:
    store = Store(queue.node.state)
    JobStore(store).save([], groups={job_id: None})
    store.close()


def test_workers_that_were_decided_on_and_no_more_begin_once(queue: QueueNode) -> None:
    (first,) = queue.submit("while [ ! -e go ]; do sleep 0.02; done", 200)
    queue.until(first, "running")
    job_id = submit(queue, 2, 2, hold=True)
    queue.node.stop(signal.SIGKILL)
    store = Store(queue.node.state)
    jobs = JobStore(store)
    placed, held = jobs.find(first), jobs.find(job_id)
    assert placed and held
    place = placed.placement[0]
    place = replace(
        place, shares=tuple(replace(s, mem_min_bytes=512 << 20, mem_max_bytes=512 << 20) for s in place.shares)
    )
    jobs.save(
        [replace(held, state=JobState.RUNNING, attempt=1, started_ns=placed.started_ns, placement=(place, place))]
    )
    store.close()
    queue.start()
    wait_until(lambda: working(queue) == "0,1", "both")
    queue.restart(signal.SIGKILL)
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED
    assert {number: len(found) for number, found in pids(queue).items()} == {0: 1, 1: 1}
    (queue.work / "go").touch()
    queue.wait_for_end(first)


def test_one_that_was_to_come_comes_and_one_that_was_to_leave_leaves(queue: QueueNode) -> None:
    """The former daemon was killed when the disk had its decision, and no worker had got it."""
    job_id = submit(queue, 1, 3)
    wait_until(lambda: working(queue) == "0", "the first")

    def comes(job: Job, group: WorkerGroup) -> None:
        job.resizing = (*job.placement, job.placement[0])
        job.spec = replace(job.spec, members=2)
        group.add(job.placement[0])

    queue.node.stop(signal.SIGKILL)
    change(queue, job_id, comes)
    queue.start()
    wait_until(lambda: working(queue) == "0,1", "the second")
    wait_until(lambda: queue.get(job_id).workers == 2 and len(queue.get(job_id).slices) == 2, "both")

    def leaves(job: Job, group: WorkerGroup) -> None:
        job.resizing = job.placement[:1]
        job.spec = replace(job.spec, members=1)
        group.apply(1, WorkerEvent.LEAVE)

    queue.node.stop(signal.SIGKILL)
    change(queue, job_id, leaves)
    queue.start()
    wait_until(lambda: working(queue) == "0", "one")
    wait_until(lambda: queue.node.names() == [f"j-{job_id}-0"], "its slice alone")
    assert [len(found) for found in pids(queue).values()] == [1, 1]
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_one_that_was_to_be_begun_again_is_not_when_its_capacity_is_given_away(queue: QueueNode) -> None:
    job_id = submit(queue, 1, 3, milli=100)
    wait_until(lambda: working(queue) == "0", "the first")

    def grows(job: Job, group: WorkerGroup) -> None:
        job.resizing = job.placement * 3
        job.spec = replace(job.spec, members=3)

    queue.node.stop(signal.SIGKILL)
    change(queue, job_id, grows)
    queue.start()
    wait_until(lambda: working(queue) == "0,1,2" and queue.get(job_id).workers == 3, "three")

    def leaves(job: Job, group: WorkerGroup) -> None:
        job.resizing = job.placement[:2]
        job.spec = replace(job.spec, members=2)
        group.apply(2, WorkerEvent.RESPAWN)

    queue.node.stop(signal.SIGKILL)
    change(queue, job_id, leaves)
    queue.start()
    wait_until(lambda: working(queue) == "0,1", "two")
    wait_until(lambda: sorted(queue.node.names()) == [f"j-{job_id}-0", f"j-{job_id}-1"], "their slices alone")
    assert "job.resize_failed" not in queue.node.event_kinds()
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED
    assert 3 not in pids(queue)


def test_a_worker_that_fails_while_no_daemon_looks_is_replaced_then(queue: QueueNode) -> None:
    job_id = submit(queue, 2, 2, retries=1)
    wait_until(lambda: working(queue) == "0,1", "both")
    queue.node.stop(signal.SIGKILL)
    (queue.work / "fail-0").touch()
    wait_until(lambda: lines(queue, "fails"), "its end")
    queue.start()
    wait_until(lambda: working(queue) == "1,2", "the survivor is the first")
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_when_all_have_gone_with_the_machine_the_job_is_tried_from_its_beginning(queue: QueueNode) -> None:
    """And none of them is replaced: no worker has what was computed."""
    job_id = submit(queue, 2, 2, retries=1)
    wait_until(lambda: working(queue) == "0,1", "both")
    queue.node.stop(signal.SIGKILL)
    jobs = queue.node.state / "jobs"
    for begun in jobs.glob("*/begun"):
        end(begun)
        fields = [line for line in begun.read_text().splitlines() if not line.startswith("boot ")]
        begun.write_text("\n".join([*fields, "boot another", ""]))
        (begun.parent / "result").unlink()
    (jobs / ".boot").write_text("another")
    queue.start()
    wait_until(lambda: "job.retried" in queue.node.event_kinds(), "its next try")
    assert "job.worker_failed" not in queue.node.event_kinds()
    assert any("restarted" in text for text in queue.node.messages("job.retried"))
    assert queue.node.names() == []
    assert queue.get(job_id).state == pb.JOB_STATE_PENDING


def end(begun_file: Path) -> None:
    """Kills what a supervisor runs."""
    pid = next(int(line.split()[1]) for line in begun_file.read_text().splitlines() if line.startswith("pid "))
    (begun_file.parent / "stop").write_text("grace_ms 0\n")
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: (begun_file.parent / "result").exists(), "its end")


def test_a_straggler_is_replaced_first_and_leaves_after(queue: QueueNode) -> None:
    (queue.work / "slow-1").touch()
    job_id = submit(queue, 3, 3, env={"REPORTS": "100"})
    wait_until(lambda: "3" in working(queue).split(","), "another one")
    wait_until(lambda: working(queue) == "0,2,3", "without the straggler")
    assert lines(queue, "leaves")[1]
    job = queue.get(job_id)
    assert (job.workers, job.attempt) == (3, 1)
    wait_until(lambda: sorted(queue.node.names()) == [f"j-{job_id}-{number}" for number in (0, 2, 3)], "three slices")
    assert any("worker 1" in text for text in queue.node.messages("job.straggler"))
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_no_worker_joins_a_straggler_beyond_the_limit_of_its_queue(queue: QueueNode) -> None:
    queue.queues.SetQueue(pb.SetQueueRequest(queue=pb.Queue(name="default", limit_milli=600)))
    (queue.work / "slow-1").touch()
    job_id = submit(queue, 3, 3, env={"REPORTS": "100"})
    wait_until(lambda: working(queue) == "0,3,2" or working(queue) == "0,2,3", "another one")
    (text,) = queue.node.messages("job.straggler")
    assert text.endswith("there is no capacity for a stand-in beside it, so it leaves first")
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_the_queue_counts_a_worker_that_takes_a_stragglers_place(queue: QueueNode) -> None:
    """Also one that never begins to work."""
    for name in ("slow-1", "mute-3"):
        (queue.work / name).touch()
    job_id = submit(queue, 3, 3, env={"REPORTS": "100"})
    wait_until(lambda: f"j-{job_id}-3" in queue.node.names(), "another one")
    script = "while [ ! -e go ]; do sleep 0.02; done"
    (wide,), (narrow,) = queue.submit(script, 300), queue.submit(script, 200)
    queue.until(narrow, "running")
    assert queue.get(wide).state == pb.JOB_STATE_PENDING
    assert "job.start_failed" not in queue.node.event_kinds(), "what it has is not given to others"
    for name in ("go", "done"):
        (queue.work / name).touch()
    assert {queue.wait_for_end(one).state for one in (job_id, wide, narrow)} == {pb.JOB_STATE_COMPLETED}


def test_where_workers_are_is_reported_to_a_queue_that_knows_another_place(queue: QueueNode) -> None:
    """The former daemon was killed between the end of a straggler and its report to the queue."""
    job_id = submit(queue, 1, 2)
    wait_until(lambda: working(queue) == "0", "the first")

    def change_placement(job: Job, group: WorkerGroup) -> None:
        (share,) = job.placement[0].shares
        job.placement = (replace(job.placement[0], shares=(replace(share, min_milli=900, max_milli=900),)),)

    queue.node.stop(signal.SIGKILL)
    change(queue, job_id, change_placement)
    queue.start()
    (beside,) = queue.submit("true", 700)
    assert queue.wait_for_end(beside).state == pb.JOB_STATE_COMPLETED, "its room is where it is, and nowhere else"
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_an_elastic_slice_that_has_less_than_its_queue_believes_is_believed(queue: QueueNode) -> None:
    """It was asked to grow, and then to stop, and had not grown: it continues with what it has."""
    bounds = pb.ElasticSpec(gpus_milli_min=250, gpus_milli_max=1000)
    (job_id,) = queue.submit("while [ ! -e go ]; do sleep 0.02; done", 250, elastic=bounds)
    queue.until(job_id, "running")
    wait_until(lambda: f"j-{job_id}" in queue.node.names(), "its slice")
    queue.node.stop(signal.SIGKILL)
    store = Store(queue.node.state)
    jobs = JobStore(store)
    job = jobs.find(job_id)
    assert job
    job.placement = sizes.slice_of(job.placement, 900)
    job.spec = sizes.with_size(job.spec, 900)
    jobs.save([job])
    store.close()
    queue.start()

    def read_size() -> int:
        """On an idle device it may have grown before the former daemon ended, and grow again."""
        return queue.node.get(f"j-{job_id}").devices[0].min_milli

    wait_until(lambda: queue.get(job_id).gpus_milli == read_size() != 900, "the truth")
    (queue.work / "go").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


NONSENSE = [
    ({"samples": 1 << 60, "seconds": 1.0}, "samples"),
    ({"samples": 5, "seconds": float("nan")}, "seconds"),
    ({"samples": 5, "seconds": -1.0}, "seconds"),
    ({"samples": 5}, "in no time"),
    ({"steps": 1 << 63}, "steps"),
]


@pytest.mark.parametrize(("fields", "word"), NONSENSE)
def test_nonsense_is_refused_with_a_sentence(queue: QueueNode, fields: dict[str, float], word: str) -> None:
    (job_id,) = queue.submit("while [ ! -e go ]; do sleep 0.02; done", 200)
    queue.until(job_id, "running")
    code, text = catch_refusal(
        lambda: queue.jobs.ReportProgress(pb.ReportProgressRequest(job_id=job_id, attempt=1, **fields))
    )
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert word in text and "\n" not in text
    (queue.work / "go").touch()
    queue.wait_for_end(job_id)


def test_what_a_program_reports_is_shown(queue: QueueNode) -> None:
    (job_id,) = queue.submit("while [ ! -e go ]; do sleep 0.02; done", 200)
    queue.until(job_id, "running")

    def report_speed() -> float:
        said = pb.ReportProgressRequest(job_id=job_id, attempt=1, samples=640, seconds=1.0, steps=10)
        queue.jobs.ReportProgress(said)
        return queue.get(job_id).samples_per_second

    assert wait_until(report_speed, "its speed") > 0
    later = pb.ReportProgressRequest(job_id=job_id, attempt=2, samples=1, seconds=1.0)
    assert catch_refusal(lambda: queue.jobs.ReportProgress(later))[0] is grpc.StatusCode.FAILED_PRECONDITION
    (queue.work / "go").touch()
    queue.wait_for_end(job_id)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"worker": 7}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"attempt": 9}, grpc.StatusCode.FAILED_PRECONDITION),
        ({"job_id": 999}, grpc.StatusCode.NOT_FOUND),
        ({"store": "nowhere"}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"generation": (1 << 64) - 1}, grpc.StatusCode.INVALID_ARGUMENT),
        ({"seconds": 1.0, "waited_seconds": 2.0}, grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_a_stream_of_no_worker_ends_at_once(queue: QueueNode, fields: dict[str, object], code: grpc.StatusCode) -> None:
    job_id = submit(queue, 1, 2)
    wait_until(lambda: working(queue) == "0", "the first")
    first = pb.WorkRequest(**({"job_id": job_id, "attempt": 1, "worker": 0, "generation": 1} | fields))  # type: ignore[arg-type]
    assert catch_refusal(lambda: list(queue.jobs.Work(iter([first]), timeout=30)))[0] is code
    assert queue.get(job_id).state == pb.JOB_STATE_RUNNING
    assert working(queue) == "0"


def test_the_trail_of_a_job_outlives_the_daemon(queue: QueueNode) -> None:
    job_id = submit(queue, 1, 2)
    wait_until(lambda: working(queue) == "0", "the first")
    (queue.work / "done").touch()
    queue.wait_for_end(job_id)
    queue.restart(signal.SIGTERM)
    store = Store(queue.node.state)
    note_kinds = [note.kind for note in ElasticStore(store).notes(job_id)]
    store.close()
    assert note_kinds[0] == "job.started"
    assert note_kinds[-1] == "job.completed"
    assert "job.workers" in note_kinds


def test_what_an_autoscaler_has_learnt_outlives_the_daemon(queue: QueueNode) -> None:
    job_id = submit(queue, 1, 4, env={"REPORTS": "100"})
    wait_until(lambda: queue.node.messages("job.wished"), "its first wish")
    queue.node.stop(signal.SIGTERM)
    store = Store(queue.node.state)
    kept = json.loads(str(JobStore(store).facts(job_id)["scaler"]))
    store.close()
    assert kept["means"][0][0] == 1
    queue.start()
    wait_until(lambda: working(queue) == "0", "it goes on")
    (queue.work / "done").touch()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_jobs_share_a_device_by_what_is_predicted_also_over_a_restart(queue: QueueNode) -> None:
    shared = pb.Queue(name="default", placement="colocate(120,2)")
    queue.queues.SetQueue(pb.SetQueueRequest(queue=shared))
    script = "while [ ! -e go ]; do sleep 0.02; done"

    def submit_predicted(utilisation: float) -> int:
        known = pb.Range(value=utilisation, low=utilisation / 2, high=utilisation)
        memory = pb.Range(value=1e9, low=1e9, high=1e9)
        given = pb.Prediction(model="net:make", utilisation=known, sm_activity=known, mem_bytes=memory)
        (job_id,) = queue.submit(script, 1000, prediction=given, slice={"mem_max_bytes": 1 << 30})
        return job_id

    one, other, third = submit_predicted(0.4), submit_predicted(0.7), submit_predicted(0.1)
    for job_id in (one, other):
        queue.until(job_id, "running")
        wait_until(lambda name=f"j-{job_id}": name in queue.node.names(), "its slice")
        (share,) = queue.node.get(f"j-{job_id}").devices
        assert (share.min_milli, share.max_milli) == (500, 1000)
    assert queue.get(third).state == pb.JOB_STATE_PENDING, "two to a device"
    queue.restart(signal.SIGKILL)
    assert [round(queue.get(job_id).utilisation, 2) for job_id in (one, other)] == [0.4, 0.7]
    assert queue.get(third).state == pb.JOB_STATE_PENDING
    (queue.work / "go").touch()
    assert {queue.wait_for_end(job_id).state for job_id in (one, other, third)} == {pb.JOB_STATE_COMPLETED}
