"""Times, changes and notifications of jobs by a daemon as a process: what survives its restart, and what users get."""

from __future__ import annotations

import signal
import time

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from tests.daemon.jobs.queue_node import MISSING, queue_node
from tests.daemon.jobs.test_queue_live import catch_refusal
from tests.daemon.node import Node, wait_until
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(MISSING, reason="the simulated driver or vgpu-job is not built")


def timestamp_in(seconds: int) -> Timestamp:
    return Timestamp(seconds=time.time_ns() // 10**9 + seconds)


def test_a_reservation_survives_a_restart_and_keeps_slices_and_jobs_away(node: Node) -> None:
    with queue_node(node) as queue:
        queue.start()
        devices = [device.uuid for device in queue.node.nodes.ListDevices(pb.ListDevicesRequest()).devices]
        window = pb.Reservation(
            name="cabling", device_uuids=["0", *devices], end_time=timestamp_in(3600), reason="new cables"
        )
        made = queue.queues.CreateReservation(pb.CreateReservationRequest(reservation=window)).reservation
        assert made.begin_time.seconds and list(made.device_uuids) == devices, "UUIDs, each once"
        (job_id,) = queue.submit("true", 500)
        queue.restart(signal.SIGKILL)
        listed = queue.queues.ListReservations(pb.ListReservationsRequest()).reservations
        assert [one.name for one in listed] == ["cabling"]
        job = queue.get(job_id)
        assert (job.state, "reservation cabling (for no job: new cables)" in job.reason) == (pb.JOB_STATE_PENDING, True)
        code, text = catch_refusal(lambda: queue.node.create("direct", 500))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "reservation cabling" in text
        queue.queues.DeleteReservation(pb.DeleteReservationRequest(name="cabling"))
        assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED
        queue.node.create("direct", 500)
        queue.node.slices.DeleteSlice(pb.DeleteSliceRequest(name="direct"))


def test_a_signal_before_the_time_limit_and_a_grace_of_its_own(node: Node) -> None:
    with queue_node(node, job_grace_s="0", job_grace_max_s="60") as queue:
        queue.start()
        limits = {"time_limit": Duration(seconds=5), "signal": "USR1", "signal_lead": Duration(seconds=4)}
        script = "trap 'echo signal >> said' USR1; trap 'sleep 0.5; echo grace >> said; exit 3' TERM"
        (job_id,) = queue.submit(f"{script}; while :; do sleep 0.05; done", grace=Duration(seconds=50), **limits)
        assert queue.wait_for_end(job_id).state == pb.JOB_STATE_TIMED_OUT
        assert queue.read_file("said").split() == ["signal", "grace"]
        code, text = catch_refusal(lambda: queue.submit("true", grace=Duration(seconds=61)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "a grace of 61 s is above 60 s (job_grace_max_s)" in text


def test_a_changed_job_and_a_later_begin_survive_a_restart(node: Node) -> None:
    with queue_node(node) as queue:
        queue.start()
        (job_id,) = queue.submit("true", 500, begin_time=timestamp_in(3600))
        assert "it was submitted to begin in" in queue.get(job_id).reason
        changed = pb.JobSpec(slice=pb.SliceSpec(gpus_milli=250), priority=-4)
        mask = FieldMask(paths=["slice.gpus_milli", "priority"])
        queue.jobs.UpdateJob(pb.UpdateJobRequest(job_id=job_id, spec=changed, update_mask=mask))
        queue.restart(signal.SIGKILL)
        job = queue.get(job_id)
        assert (job.state, job.gpus_milli, job.spec.priority) == (pb.JOB_STATE_PENDING, 250, -4)
        queue.jobs.UpdateJob(pb.UpdateJobRequest(job_id=job_id, update_mask=FieldMask(paths=["begin_time"])))
        assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED


def test_an_array_with_a_limit_and_a_notification(node: Node) -> None:
    with queue_node(node) as queue:
        queue.start()
        out = queue.work / "told"
        tell = pb.Notification(
            events=[pb.NOTIFICATION_EVENT_END], command=["/bin/sh", "-c", f"echo $VGPU_ARRAY_INDEX >> {out}"]
        )
        script = "while [ ! -e go ]; do sleep 0.02; done"
        ids = queue.submit(script, 100, array_indices=[0, 4, 7], array_limit=1, notification=tell)
        queue.until(ids[0], "running")
        assert [queue.get(job_id).state for job_id in ids[1:]] == [pb.JOB_STATE_PENDING, pb.JOB_STATE_PENDING]
        assert "the array of job" in queue.get(ids[2]).reason
        (queue.work / "go").touch()
        assert [queue.wait_for_end(job_id).state for job_id in ids] == [pb.JOB_STATE_COMPLETED] * 3
        wait_until(lambda: out.exists() and sorted(out.read_text().split()) == ["0", "4", "7"], "three notifications")
