"""Log-in, sessions, tokens, headers, live fragments."""

from __future__ import annotations

import asyncio

import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon, uuid_of
from vgpud.console.web import security, sse
from vgpud.console.web.sse import event

from .conftest import HOST, FakeBroker, text_of

FREE = ("/login", "/login/openid", "/login/openid/callback", "/static/{name}")


def routes(client: TestClient, method: str) -> list[str]:
    found = [r for r in client.app.app.routes if isinstance(r, Route)] if hasattr(client.app, "app") else []
    found = found or [r for r in client.app.routes if isinstance(r, Route)]  # type: ignore[attr-defined]
    paths = [r.path for r in found if method in (r.methods or set()) and r.path not in FREE]
    filled = [p.replace("{job_id:job_id}", "1").replace("{job_id}", "x").replace("{name}", "a") for p in paths]
    assert len(filled) > 8
    return [p.replace("{uuid}", uuid_of(0)) for p in filled]


def test_nothing_is_shown_without_a_session(stranger: TestClient) -> None:
    for path in routes(stranger, "GET"):
        answer = stranger.get(path)
        if path.startswith("/share/"):  # a link is a log-in of its own
            assert answer.status_code == 404 and "has ended, or was revoked" in answer.text
            continue
        live = path.startswith("/live/")
        assert answer.status_code == (401 if live else 303), path
        assert live or answer.headers["location"] == "/login"


def test_nothing_is_changed_without_a_session(stranger: TestClient, daemon: FakeDaemon) -> None:
    for path in routes(stranger, "POST"):
        assert stranger.post(path, data={"csrf": ""}).status_code == 401, path
    assert not daemon.requests


@pytest.mark.parametrize("token", [None, "", "token-of-bob-2", "ä"])
def test_every_change_needs_the_token_of_the_session(alice: TestClient, daemon: FakeDaemon, token: str | None) -> None:
    for path in routes(alice, "POST"):
        data = {} if token is None else {"csrf": token}
        assert alice.post(path, data=data).status_code == 403, path
    assert not daemon.requests
    assert not daemon.queue.requests


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_other_sites_change_nothing(alice: TestClient, daemon: FakeDaemon, headers: dict[str, str]) -> None:
    answer = alice.post("/job/1/cancel", data={"csrf": "token-of-alice-1"}, headers=headers)
    assert answer.status_code == 403
    assert alice.post("/login", data={"token": "good"}, headers=headers).status_code == 403
    assert not daemon.queue.requests


@pytest.mark.parametrize(
    ("mode", "destination", "status"), [("navigate", "document", None), ("navigate", "iframe", 403), ("cors", "", 403)]
)
def test_other_sites_lead_to_a_session_and_neither_read_nor_embed_it(
    alice: TestClient, mode: str, destination: str, status: int | None
) -> None:
    headers = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": destination}
    assert (alice.get("/session/7/", headers=headers).status_code == 403) == (status == 403)


def test_this_site_may(alice: TestClient) -> None:
    headers = {"Origin": f"http://{HOST}", "Sec-Fetch-Site": "same-origin"}
    assert alice.post("/theme", data={"csrf": "token-of-alice-1", "theme": "dark"}, headers=headers).status_code == 303


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8377", "127.0.0.1.evil.example", ""])
def test_other_names_of_this_address_get_nothing(alice: TestClient, host: str) -> None:
    assert alice.get("/", headers={"Host": host}).status_code == 421


def test_every_answer_has_the_headers(alice: TestClient) -> None:
    for path in ("/", "/login", "/nothing", "/static/console.css", "/usage.csv"):
        found = alice.get(path).headers
        for name, value in security.HEADERS.items():
            assert found[name] == value, path
    assert alice.get("/").headers["cache-control"] == "no-store"
    policy = security.POLICY
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_pages_have_nothing_inline(alice: TestClient, daemon: FakeDaemon) -> None:
    for path in ("/", "/queue", "/submit", "/quotas", "/usage", "/whatif", "/events", "/login?token=x"):
        html = alice.get(path).text
        assert " style=" not in html, path
        assert "<style" not in html, path
        assert " on" not in html.replace(" on ", "").replace(" on\n", "") or " onclick" not in html, path
        assert html.count("<script") == html.count('<script src="/static/'), path
        assert "http://" not in html.replace("http://www.w3.org", ""), path


def test_a_large_form_is_refused(alice: TestClient) -> None:
    big = {"csrf": "token-of-alice-1", "command": "x" * (security.BODY_BYTES_MAX + 1)}
    assert alice.post("/submit", data=big).status_code == 413
    pieces = (b"command=" + b"x" * 100_000 for _ in range(4))
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert alice.post("/submit", content=pieces, headers=headers).status_code == 413
    large_headers = headers | {"Content-Length": "9" * 5000}
    assert alice.post("/submit", content=b"command=x", headers=large_headers).status_code == 413


# ---- log-in ----


def test_a_link_logs_in_by_its_button_only(stranger: TestClient) -> None:
    page = stranger.get("/login?token=good")
    assert page.status_code == 200
    assert "set-cookie" not in page.headers
    answer = stranger.post("/login", data={"token": "good"})
    assert answer.status_code == 303
    cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert stranger.get("/").status_code == 200


def test_a_used_link_says_so(stranger: TestClient) -> None:
    answer = stranger.post("/login", data={"token": "bad"})
    assert answer.status_code == 403
    assert "this link was used before" in text_of(answer.text)


def test_passwords(stranger: TestClient) -> None:
    assert stranger.post("/login", data={"name": "bob", "password": "wrong"}).status_code == 403
    assert stranger.post("/login", data={"name": "bob", "password": "right"}).status_code == 303
    assert "bob" in stranger.get("/").text


def test_log_out_ends_the_session(alice: TestClient, fake_broker: FakeBroker) -> None:
    assert alice.post("/logout", data={"csrf": "token-of-alice-1"}).status_code == 303
    assert fake_broker.ended_cookies == {"alice-1"}
    alice.cookies.set("vgpu", "alice-1")
    assert alice.get("/").status_code == 303


def test_the_theme_is_kept(alice: TestClient) -> None:
    answer = alice.post("/theme", data={"csrf": "token-of-alice-1", "theme": "dark", "path": "//evil.example/x"})
    assert answer.headers["location"] == "/x", "never another site"
    assert 'data-theme="dark"' in alice.get("/").text
    alice.post("/theme", data={"csrf": "token-of-alice-1", "theme": "system", "path": "/queue"})
    assert "data-theme" not in alice.get("/").text


def test_each_user_has_a_connection_of_their_own(stranger: TestClient, fake_broker: FakeBroker) -> None:
    for cookie in ("alice-1", "bob-2", "alice-1"):
        stranger.cookies.set("vgpu", cookie)
        assert stranger.get("/").status_code == 200
    assert set(fake_broker.connected_uids) == {1, 2}


def test_static_files_are_asked_for_again_by_their_tag(stranger: TestClient) -> None:
    first = stranger.get("/static/console.js")
    assert first.status_code == 200
    again = stranger.get("/static/console.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


# ---- live ----


def test_a_fragment_is_one_message() -> None:
    assert event("<p>\n\n a\r b</p>\n") == b"data: <p>\ndata:  a\ndata:  b</p>\n\n"


def test_a_name_cannot_end_a_message() -> None:
    assert event("x\n\nevent: evil\ndata: y").count(b"\n\n") == 1
    assert b"\nevent:" not in event("x\n\nevent: evil")


def test_windows_of_a_user_share_what_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    from vgpud.console.live.board import Board

    class NoApi:
        pass

    board = Board(NoApi())  # type: ignore[arg-type]
    made: list[int] = []

    def render() -> bytes:
        made.append(board.tick)
        return b"x"

    for _ in range(50):
        board.fragment("overview", board.tick, render)
    board.tick += 1
    for _ in range(50):
        board.fragment("overview", board.tick, render)
    assert made == [0, 1]


def test_a_window_waits_for_a_change() -> None:
    from vgpud.console.live.board import Board

    async def look() -> tuple[int, int]:
        board = Board(None)  # type: ignore[arg-type]
        waiting = asyncio.create_task(board.wait_change(0, 60))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
        board.notify()
        return await waiting, await board.wait_change(1, 0)

    assert asyncio.run(look()) == (1, 1)


def test_windows_are_limited(alice: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "WINDOWS_MAX", 0)
    assert alice.get("/live/overview").status_code == 429


@pytest.mark.parametrize(
    ("path", "is_use"),
    [
        ("/", True),
        ("/queue", True),
        ("/job/1", True),
        ("/job/1/part", False),
        ("/job/1/log", False),
        ("/curves.json", False),
    ],
)
def test_what_an_open_page_asks_for_by_itself_keeps_no_log_in_alive(
    alice: TestClient, fake_broker: FakeBroker, path: str, is_use: bool
) -> None:
    fake_broker.uses.clear()
    alice.get(path)
    assert fake_broker.uses == [is_use]
