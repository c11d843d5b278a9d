"""What of a job is its owner's alone: no answer has it for others, whatever the method. Admins are others."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.field_mask_pb2 import FieldMask

from tests.api.job_world import ALICE, ROOT, Context, World, spec
from vgpud.api.caller import Caller, set_caller
from vgpud.core.jobs.facts import Fact, Launch
from vgpud.v1alpha1 import vgpud_pb2 as pb

ADMIN = Caller(1002, 1002, (44,), ALICE.pid, admin=True, start_ticks=ALICE.start_ticks)  # a member of admin_group
SECRETS = {b"key-of-alice", b"hook-of-alice", b"pass-of-alice"}
HOOK = "https://alice:pass-of-alice@hooks.example:444/services/hook-of-alice?t=hook-of-alice"
REQUESTS = {
    "GetJob": pb.GetJobRequest(job_id=1),
    "ListJobs": pb.ListJobsRequest(include_ended=True),
    "ExplainJob": pb.ExplainJobRequest(job_id=1),
    "UpdateJob": pb.UpdateJobRequest(job_id=1, spec=pb.JobSpec(priority=3), update_mask=FieldMask(paths=["priority"])),
    "CancelJob": pb.CancelJobRequest(job_id=1),
}


@pytest.fixture
def world() -> World:
    made = World()

    async def explain(job: object, uid: int | None) -> Sequence[Fact]:
        return ()

    made.backend.explain = explain  # type: ignore[attr-defined]
    notification = pb.Notification(events=[pb.NOTIFICATION_EVENT_END], webhook=HOOK)
    asked = spec(environment={"API_KEY": "key-of-alice"}, notification=notification)
    made.call(made.jobs.SubmitJob, pb.SubmitJobRequest(spec=asked))
    return made


async def first_of(stream: Any) -> Any:
    answer = await stream.__anext__()
    await stream.aclose()
    return answer


def find_secrets(world: World, who: Caller) -> dict[str, set[bytes]]:
    """What each method's answer has of the secrets."""
    answers = {name: world.call(getattr(world.jobs, name), request, who) for name, request in REQUESTS.items()}

    async def watch(request: pb.WatchJobsRequest) -> Any:
        set_caller(who)
        return await first_of(world.jobs.WatchJobs(request, Context()))

    answers["WatchJobs"] = asyncio.run(watch(pb.WatchJobsRequest()))
    answers["WatchJobs of one"] = asyncio.run(watch(pb.WatchJobsRequest(job_ids=[1])))
    return {name: {word for word in SECRETS if word in answer.SerializeToString()} for name, answer in answers.items()}


@pytest.mark.parametrize("who", [ROOT, ADMIN])
def test_no_method_tells_an_admin_what_is_the_owners_alone(world: World, who: Caller) -> None:
    assert {name: words for name, words in find_secrets(world, who).items() if words} == {}


def test_the_owner_is_find_secrets(world: World) -> None:
    found = find_secrets(world, ALICE)
    assert found["GetJob"] == found["ExplainJob"] == SECRETS
    assert found["ListJobs"] == found["WatchJobs"] == set(), "lists have no room for it"


def test_an_admin_sees_where_a_webhook_leads(world: World) -> None:
    shown = world.call(world.jobs.GetJob, REQUESTS["GetJob"], ROOT).job.spec.notification
    assert (shown.webhook, list(shown.events)) == ("https://hooks.example:444/...", [pb.NOTIFICATION_EVENT_END])


def test_there_is_one_way_to_a_message_about_a_job() -> None:
    """Which knows the caller: another one could forget to ask."""
    package = Path(__file__).resolve().parents[2] / "vgpud"
    calls = [path.name for path in sorted(package.glob("[!c]*/**/*.py")) if " views.job_view(" in path.read_text()]
    texts = [line for path in package.glob("api/*.py") for line in path.read_text().splitlines() if "job_view(" in line]
    assert calls == ["jobs.py"] and len(texts) == 2, "its definition and JobService._view"


def test_what_a_job_writes_is_private_unless_it_says_otherwise() -> None:
    """The log of a job of a client that said nothing was writable for all users."""
    world = World()
    world.submit()
    world.submit(umask=0)
    said = [made.spec.run.umask for made in world.backend.submissions if isinstance(made.spec.run, Launch)]
    assert said == [0o077, 0]
