"""What a session's page may do while it has the console's origin."""

from __future__ import annotations

import pytest

from vgpud.console.sessions.policy import apply_policy, stays_inside

BASE, HOST = b"/session/7/", "127.0.0.1:8377"


def test_a_page_talks_to_its_own_session_only() -> None:
    found = apply_policy([(b"content-type", b"text/html")], BASE, HOST, has_tls=False)
    policy = dict(found)[b"content-security-policy"].decode()
    connect = policy.partition(";")[0].split()
    assert connect[:3] == ["connect-src", f"http://{HOST}/session/7/", f"ws://{HOST}/session/7/"]
    assert "'self'" not in connect and "http:" not in connect and "*" not in connect
    by_tls = dict(apply_policy([], BASE, "gpu1", has_tls=True))[b"content-security-policy"].decode()
    assert by_tls.startswith("connect-src https://gpu1/session/7/ wss://gpu1/session/7/ blob: data:;"), (
        "https: would be the console as well"
    )


def test_the_programs_own_policy_holds_too() -> None:
    found = apply_policy([(b"content-security-policy", b"connect-src *")], BASE, HOST, has_tls=False)
    policies = [value for name, value in found if name == b"content-security-policy"]
    assert policies[0] == b"connect-src *" and len(policies) == 2, "a browser lets through what both allow"


def test_no_session_lifts_the_consoles_guards() -> None:
    answer = [(b"x-frame-options", b"ALLOWALL"), (b"cross-origin-resource-policy", b"cross-origin")]
    found = apply_policy(answer, BASE, HOST, has_tls=False)
    assert [value for name, value in found if name == b"x-frame-options"] == [b"SAMEORIGIN"]
    assert [value for name, value in found if name == b"cross-origin-resource-policy"] == [b"same-origin"]


def test_a_host_that_no_policy_can_name() -> None:
    found = dict(apply_policy([], BASE, "[::1]:8377", has_tls=False))
    assert found[b"content-security-policy"].startswith(b"connect-src 'self' ")
    found = dict(apply_policy([], BASE, "127.0.0.1:1; script-src *", has_tls=False))
    assert b"script-src" not in found[b"content-security-policy"]


@pytest.mark.parametrize(
    ("location", "is_inside"),
    [
        (b"/session/7/lab?reset", True),
        (b"lab", True),
        (b"lab/tree/a%20b?x=http://y#z", True),
        (b"?token=1", True),
        (b"", True),
        (b"http://127.0.0.1:8377/session/7/lab", True),
        (b"https://example.org/login?x=1", True),
        (b"/queue", False),
        (b"/session/8/", False),
        (b"/session/7/../../queue", False),
        (b"/session/7/%2e%2e/%2e%2e/queue", False),
        (b"../../queue", False),
        (b"a/../../../queue", False),
        (b"%2e%2e/%2e%2e/queue", False),
        (b"//127.0.0.1:8377/queue", False),
        (b"/\\127.0.0.1:8377/queue", False),
        (b"\\\\127.0.0.1:8377\\queue", False),
        (b"http:/queue", False),
        (b"http:queue", False),
        (b"http:///127.0.0.1:8377/queue", False),
        (b"http://127.0.0.1:8377/queue", False),
        (b"HTTP://127.0.0.1:8377/queue", False),
        (b"http://127.0.0.1/queue", False),
        (b"http://x@127.0.0.1:8377/queue", False),
        (b"http://x/\\..\t/queue", False),
        (b" /queue", False),
        (b"\t/queue", False),
        (b"javascript:alert(1)", False),
    ],
)
def test_redirects_do_not_lead_to_the_console(location: bytes, is_inside: bool) -> None:
    """A policy's paths hold until a redirect only."""
    assert stays_inside(location, BASE, HOST) is is_inside
    answer = apply_policy([(b"location", location)], BASE, HOST, has_tls=False)
    assert (b"location" in dict(answer)) is is_inside
