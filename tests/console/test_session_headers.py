"""What is passed on between a browser and a session, and what is not."""

from __future__ import annotations

import pytest

from vgpud.console.sessions.headers import Headers, from_session, is_within, to_session

BASE = b"/session/7/"
BEARER = ("authorization", "Bearer t")


def convert(*headers: tuple[bytes, bytes], token: tuple[str, str] = BEARER) -> Headers:
    return to_session([(b"host", b"console:8377"), *headers], token, "https")


def test_the_session_gets_its_token_and_no_other() -> None:
    assert (b"authorization", b"Bearer t") in convert()
    assert [value for name, value in convert((b"authorization", b"Basic x")) if name == b"authorization"] == [
        b"Bearer t"
    ]


@pytest.mark.parametrize(
    ("cookies", "result"),
    [
        (b"vgpu=secret", []),
        (b"__Host-vgpu=secret; theme=dark", []),
        (b"a=1; vgpu=secret;b=2", [b"a=1; b=2"]),
        (b"VGPU=secret; vgpu2=1", [b"vgpu2=1"]),
        (b" vgpu = secret ; c", [b"c"]),
    ],
)
def test_no_cookie_of_the_console_reaches_a_session(cookies: bytes, result: list[bytes]) -> None:
    assert [value for name, value in convert((b"cookie", cookies)) if name == b"cookie"] == result
    both = convert((b"cookie", cookies), token=("cookie", "vscode-tkn=t"))
    assert [value for name, value in both if name == b"cookie"] == [b"; ".join([*result, b"vscode-tkn=t"])]


def test_a_token_in_a_cookie_replaces_the_browsers() -> None:
    found = convert((b"cookie", b"vscode-tkn=old; a=1"), token=("cookie", "vscode-tkn=t"))
    assert (b"cookie", b"a=1; vscode-tkn=t") in found


def test_headers_of_one_connection_are_left_out() -> None:
    found = convert(
        (b"connection", b"keep-alive, X-Mine"), (b"x-mine", b"1"), (b"te", b"trailers"), (b"expect", b"100")
    )
    assert {name for name, _ in found} == {b"host", b"authorization", b"x-forwarded-host", b"x-forwarded-proto"}


def test_only_the_console_says_where_a_request_is_from() -> None:
    found = convert((b"x-forwarded-for", b"1.2.3.4"), (b"x-forwarded-host", b"evil"), (b"forwarded", b"for=x"))
    assert [value for name, value in found if b"forwarded" in name] == [b"console:8377", b"https"]


@pytest.mark.parametrize(
    ("cookie", "result"),
    [
        (b"a=1", b"a=1; Path=/session/7/"),
        (b"a=1; Path=/", b"a=1; Path=/session/7/"),
        (b"a=1; path=/session/7/lab; Secure", b"a=1; Secure; Path=/session/7/lab"),
        (b"a=1; Path=/session/7/../8/", b"a=1; Path=/session/7/"),
        (b"a=1; Path=/session/8/", b"a=1; Path=/session/7/"),
        (b"a=1; Domain=example.org; SameSite=Lax", b"a=1; SameSite=Lax; Path=/session/7/"),
        (b"vgpu=1", None),
        (b" Vgpu =1", None),
        (b"__Host-vgpu=1; Secure; Path=/", None),
        (b"__host-other=1", None),
        (b"__Secure-x=1", None),
        (b"theme=dark", None),
        (b"=vgpu=1", None),
        (b"", None),
    ],
)
def test_cookies_of_a_session_stay_below_its_path(cookie: bytes, result: bytes | None) -> None:
    found = from_session([(b"Set-Cookie", cookie), (b"X-Mine", b"1")], BASE)
    assert found == [(b"x-mine", b"1"), *([(b"set-cookie", result)] if result else [])]


def test_a_session_says_nothing_for_the_whole_host() -> None:
    names = (b"Service-Worker-Allowed", b"Clear-Site-Data", b"Strict-Transport-Security", b"Connection", b"Upgrade")
    assert from_session([(name, b"x") for name in names], BASE) == []


@pytest.mark.parametrize(
    ("path", "is_inside"),
    [
        (b"/session/7/", True),
        (b"/session/7/a/b%20c/..d/d..", True),
        (b"/session/7", False),
        (b"/session/70/", False),
        (b"/session%2f7/", False),
        (b"/session/7/..", False),
        (b"/session/7/a/../../8/", False),
        (b"/session/7/%2E%2e/8/", False),
        (b"/session/7/..%2f8/", False),
        (b"/session/7/%252e%252e/8/", False),
        (b"/session/7/..\\8/", False),
        (b"/session/7/./a", False),
    ],
)
def test_paths(path: bytes, is_inside: bool) -> None:
    assert is_within(path, BASE) is is_inside


def test_a_session_lets_no_other_site_read_it() -> None:
    given = [(b"Access-Control-Allow-Origin", b"http://127.0.0.1:5000"), (b"access-control-allow-credentials", b"true")]
    assert from_session([*given, (b"content-type", b"text/html")], BASE) == [(b"content-type", b"text/html")]


def test_one_of_two_lengths_of_an_answer_is_left_out() -> None:
    assert from_session([(b"transfer-encoding", b"chunked"), (b"content-length", b"9")], BASE) == []
