"""Log-ins by OpenID Connect: a real console, and a provider that the test starts."""

from __future__ import annotations

import asyncio
import os
import pwd
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.cli.fake_server import FakeDaemon
from vgpud.console.login import openid
from vgpud.console.login.openid import Client, NotValidError
from vgpud.console.main import ConsoleUsageError, Serve, check

jwt = pytest.importorskip("jwt", reason="needs PyJWT: pip install 'vgpud[oidc]'")
from vgpud.console.login import openid_token  # noqa: E402
from vgpud.console.login.provider import Helper  # noqa: E402

from .openid_provider import CLIENT_ID, SECRET, OpenIdProvider  # noqa: E402

NOW_S = time.time_ns() // 10**9
ROOT = Path(__file__).resolve().parents[2]
USER = "games" if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture(scope="module", params=["RS256", "ES256"])
def a_provider(request: pytest.FixtureRequest) -> Iterator[OpenIdProvider]:
    with OpenIdProvider(USER, request.param) as started:
        yield started


@pytest.fixture
def provider(a_provider: OpenIdProvider) -> OpenIdProvider:
    a_provider.user, a_provider.claims, a_provider.refusal = USER, {}, ""
    a_provider.requests.clear()
    return a_provider


# ---- a real console ----


class Console:
    """A console of this user's on a fake daemon, and browsers for it."""

    def __init__(self, folder: Path, daemon: FakeDaemon, issuer: str) -> None:
        self.folder = folder
        secret = folder / "secret"
        secret.write_text(SECRET + "\n")
        secret.chmod(0o600)
        self.env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        command = [sys.executable, "-m", "vgpud.cli.main", "console", "serve", "--host", daemon.host]
        command += ["--runtime-dir", str(folder), "--listen", "127.0.0.1:0", "--oidc-issuer", issuer]
        command += ["--oidc-client-id", CLIENT_ID, "--oidc-client-secret-file", str(secret)]
        command += ["--oidc-least-uid", "2"]
        if os.geteuid() == 0:  # the interpreter may be root's alone
            command += ["--user", "root"]
        self.process = subprocess.Popen(command, env=self.env, stderr=subprocess.PIPE)
        assert self.process.stderr
        self.url = self.process.stderr.readline().decode().split()[5].rstrip(";")

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)

    def browser(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=20)


def log_in(browser: httpx.Client) -> httpx.Response:
    """By the link of the log-in page, through the provider, back to the console: the page that leads on."""
    page = browser.get("/login")
    assert 'href="/login/openid"' in page.text
    away = browser.get("/login/openid")
    assert away.status_code == 303, away.text
    back = httpx.get(away.headers["location"])
    assert back.status_code == 302
    return browser.get(back.headers["location"])


@pytest.fixture
def console(short_dir: Path, provider: OpenIdProvider) -> Iterator[Console]:
    short_dir.chmod(0o755)
    with FakeDaemon(short_dir) as daemon:
        daemon.socket.chmod(0o666)
        started = Console(short_dir, daemon, provider.issuer)
        yield started
        assert started.stop() == 0


def test_a_user_of_the_provider_is_a_user_of_this_machine(console: Console, provider: OpenIdProvider) -> None:
    with console.browser() as browser:
        page = log_in(browser)
        assert page.status_code == 200 and page.headers["refresh"] == "0; url=/"
        cookies = page.headers.get_list("set-cookie")
        (session,) = [line for line in cookies if line.startswith("vgpu=") and "Max-Age=0" not in line]
        assert "HttpOnly" in session and "SameSite=strict" in session
        assert "vgpu-openid" not in browser.cookies, "its secret is used up"
        overview = browser.get("/")
        assert overview.status_code == 200 and f"<summary>{USER}</summary>" in overview.text
        for path in ("/", "/queue"):
            assert SECRET not in browser.get(path).text


def test_what_is_refused(console: Console, provider: OpenIdProvider) -> None:
    """Each with a sentence, without a session, and without an end of the console."""
    for user, claims, sentence in (
        ("no-such-user", {}, "no-such-user&#39; is no user of this machine"),
        ("root", {}, "root does not log in with a provider" if os.geteuid() == 0 else "acts for no other user"),
        (USER, {"aud": "another"}, "token is not valid"),
        (USER, {"nonce": "another"}, "for another log-in"),
        ("", {"preferred_username": None}, "has no preferred_username"),
        ("daemon", {}, "daemon is a user of the system" if os.geteuid() == 0 else "acts for no other user"),
        ("nobody", {}, "nobody is a user of the system" if os.geteuid() == 0 else "acts for no other user"),
        ("x" * 5000, {}, "has no preferred_username"),
    ):
        provider.user, provider.claims = user, claims
        with console.browser() as browser:
            page = log_in(browser)
            assert page.status_code == 403 and sentence in page.text, (user[:9], claims, page.text)
            assert browser.get("/").status_code == 303, "no session"
    provider.user, provider.claims, provider.refusal = USER, {}, "<b>not you</b>"
    with console.browser() as browser:
        assert "did not log you in: &lt;b&gt;not you&lt;/b&gt;" in log_in(browser).text
    provider.refusal = ""
    with console.browser() as browser:
        assert log_in(browser).status_code == 200


def test_an_answer_for_another_browser_is_worth_nothing(console: Console, provider: OpenIdProvider) -> None:
    """A link with another person's code must not log a victim in as that person."""
    with console.browser() as attacker, console.browser() as victim:
        location = attacker.get("/login/openid").headers["location"]
        back = httpx.get(location).headers["location"]
        assert "begun in another browser" in victim.get(back).text
        victim.get("/login/openid")
        assert "begun in another browser" in victim.get(back).text
        assert provider.requests.count("token") == 0, "the provider is not even asked"
        assert attacker.get(back).status_code == 200
        assert attacker.get(back).status_code == 403, "once"


def test_an_end_of_the_process_leaves_links(console: Console, provider: OpenIdProvider) -> None:
    children = Path(f"/proc/{console.process.pid}/task/{console.process.pid}/children").read_text().split()
    assert len(children) == 2
    os.kill(int(children[0]), 9)  # forked before the web server
    with console.browser() as browser:
        answer = browser.get("/login/openid")
        assert answer.status_code == 502 and "not possible now" in answer.text
        command = [sys.executable, "-m", "vgpud.cli.main", "console", "open", "--print"]
        command += ["--runtime-dir", str(console.folder)]
        opened = subprocess.run(command, env=console.env, capture_output=True, text=True, check=True)
        assert "This link logs you in once" in browser.get(opened.stdout.strip()).text


# ---- without a console ----


def client_of(issuer: str, claim: str = "preferred_username") -> Client:
    return Client(issuer, CLIENT_ID, SECRET, "http://127.0.0.1:1/login/openid/callback", claim)


class Flow:
    """A log-in with the helper alone; `names`: for whom it has asked for a link."""

    def __init__(self, issuer: str, claim: str = "preferred_username") -> None:
        self.names: list[str] = []
        self.helper = Helper(client_of(issuer, claim), self._ask)

    def _ask(self, name: str) -> dict[str, Any]:
        self.names.append(name)
        return {"token": f"for {name}"}

    async def begin(self) -> dict[str, Any]:
        return await self.helper.answer({"do": "begin", "source": "a"})

    async def finish(self, log_in: dict[str, Any], **other: str) -> dict[str, Any]:
        async with httpx.AsyncClient() as browser:
            back = (await browser.get(log_in["url"])).headers["location"]
        given = {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}
        return await self.helper.answer({"do": "finish", "source": "a", "secret": log_in["secret"], **given, **other})


@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ({"exp": NOW_S - 3600}, "expired"),
        ({"iat": NOW_S + 3600}, "not yet valid"),
        ({"exp": None}, "exp"),
        ({"sub": None}, "sub"),
        ({"iss": "https://other.example"}, "issuer"),
        ({"aud": [CLIENT_ID, "another"]}, "for another program"),
        ({"azp": "another"}, "for another program"),
        ({"nonce": None}, "for another log-in"),
        ({"preferred_username": ["root"]}, "has no preferred_username"),
    ],
)
def test_a_token_that_is_not_for_this_log_in(provider: OpenIdProvider, claims: dict[str, Any], sentence: str) -> None:
    provider.claims = claims

    async def work() -> tuple[dict[str, Any], list[str]]:
        flow = Flow(provider.issuer)
        return await flow.finish(await flow.begin()), flow.names

    answer, names = asyncio.run(work())
    assert sentence in answer["error"] and not names


def test_a_key_that_the_provider_has_changed_is_looked_up_once(
    provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        flow = Flow(provider.issuer)
        assert (await flow.finish(await flow.begin()))["token"] == f"for {USER}"
        assert (await flow.finish(await flow.begin()))["token"] == f"for {USER}"
        assert provider.requests.count("keys") == 1
        provider.key_id = "key-2"
        assert "does not show" in (await flow.finish(await flow.begin()))["error"], "asked for too lately"
        assert provider.requests.count("keys") == 1
        flow.helper._keys_after_s = 0.0
        assert (await flow.finish(await flow.begin()))["token"] == f"for {USER}"

    try:
        asyncio.run(work())
    finally:
        provider.key_id = "key-1"


def test_a_token_of_another_key_or_with_a_shared_one(provider: OpenIdProvider) -> None:
    """Above all: a signature by what every user knows, the public key, or none."""
    client = client_of(provider.issuer)
    shown = jwt.get_algorithm_by_name(provider.algorithm).to_jwk(provider.key.public_key(), as_dict=True)
    key = jwt.PyJWK({**shown, "kid": "key-1", "alg": provider.algorithm})
    nonce = openid.derive("s", "nonce")
    assert openid_token.read_name(provider.make_token(nonce), key, client, "s") == USER
    claims = jwt.decode(provider.make_token(nonce), options={"verify_signature": False})
    shared = jwt.encode(claims, "x" * 32, "HS256", headers={"kid": "key-1"})
    none = jwt.encode(claims, None, "none", headers={"kid": "key-1"})
    for token in (shared, none):
        with pytest.raises(NotValidError, match="which is not accepted"):
            openid_token.find_key(token, [key])
        with pytest.raises(NotValidError, match="not valid"):
            openid_token.read_name(token, key, client, "s")
    with OpenIdProvider(USER, provider.algorithm) as other:
        forged = jwt.encode(claims, other.key, provider.algorithm, headers={"kid": "key-1"})
    with pytest.raises(NotValidError, match="not valid"):
        openid_token.read_name(forged, key, client, "s")
    for wrong in ("", "x", "a.b.c", "é" * 9):
        with pytest.raises(NotValidError, match="cannot be read"):
            openid_token.find_key(wrong, [key])


def test_each_value_of_a_secret_is_another() -> None:
    values = {openid.derive("s", purpose) for purpose in ("state", "nonce", "verifier")}
    assert len(values) == 3 and "s" not in values
    assert openid.is_own("s", openid.derive("s", "state"))
    assert not openid.is_own("", openid.derive("", "state")), "a browser without the cookie"
    assert not openid.is_own("s", "\ud800")


@pytest.mark.parametrize(
    ("description", "sentence"),
    [
        (None, "calls itself 'None'"),
        ([], "calls itself"),
        ({"issuer": "https://other"}, "calls itself 'https://other'"),
        ({"issuer": "https://i"}, "missing, or without TLS"),
        ({"issuer": "https://i", "authorization_endpoint": "http://i/a"}, "missing, or without TLS"),
    ],
)
def test_a_provider_that_is_not_the_one(description: Any, sentence: str) -> None:
    with pytest.raises(NotValidError, match=sentence):
        openid.read_provider("https://i", description)


def test_requests_of_one_source_are_bounded(provider: OpenIdProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        flow = Flow(provider.issuer)

        async def hang(*_: object, **__: object) -> object:
            await asyncio.sleep(60)
            return 0

        monkeypatch.setattr(flow.helper, "_fetch", hang)
        waiting = [asyncio.create_task(flow.begin()) for _ in range(8)]
        await asyncio.sleep(0.05)
        assert "under way" in (await flow.begin())["error"]
        other = asyncio.create_task(flow.helper.answer({"do": "begin", "source": "b"}))
        await asyncio.sleep(0.05)
        assert not other.done(), "others are not refused"
        for task in (*waiting, other):
            task.cancel()

    asyncio.run(work())


def test_nothing_that_is_asked_ends_the_helper(provider: OpenIdProvider) -> None:
    async def work() -> None:
        flow = Flow(provider.issuer)
        for request in ({}, {"do": "x"}, {"do": "finish"}, {"do": "finish", "secret": "s", "code": "c", "state": []}):
            assert "error" in await flow.helper.answer(request)
        assert "url" in await flow.begin()
        gone = Flow("http://127.0.0.1:9")
        assert "does not answer" in (await gone.begin())["error"]

    asyncio.run(work())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"oidc_issuer": "https://i"}, "belong together"),
        ({"oidc_client_id": "c"}, "belong together"),
        ({"oidc_issuer": "http://i", "oidc_client_id": "c"}, "begins with https://"),
        ({"oidc_client_secret_file": Path("s")}, "is for a provider"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConsoleUsageError, match=sentence):
        check(Serve("/api", **options))
