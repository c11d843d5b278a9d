"""Jobs that are filtered, changed and notified of, on the fake backend of test_jobs.py."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from tests.api.job_world import ALICE, BOB, ROOT, World
from vgpud.api import jobs as api_jobs
from vgpud.api.caller import Caller
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, JobState
from vgpud.v1alpha1 import vgpud_pb2 as pb


@pytest.fixture
def world() -> World:
    return World()


def test_a_notification_is_the_cores_events_and_the_launchs_ways(world: World) -> None:
    asked = pb.Notification(
        mail="ann@example.org", webhook="https://example.org/hook?a=1", command=["/bin/tell", "a b"]
    )
    world.submit(notification=asked)
    job = world.backend.table[1]
    launch = job.spec.run
    assert isinstance(launch, Launch) and launch.notice is not None
    assert (job.spec.notify, launch.notice.command) == (("end",), ("/bin/tell", "a b"))
    shown = world.call(world.jobs.GetJob, pb.GetJobRequest(job_id=1)).job.spec.notification
    assert shown == pb.Notification(
        events=[pb.NOTIFICATION_EVENT_END], **{n: getattr(asked, n) for n in ("mail", "webhook", "command")}
    )
    assert not world.call(world.jobs.ListJobs, pb.ListJobsRequest()).jobs[0].spec.HasField("notification")


def test_a_job_is_changed_field_by_field(world: World) -> None:
    world.submit(time_limit=Duration(seconds=60), cpu_milli=500)
    before = world.backend.table[1].spec
    changed = pb.JobSpec(slice=pb.SliceSpec(gpus_milli=250, mem_max_bytes=1 << 30), priority=-3)
    paths = ["slice.gpus_milli", "slice.mem_max_bytes", "time_limit", "priority"]
    request = pb.UpdateJobRequest(job_id=1, spec=changed, update_mask=FieldMask(paths=paths))
    shown = world.call(world.jobs.UpdateJob, request).job
    assert (shown.gpus_milli, shown.spec.priority, shown.spec.HasField("time_limit")) == (250, -3, False)
    now = world.backend.table[1].spec
    assert (now.ask.spec.mem_max_bytes, now.time_limit_ns, now.ask.cpu_milli) == (1 << 30, NEVER_NS, 500)
    assert now.kinds != before.kinds, "it is similar to other jobs now"
    assert (now.run, now.name, now.queue) == (before.run, before.name, before.queue)
    assert world.backend.done == [("change", 1, False)]


@pytest.mark.parametrize(
    ("paths", "fields", "says"),
    [
        ([], {}, "nothing to change: name fields of priority, time_limit"),
        (["command"], {}, "'command' of a job cannot be changed: these can"),
        (["priority"], {"priority": 2000}, "priority 2000 is out of range"),
        (["members"], {"members": 5000}, "a gang of 5000 is out of range"),
        (["time_limit"], {"time_limit": Duration(seconds=-1)}, "time_limit -1 s is not a time"),
        (["slice.gpus_milli"], {"slice": pb.SliceSpec(gpus_milli=-5)}, "-0.005"),
        (["queue"], {"queue": "none"}, "no queue 'none'"),
    ],
)
def test_changes_that_are_invalid(world: World, paths: list[str], fields: dict[str, Any], says: str) -> None:
    world.submit()
    request = pb.UpdateJobRequest(job_id=1, spec=pb.JobSpec(**fields), update_mask=FieldMask(paths=paths))
    assert says in world.refusal(world.jobs.UpdateJob, request)[1]
    assert world.backend.done == []


def test_a_list_has_the_jobs_of_its_filter(world: World) -> None:
    for who in (ALICE, BOB, ALICE, ALICE):
        world.submit(who)
    world.backend.change(3, state=JobState.FAILED, ended_ns=5 * SECOND_NS)
    world.backend.change(4, state=JobState.COMPLETED, ended_ns=9 * SECOND_NS)

    def list_ids(who: Caller = ALICE, **fields: Any) -> list[int]:
        answer = world.call(world.jobs.ListJobs, pb.ListJobsRequest(**fields), who)
        return [job.job_id for job in answer.jobs]

    assert list_ids() == [1]
    assert list_ids(ROOT, uid=BOB.uid) == [2]
    assert list_ids(states=[pb.JOB_STATE_FAILED]) == [3], "a final state includes jobs that have ended"
    assert list_ids(states=[pb.JOB_STATE_FAILED, pb.JOB_STATE_PENDING]) == [1, 3]
    assert list_ids(since_time=Timestamp(seconds=6)) == [1, 4], "one that had ended before is not there"
    refused = world.refusal(world.jobs.ListJobs, pb.ListJobsRequest(uid=BOB.uid))
    assert refused == ("PERMISSION_DENIED", f"only admins may list jobs or usage of uid {BOB.uid}: leave it out")
    assert world.refusal(world.queues.GetUsage, pb.GetUsageRequest(uid=BOB.uid))[0] == "PERMISSION_DENIED"
    code, text = world.refusal(world.jobs.ListJobs, pb.ListJobsRequest(states=[77]))
    assert code == "INVALID_ARGUMENT"
    assert "state 77 is none of a job: choose from pending, held" in text


def test_an_array_is_cancelled_by_its_first_job(world: World) -> None:
    from dataclasses import replace

    world.submit(array_indices=[1, 2, 3])
    for job in world.backend.table.values():
        job.spec = replace(job.spec, array=1)
    world.call(world.jobs.CancelJob, pb.CancelJobRequest(job_id=1, whole_array=True))
    assert world.backend.done[0][1] == [1, 2, 3]
    code, message = world.refusal(world.jobs.CancelJob, pb.CancelJobRequest(job_id=2, whole_array=True))
    assert (code, "--array" in message) == ("INVALID_ARGUMENT", True)


def test_users_get_small_pages(world: World) -> None:
    """A page takes its part of the little that a user gets beside others, and each of their clients waits for one."""
    most = api_jobs.USER_PAGE_SIZE_MAX
    for _ in range(most + 1):
        world.submit()
    answer = world.call(world.jobs.ListJobs, pb.ListJobsRequest(page_size=api_jobs.PAGE_SIZE_MAX))
    assert (len(answer.jobs), answer.next_page_token) == (most, str(most))
    assert len(world.call(world.jobs.ListJobs, pb.ListJobsRequest(), ROOT).jobs) == most + 1


@pytest.mark.parametrize(
    ("field", "value", "thing"), [("terminal", True, "a terminal (--pty)"), ("session", "web", "a session")]
)
def test_what_one_program_has_stays_one_programs(world: World, field: str, value: object, thing: str) -> None:
    world.submit(**{field: value})
    for members, says in ((2, f"{thing} for a gang of 2"), (1, "")):
        mask = FieldMask(paths=["members"])
        request = pb.UpdateJobRequest(job_id=1, spec=pb.JobSpec(members=members), update_mask=mask)
        if says:
            assert says in world.refusal(world.jobs.UpdateJob, request)[1]
        else:
            world.call(world.jobs.UpdateJob, request)
    assert world.backend.table[1].spec.members == 1
