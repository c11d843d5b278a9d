"""Host names of sessions' own: which one is meant, and who may enter."""

from __future__ import annotations

import pytest

from vgpud.console.login.client import User
from vgpud.console.sessions.address import Address, parse_path
from vgpud.console.sessions.headers import from_session
from vgpud.console.sessions.own_hosts import ENTRIES_MAX, TICKET_S, Domain, Entries

DOMAIN = Domain("s.example.org", "https://gpu.example.org:8377")
ALICE = User(1000, "alice", "csrf", "cookie", "src")


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("session-7.s.example.org", Address(7)),
        ("session-7.s.example.org:8377", Address(7)),
        ("SESSION-7-TB.S.Example.org", Address(7, "tb")),
        ("session-7.evil.org", None),
        ("session-7.s.example.org.evil.org", None),
        ("session-0.s.example.org", None),
        ("session--7.s.example.org", None),
        ("session-7-.s.example.org", None),
        ("session-99999999999999999999.s.example.org", None),
        ("s.example.org", None),
        ("x.session-7.s.example.org", None),
        ("gpu.example.org", None),
        ("", None),
    ],
)
def test_hosts(host: str, address: Address | None) -> None:
    assert DOMAIN.parse_host(host) == address
    assert Domain("", "http://x").parse_host(host) is None


def test_addresses_lead_back() -> None:
    for address in (Address(7), Address(7, "tb")):
        url = DOMAIN.url_of(address)
        assert DOMAIN.parse_host(url.partition("://")[2]) == address
    assert DOMAIN.url_of(Address(7)) == "https://session-7.s.example.org:8377"
    assert Domain("s.x", "https://x").url_of(Address(7, "tb")) == "https://session-7-tb.s.x"


@pytest.mark.parametrize(
    ("path", "address"),
    [
        (b"/session/7/", Address(7)),
        (b"/session/7-tb/a", Address(7, "tb")),
        (b"/session/7-TB/", None),
        (b"/session/7-/", None),
        (b"/session/7-tb/../8/", None),
        (b"/session/7-tb", None),
        (b"/session/-7/", None),
        ("/session/\u0667/".encode(), None),
    ],
)
def test_paths(path: bytes, address: Address | None) -> None:
    assert parse_path(path) == address


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_ticket_works_once_for_its_session_and_its_source() -> None:
    clock = Clock()
    known = Entries(clock)
    ticket = known.make_ticket(ALICE, Address(7))
    cookie = known.redeem(ticket, Address(7), "src")
    assert cookie and known.find(cookie, Address(7), "src") == ALICE
    assert known.redeem(ticket, Address(7), "src") is None
    assert known.find(cookie, Address(8), "src") is None, "the host of another session"
    assert known.find(cookie, Address(7), "another") is None
    assert known.redeem(known.make_ticket(ALICE, Address(7)), Address(8), "src") is None
    assert known.redeem(known.make_ticket(ALICE, Address(7)), Address(7), "x") is None
    late = known.make_ticket(ALICE, Address(7))
    clock.now_s += TICKET_S + 1
    assert known.redeem(late, Address(7), "src") is None
    known.forget(cookie)
    assert known.find(cookie, Address(7), "src") is None


def test_what_is_remembered_is_bounded_and_no_secret() -> None:
    known = Entries(Clock())
    tickets = [known.make_ticket(ALICE, Address(number + 1)) for number in range(ENTRIES_MAX + 1)]
    assert known.redeem(tickets[0], Address(1), "src") is None
    cookie = known.redeem(tickets[-1], Address(ENTRIES_MAX + 1), "src")
    assert cookie and tickets[5] not in repr(vars(known)) and cookie not in repr(vars(known))


@pytest.mark.parametrize(
    ("cookie", "result"),
    [
        (b"a=1; Path=/; Secure", b"a=1; Path=/; Secure"),
        (b"a=1; Domain=example.org; SameSite=Lax", b"a=1; SameSite=Lax"),
        (b"__Host-a=1; Secure; Path=/", b"__Host-a=1; Secure; Path=/"),
        (b"vgpu-session=1", None),
        (b"__Host-vgpu-session=1", None),
        (b"vgpu-share-8=1", None),
        (b"=vgpu=1", None),
    ],
)
def test_cookies_of_a_session_with_a_host_of_its_own(cookie: bytes, result: bytes | None) -> None:
    found = from_session([(b"set-cookie", cookie)], b"/session/7/", has_own_host=True)
    assert found == ([(b"set-cookie", result)] if result else [])
