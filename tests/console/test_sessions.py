"""Links and sessions on a fake clock."""

from __future__ import annotations

import itertools

from vgpud.console.login import sessions
from vgpud.console.login.sessions import IDLE_NS, LINK_NS, SESSION_NS, Sessions


def table() -> Sessions:
    numbers = itertools.count()
    return Sessions(lambda: f"token-{next(numbers)}")


def test_a_link_works_once() -> None:
    known = table()
    token = known.link(1000, "alice", 0)
    cookie = known.redeem_link(token, LINK_NS)
    assert cookie
    session = known.get(cookie, LINK_NS)
    assert session and (session.uid, session.name) == (1000, "alice")
    assert known.redeem_link(token, LINK_NS) is None


def test_a_link_is_too_old_after_a_minute() -> None:
    known = table()
    assert known.redeem_link(known.link(1000, "alice", 0), LINK_NS + 1) is None


def test_a_user_has_few_links_and_takes_none_of_others() -> None:
    known = table()
    first, other = known.link(1, "a", 0), known.link(2, "b", 0)
    for _ in range(sessions.LINKS_MAX):
        last = known.link(1, "a", 0)
    assert known.redeem_link(first, 0) is None
    assert known.redeem_link(other, 0)
    assert known.redeem_link(last, 0)


def test_a_session_ends_when_it_is_not_used() -> None:
    known = table()
    cookie = known.open(1, "a", 0)
    assert known.get(cookie, IDLE_NS)
    assert known.get(cookie, 2 * IDLE_NS)
    assert known.get(cookie, 3 * IDLE_NS + 1) is None


def test_a_session_ends_after_a_day_of_use() -> None:
    known = table()
    cookie = known.open(1, "a", 0)
    for now_ns in range(0, SESSION_NS + 1, IDLE_NS):
        assert known.get(cookie, now_ns)
    assert known.get(cookie, SESSION_NS + 1) is None
    known.expire(SESSION_NS + 1)
    assert known.uids() == set()


def test_a_cookie_is_for_the_source_that_logged_in() -> None:
    known = table()
    cookie = known.redeem_link(known.link(1000, "alice", 0), 0, "1000")
    assert cookie and known.get(cookie, 0, "1000")
    assert known.get(cookie, 0, "1001") is None and known.get(cookie, 0) is None
    anywhere = known.open(1000, "alice", 0)
    assert known.get(anywhere, 0, "1001"), "over TLS a browser keeps the cookie to itself"


def test_the_oldest_session_of_a_user_makes_way() -> None:
    known = table()
    cookies = [known.open(1, "a", n) for n in range(sessions.SESSIONS_MAX + 1)]
    assert known.get(cookies[0], 100) is None
    assert all(known.get(cookie, 100) for cookie in cookies[1:])


def test_tokens_are_not_kept() -> None:
    known = table()
    token, cookie = known.link(1, "a", 0), known.open(1, "a", 0)
    assert token not in repr(vars(known))
    assert cookie not in repr(vars(known))


def test_a_closed_session_is_gone() -> None:
    known = table()
    cookie = known.open(1, "a", 0)
    known.close(cookie)
    assert known.get(cookie, 0) is None
