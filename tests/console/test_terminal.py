"""The terminal of a job in the browser: its page, its events and its keys, against a fake daemon."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon
from vgpud.console.login.client import User
from vgpud.console.pages import terminal
from vgpud.console.pages.terminal import TERMINALS_MAX, WAITING_MAX, Viewer, Viewers, parse_keys, show_answer
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import FakeBroker, text_of
from .test_pages import add_job

ALICE, BOB = User(1, "alice", "", "alice-1", ""), User(2, "bob", "", "bob-2", "")


def test_the_page_of_a_terminal(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 7, "running", terminal=True)
    assert 'href="/job/7/terminal"' in alice.get("/job/7").text
    page = alice.get("/job/7/terminal").text
    assert 'data-stream="/job/7/terminal/stream"' in page and "vgpu job attach 7" in text_of(page)
    assert "<script>" not in page and "style=" not in page


def test_a_job_without_a_terminal_has_no_such_page(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 7, "running")
    answer = alice.get("/job/7/terminal")
    assert answer.status_code == 404 and "submitted without --pty" in answer.text
    assert "/terminal" not in alice.get("/job/7").text


def test_a_terminal_of_another_user_is_offered_to_admins_with_a_warning(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 7, "running", uid=5, terminal=True)
    assert "/terminal" not in alice.get("/job/7").text
    alice.cookies.set("vgpu", "root-0")
    assert 'href="/job/7/terminal?as_admin=yes"' in alice.get("/job/7").text


# ---- messages ----


@pytest.mark.parametrize(
    ("answer", "kind", "data"),
    [
        (pb.AttachJobResponse(replay=b""), "replay", b""),
        (pb.AttachJobResponse(replay=b"\x1b[0m\n"), "replay", b"\x1b[0m\n"),
        (pb.AttachJobResponse(output=b"\xff\r\n\n"), "output", b"\xff\r\n\n"),
        (pb.AttachJobResponse(notice="line\n\nevent: x"), "note", "line\n\nevent: x"),
        (pb.AttachJobResponse(job=pb.Job(job_id=7, state=pb.JOB_STATE_PENDING)), "job", "job 7 is pending"),
        (pb.AttachJobResponse(job=pb.Job(job_id=7, state=pb.JOB_STATE_COMPLETED)), "end", "job 7 has completed"),
    ],
)
def test_an_answer_is_one_event(answer: pb.AttachJobResponse, kind: str, data: bytes | str) -> None:
    """Whatever a job prints cannot end the event, or begin another one."""
    found = re.fullmatch(rb"event: (\w+)\ndata: ([^\n]*)\n\n", show_answer(answer))
    assert found and found[1].decode() == kind
    assert (base64.b64decode(found[2]) if isinstance(data, bytes) else json.loads(found[2])) == data


def test_keys_and_sizes() -> None:
    typed = bytes(range(256)) * 40
    found = parse_keys({"keys": base64.b64encode(typed).decode(), "rows": "24", "columns": "80"})
    assert b"".join(request.input for request in found) == typed
    assert max(len(request.input) for request in found) == 4096
    assert (found[-1].size.rows, found[-1].size.columns) == (24, 80)
    for wrong in ({}, {"rows": "24"}, {"rows": "0", "columns": "80"}, {"rows": "9" * 400, "columns": "8"}):
        assert parse_keys(wrong) == []


@pytest.mark.parametrize("keys", ["*", "YQ", "é", base64.b64encode(bytes(70_000)).decode()])
def test_keys_that_are_not_taken(keys: str) -> None:
    with pytest.raises(ValueError, match=r"base64|at most"):
        parse_keys({"keys": keys})


def test_keys_reach_the_page_of_their_own_session_only() -> None:
    viewers, viewer = Viewers(), Viewer(ALICE, 7)
    with viewers.show(viewer):
        assert viewers.find(viewer.key, ALICE, 7) is viewer
        assert viewers.find(viewer.key, ALICE, 8) is None
        assert viewers.find(viewer.key, BOB, 7) is None
        assert viewers.find("x" * 100_000, ALICE, 7) is None
    assert viewers.find(viewer.key, ALICE, 7) is None


def test_what_waits_is_bounded_and_so_are_terminals() -> None:
    viewers, viewer = Viewers(), Viewer(ALICE, 7)
    assert viewer.send([pb.AttachJobRequest()] * WAITING_MAX)
    assert not viewer.send([pb.AttachJobRequest()])
    held = [viewers.show(Viewer(ALICE, 7)) for _ in range(TERMINALS_MAX)]
    for one in held:
        one.__enter__()
    assert not viewers.has_place(ALICE) and viewers.has_place(BOB)
    for one in held:
        one.__exit__(None, None, None)
    assert viewers.has_place(ALICE)


# ---- a whole one ----


class FakeApi:
    """A daemon whose job echoes what is typed."""

    def __init__(self) -> None:
        self.requests: list[pb.AttachJobRequest] = []
        self.is_open = True

    async def attach_job(self, requests: Any) -> Any:
        try:
            async for request in requests:
                self.requests.append(request)
                if request.job_id:
                    yield pb.AttachJobResponse(replay=b"$ ")
                elif request.input == b"exit":
                    return
                elif request.input:
                    yield pb.AttachJobResponse(output=request.input)
        finally:
            self.is_open = False


class Site:
    def __init__(self, broker: FakeBroker | None) -> None:
        self.broker = broker


def events_of(data: bytes) -> tuple[str, str]:
    kind, _, rest = data.decode().partition("\n")
    return kind.removeprefix("event: "), rest.removeprefix("data: ").strip()


def test_keys_go_in_and_output_comes_out() -> None:
    async def work() -> None:
        api, viewers, viewer = FakeApi(), Viewers(), Viewer(ALICE, 7)
        stream = terminal._events(Site(None), api, viewers, viewer, False)  # type: ignore[arg-type]
        kind, data = events_of(await anext(stream))
        assert kind == "open" and viewers.find(json.loads(data), ALICE, 7) is viewer
        assert events_of(await anext(stream)) == ("replay", base64.b64encode(b"$ ").decode())
        viewer.send(parse_keys({"keys": base64.b64encode(b"ls").decode()}))
        assert events_of(await anext(stream)) == ("output", base64.b64encode(b"ls").decode())
        viewer.send([pb.AttachJobRequest(input=b"exit")])
        assert events_of(await anext(stream))[0] == "end"
        assert [data async for data in stream] == [] and not api.is_open
        assert not viewers._by_key

    asyncio.run(work())


def test_a_page_that_goes_leaves_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        api, viewers = FakeApi(), Viewers()
        stream = terminal._events(Site(None), api, viewers, Viewer(ALICE, 7), True)  # type: ignore[arg-type]
        await anext(stream)
        await anext(stream)
        assert api.requests[0].as_admin
        await stream.aclose()  # type: ignore[attr-defined]
        assert not api.is_open and not viewers._by_key

    asyncio.run(work())


def test_a_log_out_ends_it(fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        monkeypatch.setattr(terminal, "ALIVE_S", 0.01)
        stream = terminal._events(Site(fake_broker), FakeApi(), Viewers(), Viewer(ALICE, 7), False)  # type: ignore[arg-type]
        for _ in range(2):
            await anext(stream)
        assert await anext(stream) == b":\n\n"
        fake_broker.ended_cookies.add("alice-1")
        assert [data async for data in stream if data != b":\n\n"] == []

    asyncio.run(work())


def test_a_refusal_of_the_daemon_is_its_sentence(alice: TestClient, daemon: FakeDaemon) -> None:
    """The fake daemon has no terminals at all."""
    add_job(daemon, 7, "running", terminal=True)
    with alice.stream("GET", "/job/7/terminal/stream") as answer:
        text = "".join(answer.iter_text())
    assert text.startswith("event: open\n") and "event: end\n" in text


def test_keys_without_a_terminal(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 7, "running", terminal=True)
    form = {"csrf": "token-of-alice-1", "terminal": "x", "keys": ""}
    assert alice.post("/job/7/terminal/keys", data=form).status_code == 404
    assert alice.post("/job/7/terminal/keys", data={**form, "csrf": ""}).status_code == 403
