"""The queue's services on a fake backend: requests become the core's values, invalid ones are refused."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.protobuf.timestamp_pb2 import Timestamp

from tests.api.job_world import ALICE, BOB, PID, ROOT, AbortError, Context, World, spec
from vgpud.api import job_messages
from vgpud.api import jobs as api_jobs
from vgpud.api.caller import Caller, set_caller
from vgpud.core.jobs import session
from vgpud.core.jobs.facts import Launch, UsageRow
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, JobState, QueueSpec
from vgpud.core.policy.registry import NEW_QUEUE
from vgpud.core.units import INT64_MAX
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words


@pytest.fixture
def world() -> World:
    return World()


def test_a_job_as_the_core_knows_it(world: World) -> None:
    ids = world.submit(
        members=4,
        priority=-5,
        time_limit=Duration(seconds=9000, nanos=1),
        expected_duration=Duration(seconds=60),
        retries=2,
        cpu_milli=2500,
        ram_bytes=1 << 30,
        environment={"B": "2", "A": "1"},
        umask=0o27,
        limits=[pb.ResourceLimit(name="nofile"), pb.ResourceLimit(name="core", soft=0, hard=0)],
        log="logs/%j-%a.txt",
        skew=0.25,
        not_preemptible=True,
        hold=True,
        array_indices=[3, 4, 5],
    )
    assert ids == [1, 2, 3]
    (made,) = world.backend.submissions
    core = made.spec
    assert (made.count, made.held, made.request_id, core.index) == (3, True, "r", 3)
    assert (core.uid, core.queue, core.name, core.members, core.priority) == (1000, "default", "train", 4, -5)
    assert (core.time_limit_ns, core.duration_ns, core.retries) == (9000 * SECOND_NS + 1, 60 * SECOND_NS, 2)
    assert (core.skew_ppm, core.preemptible, core.ask.cpu_milli) == (250_000, False, 2500)
    launch = core.run
    assert isinstance(launch, Launch)
    assert (launch.uid, launch.gid, launch.gids, launch.umask) == (1000, 1000, (44,), 0o27)
    assert launch.environment == (("A", "1"), ("B", "2"))
    assert launch.log_path(7, 3) == "/home/alice/logs/7-3.txt"
    held = {name: (soft, hard) for name, soft, hard in launch.limits}
    own = api_jobs.own_limits(ALICE)
    assert held["core"] == (0, 0)
    assert held["nofile"] == (own["nofile"][1], own["nofile"][1])  # asked for none: as much as the user's own limit
    assert held["stack"] == own["stack"]  # not asked for: the user's own, not the daemon's


def test_defaults_are_none(world: World) -> None:
    world.submit(image="pytorch/pytorch:latest", command=[])
    core = world.backend.submissions[0].spec
    assert (core.time_limit_ns, core.duration_ns, core.skew_ppm, core.preemptible) == (NEVER_NS, 0, -1, True)
    assert (core.members, core.index, core.name) == (1, 0, "pytorch:latest")
    assert isinstance(core.run, Launch)
    assert core.run.log_path(12, 0) == "/home/alice/vgpu-12.log"


def test_a_limit_is_never_above_the_callers_own() -> None:
    asked = spec(limits=[pb.ResourceLimit(name="nofile", soft=4096)])
    launch = job_messages.launch_from(asked, 1, 1, (), {"nofile": (1024, 2048), "core": (0, -1)})
    assert launch.limits == (("core", 0, -1), ("nofile", 2048, 2048))


def test_percent_signs_in_a_log_path() -> None:
    asked = spec(directory="/home/100%j", log="%%a-%a-%%%j.log")
    launch = job_messages.launch_from(asked, 1, 1, (), {})
    assert launch.log_path(5, 2) == "/home/100%j/%a-2-%5.log"


def test_a_session_has_a_token_of_its_own() -> None:
    asked = spec(session="jupyter", environment={"VGPU_SESSION_TOKEN": "of the session that submits", "A": "1"})
    first, second = (dict(job_messages.launch_from(asked, 1, 1, (), {}).environment) for _ in range(2))
    assert first["A"] == "1" and re.fullmatch("[0-9a-f]{64}", first["VGPU_SESSION_TOKEN"])
    assert first["VGPU_SESSION_TOKEN"] != second["VGPU_SESSION_TOKEN"]


def test_only_a_balancer_needs_no_device(world: World) -> None:
    command = session.balancer_command("/usr/bin/python3", "/home/a/chat")
    own = spec(session="balancer", slice=pb.SliceSpec(), command=command)
    world.call(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=own))
    for other in (["mine", "-m", "vgpud.services", "chat"], ["python3", "-m", "mine", "/x"], ["python3"], ["a", "b"]):
        request = pb.SubmitJobRequest(spec=spec(session="balancer", slice=pb.SliceSpec(), command=other))
        assert "a balancer runs vgpud's own program" in world.refusal(world.jobs.SubmitJob, request)[1]
    shown = world.call(world.jobs.GetJob, pb.GetJobRequest(job_id=1)).job
    assert shown.spec.session == "balancer" and shown.spec.slice.gpus_milli == 0
    request = pb.SubmitJobRequest(spec=spec(session="replica", slice=pb.SliceSpec()))
    assert world.refusal(world.jobs.SubmitJob, request)[0] == "INVALID_ARGUMENT"


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"session": "emacs"}, "INVALID_ARGUMENT", "write one of jupyter, code, rstudio, shell, web"),
    ({"session_ports": ["tb"]}, "INVALID_ARGUMENT", "session_ports of a job that is no session"),
    ({"idle_after": Duration(seconds=60)}, "INVALID_ARGUMENT", "idle_after of a job that is no session"),
    ({"session": "web", "idle_after": Duration(seconds=59)}, "INVALID_ARGUMENT", "less than a minute"),
    ({"session": "web", "idle_after": Duration(seconds=-1)}, "INVALID_ARGUMENT", "less than a minute"),
    ({"session": "web", "session_ports": ["a/b"]}, "INVALID_ARGUMENT", "'a/b' is no name of a port"),
    ({"session": "web", "session_ports": ["tb", "tb"]}, "INVALID_ARGUMENT", "two ports have the same name"),
    ({"session": "web", "session_ports": list("abcdefghi")}, "INVALID_ARGUMENT", "at most 8"),
    (
        {"session": "balancer", "image": "a", "command": session.balancer_command("/usr/bin/python3", "/home/a/chat")},
        "INVALID_ARGUMENT",
        "leave the image out",
    ),
    ({"session": "web", "array_indices": [1, 2]}, "INVALID_ARGUMENT", "a session for an array"),
    ({"session": "web", "members": 2}, "INVALID_ARGUMENT", "a session for a gang of 2"),
    ({"command": []}, "INVALID_ARGUMENT", "nothing to run"),
    ({"command": [""]}, "INVALID_ARGUMENT", "empty word"),
    ({"command": ["a\0b"]}, "INVALID_ARGUMENT", "zero byte"),
    ({"slice": pb.SliceSpec()}, "INVALID_ARGUMENT", "0 GPUs"),
    ({"slice": pb.SliceSpec(gpus_milli=500, min_milli=900, max_milli=800)}, "INVALID_ARGUMENT", "min 0.9"),
    ({"members": 1_000_000}, "INVALID_ARGUMENT", "a gang of 1000000"),
    ({"time_limit": Duration(seconds=-5)}, "INVALID_ARGUMENT", "time_limit -5 s"),
    ({"time_limit": Duration()}, "INVALID_ARGUMENT", "time_limit 0 s"),
    ({"time_limit": Duration(seconds=315_576_000_000)}, "INVALID_ARGUMENT", "ten years"),
    ({"expected_duration": Duration(seconds=-1)}, "INVALID_ARGUMENT", "expected_duration -1 s"),
    ({"retries": 1001}, "INVALID_ARGUMENT", "retries 1001"),
    ({"priority": 1001}, "INVALID_ARGUMENT", "priority 1001"),
    ({"array_indices": range(1, 10_002)}, "INVALID_ARGUMENT", "10001 jobs"),
    ({"array_indices": [2, 1, 2]}, "INVALID_ARGUMENT", "index 2 twice"),
    ({"array_indices": [5, 2, 5]}, "INVALID_ARGUMENT", "array has index 5 twice: name each once"),
    ({"array_indices": range(10_001)}, "INVALID_ARGUMENT", "array has 10001 jobs: at most 10000"),
    (
        {"notification": pb.Notification(events=[pb.NOTIFICATION_EVENT_END])},
        "INVALID_ARGUMENT",
        "without mail, webhook or command: name one",
    ),
    ({"notification": pb.Notification(mail="a@b", events=[77])}, "INVALID_ARGUMENT", "'77' is no event of a job"),
    ({"notification": pb.Notification(mail="-oQ/tmp a@b")}, "INVALID_ARGUMENT", "'-oQ/tmp a@b' is not a mail address"),
    ({"notification": pb.Notification(mail="a@b\nBcc: c@d")}, "INVALID_ARGUMENT", "is not a mail address"),
    ({"notification": pb.Notification(webhook="file:///etc/passwd")}, "INVALID_ARGUMENT", "is not a webhook"),
    ({"notification": pb.Notification(webhook="http://")}, "INVALID_ARGUMENT", "'http://' is not a webhook"),
    ({"notification": pb.Notification(webhook="http://[a/")}, "INVALID_ARGUMENT", "is not a webhook"),
    ({"notification": pb.Notification(webhook="http://a/" + "x" * 2000)}, "INVALID_ARGUMENT", "more than 2000 bytes"),
    ({"notification": pb.Notification(command=["true"])}, "INVALID_ARGUMENT", "'true' is not a program: write its"),
    ({"notification": pb.Notification(command=["/x", "a" * 4000])}, "INVALID_ARGUMENT", "more than 4000 bytes"),
    ({"begin_time": Timestamp(seconds=1 << 40)}, "INVALID_ARGUMENT", "begin_time at 1099511627776 s since 1970 is out"),
    ({"begin_time": Timestamp(seconds=-1)}, "INVALID_ARGUMENT", "begin_time at -1 s since 1970 is out of range"),
    ({"array_limit": 2}, "INVALID_ARGUMENT", "array_limit 2 without an array: name its indices"),
    (
        {"array_indices": [1, 2, 3], "array_limit": 10_001},
        "INVALID_ARGUMENT",
        "array_limit 10001 is out of range",
    ),
    ({"after": [-3]}, "INVALID_ARGUMENT", "after -3"),
    ({"after": [77]}, "NOT_FOUND", "no job 77"),
    ({"after": range(1, 10_002)}, "INVALID_ARGUMENT", "10001 jobs"),
    ({"cpu_milli": -1}, "INVALID_ARGUMENT", "cpu_milli -1"),
    ({"ram_bytes": -1}, "INVALID_ARGUMENT", "ram_bytes -1"),
    ({"skew": 1.5}, "INVALID_ARGUMENT", "skew 1.5"),
    ({"skew": math.nan}, "INVALID_ARGUMENT", "skew nan"),
    ({"queue": "nobody"}, "NOT_FOUND", "no queue 'nobody'"),
    ({"queue": "bob"}, "PERMISSION_DENIED", "queue bob is not for uid 1000"),
    ({"name": "a\nb"}, "INVALID_ARGUMENT", "cannot be printed"),
    ({"name": "n" * 101}, "INVALID_ARGUMENT", "101 bytes"),
    ({"directory": "train"}, "INVALID_ARGUMENT", "not absolute"),
    ({"directory": ""}, "INVALID_ARGUMENT", "not absolute"),
    ({"directory": "/a\0b"}, "INVALID_ARGUMENT", "directory is not a path"),
    ({"log": "out/"}, "INVALID_ARGUMENT", "is a folder"),
    ({"log": "%d.log"}, "INVALID_ARGUMENT", "a % that means nothing"),
    ({"log": "x" * 5000}, "INVALID_ARGUMENT", "log is not a path"),
    ({"umask": 0o1777}, "INVALID_ARGUMENT", "umask"),
    ({"image": "--privileged"}, "INVALID_ARGUMENT", "'--privileged'"),
    ({"image": "a b"}, "INVALID_ARGUMENT", "'a b'"),
    ({"environment": {"A=B": "1"}}, "INVALID_ARGUMENT", "'A=B'"),
    ({"environment": {"": "1"}}, "INVALID_ARGUMENT", "''"),
    ({"environment": {"BIG": "x" * 200_000}}, "INVALID_ARGUMENT", "leave variables out"),
    ({"limits": [pb.ResourceLimit(name="files", soft=1, hard=1)]}, "INVALID_ARGUMENT", "'files'"),
    ({"limits": [pb.ResourceLimit(name="nofile", soft=5, hard=1)]}, "INVALID_ARGUMENT", "nofile of 5:1"),
    ({"limits": [pb.ResourceLimit(name="nofile", soft=-2, hard=1)]}, "INVALID_ARGUMENT", "nofile of -2:1"),
    ({"limits": [pb.ResourceLimit(name="nofile", hard=1)]}, "INVALID_ARGUMENT", "nofile of unlimited:1"),
]


@pytest.mark.parametrize(("fields", "code", "part"), BAD)
def test_what_is_invalid(world: World, fields: dict[str, Any], code: str, part: str) -> None:
    got, message = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec(**fields)))
    assert got == code
    assert part in message
    assert world.backend.submissions == []


def test_who_has_ended_submits_nothing(world: World) -> None:
    for gone in (Caller(1000, 1000, (), 0, admin=False), Caller(1000, 1000, (), PID, admin=False, start_ticks=1)):
        code, message = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec()), gone)
        assert code == "FAILED_PRECONDITION"
        assert "resource limits" in message
    assert world.backend.submissions == []


def test_after_a_job_that_will_never_complete(world: World) -> None:
    world.submit()
    world.submit(after=[1])
    assert world.backend.submissions[-1].spec.after == (1,)
    world.backend.change(1, state=JobState.FAILED)
    code, message = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec(after=[1])))
    assert code == "FAILED_PRECONDITION"
    assert "has failed" in message and "--after-any" in message
    world.submit(after=[1], after_any=True)
    assert world.backend.submissions[-1].spec.after_any


def test_dependencies_by_what_the_other_jobs_must_do(world: World) -> None:
    for _ in range(3):
        world.submit()
    world.submit(after=[2], after_fail=[1], after_end=[3])
    made = world.backend.submissions[-1].spec
    assert (made.after, made.after_fail, made.after_end) == ((1, 2, 3), (1,), (3,))
    shown = world.call(world.jobs.GetJob, pb.GetJobRequest(job_id=4)).job.spec
    assert (list(shown.after), list(shown.after_fail), list(shown.after_end)) == ([2], [1], [3])
    world.backend.change(1, state=JobState.COMPLETED)
    code, message = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec(after_fail=[1])))
    assert code == "FAILED_PRECONDITION" and "has completed: it will not fail" in message


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"after": [1], "after_fail": [1]}, "job 1 is to be waited for in several ways: name it once"),
        ({"after_fail": [0]}, "after_fail 0 is not a job"),
        ({"after_end": range(1, 6001), "after_fail": range(6001, 12001)}, "after names 12000 jobs: at most 10000"),
    ],
)
def test_dependencies_that_are_refused(world: World, fields: dict[str, Any], message: str) -> None:
    world.submit()
    code, said = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec(**fields)))
    assert code == "INVALID_ARGUMENT" and message in said


def test_a_signal_and_a_grace_are_kept(world: World) -> None:
    ways = {"signal": "USR1", "signal_lead": Duration(seconds=300), "grace": Duration(seconds=60)}
    world.submit(time_limit=Duration(seconds=3600), **ways)
    made = world.backend.submissions[-1].spec
    assert isinstance(made.run, Launch)
    assert (made.signal_lead_ns, made.run.signal, made.run.grace_ms) == (300 * SECOND_NS, "USR1", 60_000)
    shown = world.call(world.jobs.GetJob, pb.GetJobRequest(job_id=1)).job.spec
    assert {name: getattr(shown, name) for name in ways} == ways
    world.submit()
    made = world.backend.submissions[-1].spec
    assert isinstance(made.run, Launch)
    assert (made.signal_lead_ns, made.run.signal, made.run.grace_ms) == (0, "", -1)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"signal": "KILL", "signal_lead": Duration(seconds=1)}, "signal 'KILL' cannot be sent: choose from HUP, INT"),
        ({"signal": "USR1"}, "give both"),
        ({"signal": "USR1", "signal_lead": Duration(seconds=1)}, "a signal is sent before the time limit"),
        (
            {"signal": "USR1", "signal_lead": Duration(seconds=60), "time_limit": Duration(seconds=60)},
            "a signal 60 s before the time limit, which is no longer than that",
        ),
        ({"signal_lead": Duration(seconds=1)}, "give both"),
        ({"signal": "USR1", "signal_lead": Duration()}, "signal_lead 0 s is not a time"),
        ({"grace": Duration(seconds=-1)}, "grace -1 s is not a time"),
    ],
)
def test_a_signal_or_a_grace_that_is_refused(world: World, fields: dict[str, Any], message: str) -> None:
    code, said = world.refusal(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec(**fields)))
    assert code == "INVALID_ARGUMENT" and message in said


def test_a_job_is_shown_as_it_was_asked(world: World) -> None:
    share = pb.SliceSpec(gpus_milli=500, max_milli=800, service_class=pb.SERVICE_CLASS_BATCH)
    limit = Duration(seconds=60)
    asked = spec(slice=share, members=2, environment={"A": "1"}, time_limit=limit, log="/tmp/%j", skew=0.5)
    world.call(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=asked))
    job = world.call(world.jobs.GetJob, pb.GetJobRequest(job_id=1)).job
    for field in ("slice", "members", "time_limit", "environment", "directory", "command", "skew", "log"):
        assert getattr(job.spec, field) == getattr(asked, field), field
    assert (job.node, job.job_id, job.uid, job.state, job.log) == ("n1", 1, 1000, pb.JOB_STATE_PENDING, "/tmp/1")
    assert (list(job.slices), list(job.device_indices), job.gpu_seconds_granted) == (["j-1"], [3], 1.5)
    assert job.submit_time.seconds == 1 and not job.HasField("start_time") and not job.HasField("estimated_start_time")
    (listed,) = world.call(world.jobs.ListJobs, pb.ListJobsRequest()).jobs
    assert not listed.spec.environment and not listed.spec.limits


def test_a_jobs_start_stays_what_it_was_when_it_is_resumed(world: World) -> None:
    world.call(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec()))
    world.backend.change(1, state=JobState.RUNNING, attempt=1, first_started_ns=5 * 10**9, started_ns=50 * 10**9)
    assert world.call(world.jobs.GetJob, pb.GetJobRequest(job_id=1)).job.start_time.seconds == 5


def test_a_jobs_environment_is_shown_to_its_owner_alone(world: World) -> None:
    world.call(world.jobs.SubmitJob, pb.SubmitJobRequest(spec=spec(environment={"API_KEY": "secret"})))
    assert world.call(world.jobs.GetJob, pb.GetJobRequest(job_id=1)).job.spec.environment == {"API_KEY": "secret"}
    shown = world.call(world.jobs.GetJob, pb.GetJobRequest(job_id=1), ROOT).job
    assert shown.spec.directory and not shown.spec.environment, "an admin"


def test_everyone_sees_and_changes_their_own(world: World) -> None:
    world.submit()
    world.submit(who=BOB)
    for who, ids in ((ALICE, [1]), (BOB, [2]), (ROOT, [1, 2])):
        listed = world.call(world.jobs.ListJobs, pb.ListJobsRequest(), who).jobs
        assert [job.job_id for job in listed] == ids
    calls = {
        "GetJob": pb.GetJobRequest(job_id=2),
        "CancelJob": pb.CancelJobRequest(job_id=2),
        "HoldJob": pb.HoldJobRequest(job_id=2),
        "ReleaseJob": pb.ReleaseJobRequest(job_id=2),
        "RequeueJob": pb.RequeueJobRequest(job_id=2),
        "SuspendJob": pb.SuspendJobRequest(job_id=2),
        "ResumeJob": pb.ResumeJobRequest(job_id=2),
        "UpdateJob": pb.UpdateJobRequest(job_id=2, update_mask=FieldMask(paths=["priority"])),
        "SubmitJob": pb.SubmitJobRequest(spec=spec(after=[2])),
    }
    for method, request in calls.items():
        assert world.refusal(getattr(world.jobs, method), request)[0] == "PERMISSION_DENIED", method
    assert world.backend.done == []
    assert world.refusal(world.jobs.GetJob, pb.GetJobRequest(job_id=9))[0] == "NOT_FOUND"
    world.call(world.jobs.CancelJob, pb.CancelJobRequest(job_id=2), ROOT)
    world.call(world.jobs.CancelJob, pb.CancelJobRequest(job_id=2), BOB)
    assert world.backend.done == [("cancel", [2], "cancelled by uid 0"), ("cancel", [2], "cancelled by its owner")]
    assert world.refusal(world.jobs.HoldJob, pb.HoldJobRequest(job_id=2), BOB)[0] == "FAILED_PRECONDITION"


def test_pages_of_jobs_hold_all_and_none_twice(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_jobs, "PAGE_BYTES_MAX", 1000)
    for _ in range(25):
        world.submit()
    for size in (0, 1, 7, 25, 1000):
        request, seen, pages = pb.ListJobsRequest(page_size=size), [], 0
        while True:
            answer = world.call(world.jobs.ListJobs, request)
            seen += [job.job_id for job in answer.jobs]
            pages += 1
            if not answer.next_page_token:
                break
            request.page_token = answer.next_page_token
        assert seen == list(range(1, 26))
        assert pages > 1
    code, _ = world.refusal(world.jobs.ListJobs, pb.ListJobsRequest(page_token="x"))  # noqa: S106
    assert code == "INVALID_ARGUMENT"


def test_what_will_not_change_is_made_once(world: World) -> None:
    world.submit()
    world.submit()
    world.backend.change(1, state=JobState.COMPLETED, ended_ns=5 * SECOND_NS)
    listed = [world.call(world.jobs.ListJobs, pb.ListJobsRequest(include_ended=True)) for _ in range(3)]
    assert listed[0] == listed[2]
    assert world.backend.looked_at == 1 + 3, "the one that has ended, and the other each time"
    world.backend.change(1, state=JobState.PENDING)  # queued again
    assert world.call(world.jobs.ListJobs, pb.ListJobsRequest()).jobs[0].state == pb.JOB_STATE_PENDING
    world.backend.change(1, state=JobState.FAILED, ended_ns=9 * SECOND_NS)
    assert world.call(world.jobs.ListJobs, pb.ListJobsRequest(include_ended=True)).jobs[0].state == pb.JOB_STATE_FAILED


def test_pages_of_usage_and_queues(world: World) -> None:
    world.backend.rows = [UsageRow("default", 1000, 1, 1, 1, 1, job_id=number) for number in range(1, 13)]
    request, seen = pb.GetUsageRequest(by=pb.USAGE_BY_JOB, page_size=5), []
    while True:
        answer = world.call(world.queues.GetUsage, request)
        seen.append([row.job_id for row in answer.usage])
        request.page_token = answer.next_page_token
        if not answer.next_page_token:
            break
    assert seen == [[1, 2, 3, 4, 5], [6, 7, 8, 9, 10], [11, 12]]
    assert not world.queues._summed, "nothing is kept for a reader who has had all"
    world.backend.rows = world.backend.rows * 100
    answer = world.call(world.queues.GetUsage, pb.GetUsageRequest(by=pb.USAGE_BY_JOB))
    assert len(answer.usage) == 1000
    assert answer.next_page_token
    queues = pb.ListQueuesRequest(page_size=1)
    first = world.call(world.queues.ListQueues, queues, BOB)
    queues.page_token = first.next_page_token
    rest = world.call(world.queues.ListQueues, queues, BOB)
    assert [queue.name for answer in (first, rest) for queue in answer.queues] == ["bob", "default"]
    assert not rest.next_page_token
    code, _ = world.refusal(world.queues.GetUsage, pb.GetUsageRequest(page_token="*"))  # noqa: S106
    assert code == "INVALID_ARGUMENT"


def test_a_watch_tells_all_at_first_and_then_what_changes(world: World) -> None:
    world.submit()
    world.submit(who=BOB)
    world.submit()

    async def watch(request: pb.WatchJobsRequest, steps: Sequence[Any]) -> list[list[tuple[int, str]]]:
        set_caller(ALICE)
        seen = []
        stream: Any = world.jobs.WatchJobs(request, Context())
        for step in (None, *steps):
            if step:
                world.backend.change(*step[:1], **step[1])
            message = await asyncio.wait_for(anext(stream), 5)
            seen.append([(job.job_id, words.JOB_STATE.to_word(job.state)) for job in message.jobs])
        await stream.aclose()
        return seen

    world.backend.change(2, state=JobState.RUNNING)
    runs = {"state": JobState.RUNNING}
    seen = asyncio.run(watch(pb.WatchJobsRequest(), [(3, runs), (1, runs)]))
    assert seen == [[(1, "pending"), (3, "pending")], [(3, "running")], [(1, "running")]]
    assert asyncio.run(watch(pb.WatchJobsRequest(job_ids=[3]), [(3, {})])) == [[(3, "running")]] * 2
    with pytest.raises(AbortError):
        asyncio.run(watch(pb.WatchJobsRequest(job_ids=[2]), []))


# ---- queues ----


def set_queue(world: World, mask: Sequence[str] = (), **fields: Any) -> QueueSpec:
    request = pb.SetQueueRequest(queue=pb.Queue(**{"name": "team", **fields}))
    request.update_mask.paths.extend(mask)
    world.call(world.queues.SetQueue, request, ROOT)
    return world.backend.tree[request.queue.name]


def test_a_queue_is_made_and_changed_field_by_field(world: World) -> None:
    made = set_queue(world, guarantee_milli=2000, limit_milli=4000, weight=3, members=["uid:1000", "gid:44"])
    assert made == QueueSpec("team", guarantee_milli=2000, limit_milli=4000, weight=3, policy=NEW_QUEUE)
    assert world.backend.members["team"] == ("uid:1000", "gid:44")
    made = set_queue(world, policy="2d-las(3250,7200)", strict=True, min_run=Duration())
    assert (made.policy, made.strict, made.min_run_ns, made.limit_milli) == ("2d-las(3250,7200)", True, 0, 4000)
    made = set_queue(world, mask=("limit_milli", "backfill"), backfill=False)
    assert (made.limit_milli, made.backfill, made.strict) == (NEVER_NS, False, True)
    made = set_queue(world, mask=["guarantee_milli", "members", "policy"])
    assert (made.guarantee_milli, made.policy) == (0, NEW_QUEUE)
    assert not world.backend.members.get("team")
    child = set_queue(world, name="team-alice", parent="team")
    assert child.parent == "team"
    set_queue(world, name="team-alice", mask=["parent"])
    assert world.backend.tree["team-alice"].parent == ""


BAD_QUEUES: list[tuple[dict[str, Any], str]] = [
    ({"name": ""}, "queue ''"),
    ({"name": "a b"}, "queue 'a b'"),
    ({"name": "x" * 41}, "up to 40"),
    ({"guarantee_milli": -1}, "guarantee_milli -1"),
    ({"limit_milli": -1}, "limit_milli -1"),
    ({"guarantee_milli": 5000, "limit_milli": 4000}, "guarantee 5 is above limit 4"),
    ({"weight": 0}, "weight 0"),
    ({"weight": 10_001}, "weight 10001"),
    ({"policy": "lottery"}, "'lottery'"),
    ({"policy": "2d-las(7200,3250)"}, "2d-las"),
    ({"placement": "worst"}, "worst"),
    ({"min_run": Duration(seconds=-1)}, "min_run -1 s"),
    ({"elastic_wait": Duration(seconds=-1)}, "elastic_wait -1 s"),
    ({"elastic_idle": Duration(seconds=10**10)}, "write a value from 0 s to a year"),
    ({"placement": "colocate(0)"}, "0 % of a device is out of range"),
    ({"cpu_limit_milli": -7}, "cpu_limit_milli -7"),
    ({"members": ["alice"]}, "'alice'"),
    ({"parent": "nobody"}, "'nobody'"),
    ({"parent": "team"}, "'team'"),
    ({"parent": "low"}, "low is itself below high"),
    ({"name": "high", "parent": "default"}, "high has low below it"),
    ({"name": "default", "parent": "bob"}, "default"),
]


@pytest.mark.parametrize(("fields", "part"), BAD_QUEUES)
def test_queues_that_are_invalid(world: World, fields: dict[str, Any], part: str) -> None:
    set_queue(world, name="high")
    set_queue(world, name="low", parent="high")
    before = dict(world.backend.tree)
    request = pb.SetQueueRequest(queue=pb.Queue(**{"name": "team", **fields}))
    code, message = world.refusal(world.queues.SetQueue, request, ROOT)
    assert code == "INVALID_ARGUMENT"
    assert part in message
    assert world.backend.tree == before


def test_a_queue_is_shown_as_it_was_set(world: World) -> None:
    fields: dict[str, Any] = {"guarantee_milli": 2000, "weight": 3, "policy": "fifo", "spread": True}
    set_queue(world, parent="bob", min_run=Duration(seconds=90), members=["gid:7"], **fields)
    listed = {q.name: q for q in world.call(world.queues.ListQueues, pb.ListQueuesRequest(), ROOT).queues}
    assert set(listed) == {"bob", "default", "team"}
    for field, value in fields.items():
        assert getattr(listed["team"], field) == value
    team = listed["team"]
    assert not team.HasField("limit_milli")
    assert (team.parent, team.min_run.seconds, list(team.members)) == ("bob", 90, ["gid:7"])
    assert (team.used_milli, team.running, team.pending, team.history_gpu_seconds) == (500, 1, 2, 2.0)


def test_users_see_the_queues_that_are_for_them_and_those_above(world: World) -> None:
    set_queue(world, members=["gid:44"], parent="bob")
    for who, names in ((ALICE, ["bob", "default", "team"]), (BOB, ["bob", "default", "team"])):
        listed = world.call(world.queues.ListQueues, pb.ListQueuesRequest(), who).queues
        assert [q.name for q in listed] == names
    other = Caller(5, 5, (), 1, admin=False)
    listed = world.call(world.queues.ListQueues, pb.ListQueuesRequest(), other).queues
    assert [q.name for q in listed] == ["default"]


def test_queues_go(world: World) -> None:
    world.call(world.queues.DeleteQueue, pb.DeleteQueueRequest(name="bob"), ROOT)
    assert set(world.backend.tree) == {"default"}
    assert world.refusal(world.queues.DeleteQueue, pb.DeleteQueueRequest(name="bob"), ROOT)[0] == "NOT_FOUND"


def test_usage_is_the_callers_own(world: World) -> None:
    service = 3_600_000 * SECOND_NS
    used = UsageRow("default", 1000, 2 * service, service, 0, 1, job_id=7, state="completed", members=2)
    world.backend.rows = [replace(used, copy_to_device_bytes=5 << 30, copy_from_device_bytes=1 << 70)]
    request = pb.GetUsageRequest(by=pb.USAGE_BY_JOB)
    request.since_time.FromSeconds(100)
    (row,) = world.call(world.queues.GetUsage, request).usage
    assert (row.gpu_seconds_asked, row.gpu_seconds_granted) == (7200.0, 3600.0)
    assert (row.job_id, row.state) == (7, pb.JOB_STATE_COMPLETED)
    copies = (row.copy_to_device_bytes, row.copy_from_device_bytes)
    assert copies == (5 << 30, INT64_MAX), "what a program claims makes no answer fail"
    world.call(world.queues.GetUsage, pb.GetUsageRequest(), ROOT)
    assert world.backend.done == [
        ("usage", 100 * SECOND_NS, NEVER_NS, "job", 1000),
        ("usage", 0, NEVER_NS, "user", None),
    ]
    assert world.refusal(world.queues.GetUsage, pb.GetUsageRequest(by=77))[0] == "INVALID_ARGUMENT"
    request.until_time.FromSeconds(50)
    assert world.refusal(world.queues.GetUsage, request)[0] == "INVALID_ARGUMENT"


def test_times_and_numbers_that_the_store_cannot_hold_are_cut_off(world: World) -> None:
    request = pb.GetUsageRequest()
    request.since_time.seconds, request.until_time.seconds = -(1 << 62), 1 << 62
    world.call(world.queues.GetUsage, request, ROOT)
    assert world.backend.done == [("usage", 0, NEVER_NS, "user", None)]
    assert not world.call(world.jobs.ListJobs, pb.ListJobsRequest(page_token="9" * 19, include_ended=True), ROOT).jobs
