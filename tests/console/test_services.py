"""Services in the console, with a stand-in for a balancer: the page, what its buttons change, and /service/NAME/."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon
from vgpud.console.services import changes
from vgpud.host import listeners
from vgpud.services.core.model import Service, read_record
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import FakeBroker, Post, text_of
from .test_pages import add_job

TEMPLATE = {"command": ["serve"], "slice": {"gpusMilli": 250}}
REPLICAS = [
    {"job_id": 12, "generation": 1, "state": "healthy", "reason": "", "outstanding": 3, "port": 20001},
    {"job_id": 13, "generation": 1, "state": "pending", "reason": "no device has 0.25", "outstanding": 0, "port": None},
]


class Balancer(http.server.ThreadingHTTPServer):
    """Its control port, which is its address as well."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.service = Service("chat", TEMPLATE, "key", replicas=2, idle_s=600.0)
        self.trouble = ""

    def status(self) -> dict[str, Any]:
        port = 0 if self.trouble else self.server_port
        return {
            "port": port,
            "host": "127.0.0.1",
            "trouble": self.trouble,
            "wanted": 2,
            "asleep": False,
            "retry_s": None,
            "generation": 1,
            "finished": 0,
            "waiting": 1,
            "replicas": REPLICAS,
        }


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Balancer

    def log_message(self, *_: object) -> None: ...

    def answer(self, body: dict[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Set-Cookie", "mine=1; Path=/")
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        shown = self.headers["Authorization"]
        if (self.path, shown) == ("/status", "Bearer job-token"):
            self.answer(self.server.status())
        elif (self.path, shown) == ("/record", "Bearer job-token"):
            self.answer(json.loads(self.server.service.to_json()))
        else:
            size = int(self.headers.get("Content-Length", 0))
            said = {"path": self.path, "shown": shown, "cookie": self.headers["Cookie"]}
            self.answer({**said, "body": self.rfile.read(size).decode()})

    do_POST = do_GET

    def do_PUT(self) -> None:
        self.server.service = read_record(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.answer({})


@pytest.fixture
def balancer(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[Balancer]:
    """Alice's service `chat`, and another user's."""
    monkeypatch.setattr(listeners, "server_uid", lambda *_, **__: 1)
    with Balancer() as made:
        threading.Thread(target=made.serve_forever, args=(0.05,)).start()
        add_job(daemon, 11, "running", name="chat", session="balancer", environment={"VGPU_SESSION_TOKEN": "job-token"})
        add_job(daemon, 21, "running", uid=2, name="other", session="balancer")
        for job_id in (11, 21):
            daemon.queue.jobs[job_id].session_port = made.server_port
        yield made
        made.shutdown()


@pytest.mark.usefixtures("balancer")
def test_the_page_has_replicas_and_addresses(alice: TestClient, balancer: Balancer) -> None:
    html = alice.get("/services").text
    text = text_of(html)
    assert "1 of 2 replicas are healthy" in text and "no device has 0.25" in text and "requests that wait: 1" in text
    assert f"http://127.0.0.1:{balancer.server_port}" in text and "another user&#39;s: only they see" in text
    for link in ("/service/chat/", "/job/11", "/job/12", "/job/13", "/job/21"):
        assert f'href="{link}"' in html
    assert 'action="/services/chat/stop"' in html and "/services/other/" not in html
    assert "1 of 2 replicas" in text_of(alice.get("/services/part").text)


@pytest.mark.parametrize("path", ["/services/part", "/nodes/part"])
def test_what_an_open_page_asks_for_keeps_no_log_in_alive(
    alice: TestClient, fake_broker: FakeBroker, path: str
) -> None:
    assert alice.get(path).status_code == 200 and fake_broker.uses == [False]


def test_a_balancer_that_does_not_answer(alice: TestClient, daemon: FakeDaemon, balancer: Balancer) -> None:
    daemon.queue.jobs[11].session_port = 1
    text = text_of(alice.get("/services").text)
    assert "the balancer of service chat, job 11, does not answer (nothing listens at port 1)" in text
    daemon.queue.jobs[11].ClearField("session_port")
    daemon.queue.jobs[11].state = pb.JOB_STATE_PENDING
    assert "job 11, is pending: reason 11" in text_of(alice.get("/services").text), "also of one that has just started"
    answer = alice.get("/service/chat/")
    assert answer.status_code == 503 and "the balancer of service chat" in answer.text


def test_its_buttons(post: Post, balancer: Balancer) -> None:
    assert "Service chat was scaled." in text_of(post("/services/chat/scale", replicas="3"))
    assert balancer.service.replicas == 3
    form = {"gpus": "0.5", "gpus_was": "0.25", "idle": "", "idle_was": "10m"}
    post("/services/chat/update", **form)
    assert (balancer.service.template["slice"]["gpusMilli"], balancer.service.idle_s) == (500, 0.0)
    assert (balancer.service.generation, balancer.service.template["command"]) == (2, ["serve"])
    post("/services/chat/restart")
    assert balancer.service.generation == 3 and balancer.service.token == "key"  # noqa: S105
    assert "ends: its replicas answer what they have first" in post("/services/chat/stop")
    for name, fields, why in (
        ("chat", {"replicas": "many"}, "is no number of replicas"),
        ("chat", {"replicas": "65"}, "is no number of replicas"),
        ("other", {"replicas": "3"}, "no service other of yours runs"),
    ):
        assert why in text_of(post(f"/services/{name}/scale", **fields))
    assert balancer.service.replicas == 3


def test_a_change_of_nothing() -> None:
    record = Service("chat", TEMPLATE, "key")
    for form in ({}, {"gpus": "0.25", "gpus_was": "0.25", "idle": "", "idle_was": ""}):
        with pytest.raises(ValueError, match="nothing was changed"):
            changes.update(record, form)
    assert changes.update(record, {"idle": "10m"}).generation == 1, "replicas stay"


def test_one_address_for_all_services(alice: TestClient, balancer: Balancer) -> None:
    """It is asked without the path that names it, with its own token and without the console's cookies."""
    headers = {"Authorization": "Bearer mine", "Cookie": "vgpu=alice-1; a=1"}
    answer = alice.post("/service/chat/v1/models?x=%2f", content=b"words", headers=headers)
    said = {"path": "/v1/models?x=%2f", "shown": "Bearer key", "cookie": "a=1", "body": "words"}
    assert (answer.status_code, answer.json()) == (200, said)
    assert answer.headers["set-cookie"] == "mine=1; Path=/service/chat/"
    assert "/service/chat/" in answer.headers["content-security-policy"]
    assert alice.get("/service/chat").headers["location"] == "/service/chat/"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/service/other/", 404),
        ("/service/none/", 404),
        ("/service/Chat/", 404),
        ("/service/", 404),
        ("/service/chat/%2e%2e/x", 404),
        ("/service/chat/a/..%2f..%2fx", 404),
    ],
)
@pytest.mark.usefixtures("balancer")
def test_what_is_no_service_of_the_users(alice: TestClient, path: str, status: int) -> None:
    assert alice.get(path).status_code == status


@pytest.mark.usefixtures("balancer")
def test_nothing_is_passed_on_without_a_log_in_or_for_another_site(stranger: TestClient) -> None:
    assert stranger.get("/service/chat/").status_code == 303
    assert stranger.post("/service/chat/").status_code == 401
    stranger.cookies.set("vgpu", "alice-1")
    assert stranger.post("/service/chat/", headers={"Origin": "http://evil.example"}).status_code == 403
    assert stranger.get("/service/chat/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_a_service_without_an_address(alice: TestClient, balancer: Balancer) -> None:
    balancer.trouble = "cannot listen at 127.0.0.1 port 8000: address already in use; trying again"
    answer = alice.get("/service/chat/")
    assert answer.status_code == 503 and "address already in use" in answer.text


@pytest.mark.parametrize(("session", "has_link"), [("jupyter", True), ("web", True), ("rstudio", True)])
def test_only_sessions_with_a_page_are_opened(
    alice: TestClient, daemon: FakeDaemon, session: str, has_link: bool
) -> None:
    add_job(daemon, 7, "running", session=session)
    assert ('href="/session/7/"' in alice.get("/job/7").text) is has_link
    for other in ("shell", "balancer", "replica"):
        add_job(daemon, 8, "running", session=other)
        assert "/session/8/" not in alice.get("/job/8").text
