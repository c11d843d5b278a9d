"""Sessions that are not open: who asks, and what the page says."""

from __future__ import annotations

import pytest
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon
from vgpud.console.live.data import Api
from vgpud.console.sessions import program
from vgpud.host import listeners
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import text_of
from .test_pages import add_job

TOKEN = {"VGPU_SESSION_TOKEN": "secret"}
#: port 1: no program listens there
PORT = 1


def add(daemon: FakeDaemon, job_id: int, state: str, uid: int = 1, port: int = 0, **spec: object) -> None:
    add_job(daemon, job_id, state, uid, **{"session": "jupyter", "environment": TOKEN, **spec})
    if port:
        daemon.queue.jobs[job_id].session_port = port


@pytest.mark.parametrize(
    ("state", "status", "sentence"),
    [
        ("pending", 503, "Session 7 is pending: reason 7"),
        ("held", 503, "Session 7 is held: reason 7"),
        ("running", 503, "Session 7 is running: reason 7"),  # no port yet
        ("completed", 410, "Session 7 has completed: reason 7"),
        ("failed", 410, "Session 7 has failed: reason 7"),
    ],
)
def test_the_page_says_what_the_session_does(
    alice: TestClient, daemon: FakeDaemon, state: str, status: int, sentence: str
) -> None:
    add(daemon, 7, state)
    answer = alice.get("/session/7/")
    assert (answer.status_code, answer.headers.get("refresh")) == (status, "3" if status == 503 else None)
    assert sentence in text_of(answer.text)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    script = alice.get("/session/7/api", headers={"Sec-Fetch-Dest": "empty"})
    assert (script.status_code, script.text) == (status, sentence[0].lower() + sentence[1:])


@pytest.mark.parametrize(
    ("state", "idle_s", "uid", "reports"),
    [("pending", 1800, 1, 1), ("suspended", 1800, 1, 1), ("pending", 0, 1, 0), ("completed", 1800, 1, 0)],
)
def test_opening_an_idle_session_is_its_use(
    alice: TestClient,
    daemon: FakeDaemon,
    monkeypatch: pytest.MonkeyPatch,
    state: str,
    idle_s: int,
    uid: int,
    reports: int,
) -> None:
    """One that was paused, and had to start again, waits for nothing else."""
    seen: list[int] = []

    async def report(_: Api, job_id: int) -> None:
        seen.append(job_id)

    monkeypatch.setattr(Api, "report_session_use", report)
    add(daemon, 7, state, uid)
    if idle_s:
        daemon.queue.jobs[7].spec.idle_after.FromSeconds(idle_s)
    alice.get("/session/7/")
    assert seen == [7] * reports


def test_a_program_that_does_not_listen_yet_is_waited_for(alice: TestClient, daemon: FakeDaemon) -> None:
    add(daemon, 7, "running", port=PORT)
    answer = alice.get("/session/7/")
    assert answer.status_code == 503 and "its program starts" in answer.text


def test_no_admin_opens_another_users_session(alice: TestClient, daemon: FakeDaemon) -> None:
    """An admin may see the job."""
    add(daemon, 7, "running", uid=2, port=PORT, environment={})
    answer = alice.get("/session/7/")
    assert answer.status_code == 403 and "only they may open it" in answer.text


def test_a_job_is_no_session(alice: TestClient, daemon: FakeDaemon) -> None:
    add(daemon, 7, "running", session="")
    assert alice.get("/session/7/").status_code == 404


def test_one_user_has_a_share_of_the_requests(
    alice: TestClient, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(daemon, 7, "running", port=PORT)
    sessions = alice.app.app.state.tunnels._sessions if hasattr(alice.app, "app") else alice.app.state.tunnels._sessions  # type: ignore[attr-defined]
    for _ in range(listeners.CONSOLE_SESSIONS.share_max):
        assert sessions.places.take(1)
    answer = alice.get("/session/7/")
    assert answer.status_code == 429 and "close some pages" in answer.text
    sessions.places.give_back(1)
    assert alice.get("/session/7/").status_code == 503


def test_a_session_that_is_known_outlives_the_daemon(
    alice: TestClient, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(daemon, 7, "running", port=PORT)
    assert "its program starts" in alice.get("/session/7/").text
    monkeypatch.setattr(program, "KNOWN_S", 0.0)
    daemon.queue.jobs[7].state = pb.JOB_STATE_COMPLETED
    assert alice.get("/session/7/").status_code == 410
    daemon.queue.jobs[7].state = pb.JOB_STATE_RUNNING
    assert "its program starts" in alice.get("/session/7/").text
    daemon.stop()
    assert "its program starts" in alice.get("/session/7/").text


def test_the_jobs_page_leads_to_its_session(alice: TestClient, daemon: FakeDaemon) -> None:
    add(daemon, 7, "running", port=PORT)
    add(daemon, 8, "running", uid=2, port=PORT)
    assert 'href="/session/7/"' in alice.get("/job/7").text
    assert 'href="/session/8/"' not in alice.get("/job/8").text
