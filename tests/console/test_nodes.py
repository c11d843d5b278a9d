"""Several nodes in one console: addresses, rights, and the way to another machine's daemon."""

from __future__ import annotations

import asyncio
import json
import os
import re
import socket
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from starlette.testclient import TestClient

from tests.api.remote import WHO, Remote, site
from tests.cli.fake_server import FakeDaemon
from vgpud.certs import issue
from vgpud.client import contexts
from vgpud.console.live.channel import Bridge
from vgpud.console.login import agent, relay
from vgpud.console.web.node_path import NodePath
from vgpud.errors import VgpudError

from .conftest import FakeBroker, Post, text_of
from .test_pages import add_job, add_slice

__all__ = ["site"]  # a fixture


@pytest.fixture
def n2(fake_broker: FakeBroker) -> str:
    """A context of the user's; its connections reach the same fake daemon."""
    fake_broker.contexts["n2"] = 77
    return "n2"


def test_all_pages_of_a_node_lead_to_pages_of_this_node(alice: TestClient, daemon: FakeDaemon, n2: str) -> None:
    add_slice(daemon, "train", owner=77)
    add_job(daemon, 7, "running", uid=77, terminal=True, session="jupyter")
    device = daemon.devices[0].uuid
    own = r'(?:href|action|hx-get|hx-post|hx-sse:connect|data-[a-z]+)="(/(?!at/n2/)[^"]*)"'
    for path in (
        "/",
        "/queue",
        "/job/7",
        "/slice/train",
        f"/device/{device}",
        "/submit",
        "/quotas",
        "/usage",
        "/events",
        "/kubernetes",
    ):
        answer = alice.get(f"/at/n2{path}")
        assert answer.status_code == 200, path
        others = {found.partition("?")[0] for found in re.findall(own, answer.text)}
        shared = {
            found for found in others if found.startswith(("/static/", "/nodes")) or found in ("/theme", "/logout")
        }
        assert others == shared, path
    assert "/at/" not in alice.get("/job/7").text, "nor do pages of this machine lead elsewhere"


def test_a_node_is_reached_by_its_context(alice: TestClient, fake_broker: FakeBroker, n2: str) -> None:
    alice.get("/queue")
    alice.get("/at/n2/queue")
    assert set(fake_broker.connected_nodes) == {"", "n2"}


def test_ownership_is_by_the_uid_on_the_node(alice: TestClient, daemon: FakeDaemon, n2: str) -> None:
    add_job(daemon, 7, "running", uid=77, terminal=True)
    assert 'href="/at/n2/job/7/terminal"' in alice.get("/at/n2/job/7").text
    assert "/job/7/terminal" not in alice.get("/job/7").text


def test_a_form_acts_on_the_node_of_its_page_and_comes_back_to_it(
    alice: TestClient, daemon: FakeDaemon, post: Post, n2: str
) -> None:
    add_job(daemon, 7, "running")
    answer = alice.post("/at/n2/job/7/requeue", data={"csrf": "token-of-alice-1"})
    assert answer.headers["location"] == "/at/n2/job/7"
    assert "was queued again" in alice.get("/at/n2/job/7").text


def test_another_theme_leaves_the_node_on_the_page(alice: TestClient, n2: str) -> None:
    assert 'name="path" value="/at/n2/queue"' in alice.get("/at/n2/queue").text
    form = {"csrf": "token-of-alice-1", "theme": "dark", "path": "/at/n2/queue"}
    assert alice.post("/theme", data=form).headers["location"] == "/at/n2/queue"


def test_files_and_sessions_of_another_node_are_not_this_machines(
    alice: TestClient, daemon: FakeDaemon, fake_broker: FakeBroker, n2: str
) -> None:
    """A path, or a port, of that name may belong to someone else here."""
    add_job(daemon, 7, "running", uid=77, session="jupyter")
    fake_broker.files["/logs/7"] = b"of this machine"
    page = alice.get("/at/n2/job/7").text
    assert "of this machine" not in page and "The output is on node n2" in page
    assert "is on node n2" in alice.get("/at/n2/job/7/output.json").json()["problem"]
    assert alice.get("/at/n2/job/7/output").status_code == 404
    assert "/session/" not in page and not fake_broker.read
    for path in ("/at/n2/session/7/", "/at/n2/at/n2/queue", "/at/n2/login", "/at/n2/static/console.css"):
        assert alice.get(path).status_code == 404, path


@pytest.mark.parametrize("name", ["n3", "%2e%2e", "n2%2f..", "x" * 65, "", "n2%0a"])
def test_a_node_without_a_context_is_not_found(alice: TestClient, name: str, n2: str, fake_broker: FakeBroker) -> None:
    assert alice.get(f"/at/{name}/queue").status_code == 404
    assert alice.post(f"/at/{name}/job/7/cancel", data={"csrf": "token-of-alice-1"}).status_code == 404
    assert name not in fake_broker.connected_nodes or not name


def test_forms_of_a_node_need_the_token_and_this_origin(alice: TestClient, n2: str) -> None:
    assert alice.post("/at/n2/job/7/cancel", data={"csrf": ""}).status_code == 403
    form = {"csrf": "token-of-alice-1"}
    assert alice.post("/at/n2/job/7/cancel", data=form, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403


def test_all_nodes_are_side_by_side(alice: TestClient, daemon: FakeDaemon, n2: str) -> None:
    html = alice.get("/nodes").text
    text = text_of(html)
    assert "testnode this machine" in text and "n2 n2:7443" in text
    assert 'href="/at/n2/"' in html and 'href="/at/n2/queue?state=running"' in html
    assert 'hx-get="/nodes/part"' in html
    assert text_of(alice.get("/nodes/part").text) in text


def test_dismissed_alerts_are_those_of_one_node(alice: TestClient, daemon: FakeDaemon, n2: str) -> None:
    daemon.devices[1].drained = "fan broken"
    key = re.search(r'name="key" value="([^"]*)"', alice.get("/at/n2/").text)
    assert key
    alice.post("/at/n2/alerts/dismiss", data={"csrf": "token-of-alice-1", "key": key[1]})
    assert "fan broken" not in alice.get("/at/n2/").text
    assert "fan broken" in alice.get("/").text


def test_a_path_is_taken_apart_once() -> None:
    seen: list[tuple[str, str]] = []

    async def app(scope: dict, receive: object, send: object) -> None:  # type: ignore[type-arg]
        seen.append((scope["path"], scope["state"]["node"]))

    for path in ("/at/n2/queue", "/at/n2/at/n3/queue", "/at/n2", "/at/n2/session/1/", "/queue", "/at/-x/queue"):
        asyncio.run(NodePath(app)({"type": "http", "path": path}, None, None))  # type: ignore[arg-type]
    assert seen == [
        ("/queue", "n2"),
        ("/at/n2/at/n3/queue", ""),
        ("/at/n2", ""),
        ("/at/n2/session/1/", ""),
        ("/queue", ""),
        ("/at/-x/queue", ""),
    ]


# ---- the connection to another machine's daemon, with real certificates ----


@pytest.fixture
def own_contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this user's contexts are."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


def add_context(site: Remote, user: str, host: str = "") -> None:
    file = site.directory / f"{user}.json"
    issue.user(site.register, site.users[user], 30, file)
    contexts.add("n2", host or site.host, file)


async def ask_who(site: Remote) -> Any:
    """Whom the daemon sees behind the agent's connection, or the status."""

    async def connect() -> socket.socket:
        _, fd = agent._answer({"do": "connect", "context": "n2"}, "/nowhere")
        sock = socket.socket(fileno=fd)
        sock.setblocking(False)
        return sock

    bridge = Bridge(site.directory / "bridge.sock", connect)
    await bridge.open()
    try:
        async with grpc.aio.insecure_channel(bridge.target, options=[("grpc.enable_retries", 0)]) as channel:
            return json.loads(await channel.unary_unary(WHO)(b"", timeout=20))
    except grpc.aio.AioRpcError as error:
        return error.code().name
    finally:
        await bridge.close()


def test_the_daemon_sees_the_user_of_the_certificate(site: Remote, own_contexts: Path) -> None:
    async def work() -> None:
        async with site.serving():
            add_context(site, "alice")
            assert (await ask_who(site))["uid"] == 61001
            answer, fd = agent._answer({"do": "contexts"}, "/nowhere")
            assert (answer["contexts"], fd) == ([{"name": "n2", "host": site.host, "uid": 61001}], -1)
            assert "PRIVATE" not in json.dumps(answer)

    asyncio.run(work())


def test_a_server_that_the_authority_did_not_sign_gets_nothing(
    site: Remote, own_contexts: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def work() -> None:
        other = Remote(tmp_path_factory.mktemp("other"))
        async with other.serving():
            add_context(site, "alice", other.host)
            assert await ask_who(site) == "UNAVAILABLE"

    asyncio.run(work())


def test_a_node_that_does_not_answer_holds_nothing_up(site: Remote, own_contexts: Path) -> None:
    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            add_context(site, "alice", f"127.0.0.1:{silent.getsockname()[1]}")
            began_ns = time.monotonic_ns()
            _, fd = agent._answer({"do": "connect", "context": "n2"}, "/nowhere")
            assert time.monotonic_ns() - began_ns < relay.CONNECT_S * 1e9, "the agent does not wait for it"
            os.close(fd)

    asyncio.run(work())


def test_connections_of_a_user_are_bounded(site: Remote, own_contexts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "_places", threading.BoundedSemaphore(1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        add_context(site, "alice", f"127.0.0.1:{silent.getsockname()[1]}")
        _, fd = agent._answer({"do": "connect", "context": "n2"}, "/nowhere")
        with pytest.raises(relay.TooManyError):
            agent._answer({"do": "connect", "context": "n2"}, "/nowhere")
        os.close(fd)


def test_only_contexts_of_the_user_are_connected_to(own_contexts: Path) -> None:
    for name in ("n2", "../n2", "x" * 200, "/etc/passwd"):
        with pytest.raises(VgpudError):
            agent._answer({"do": "connect", "context": name}, "/nowhere")
