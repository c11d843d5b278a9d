"""Failed passwords make the users who fail wait, and no others."""

from __future__ import annotations

import os
import socket

import pytest

from vgpud.console.login import failures as module
from vgpud.console.login.client import find_source
from vgpud.console.login.failures import ALL_MAX, KNOWN_FAIL_MAX, OWN_MAX, SHARED_MAX, WINDOW_NS, Attempt, Failures

ALICE = Attempt("alice", "10.0.0.1", is_shared=False)


def fail(failures: Failures, attempt: Attempt, count: int, now_ns: int = 0) -> int:
    """So many tries at one time; how many of them were looked at."""
    looked_at = 0
    for _ in range(count):
        if not failures.wait_ns(attempt, now_ns):
            failures.add(attempt, now_ns)
            looked_at += 1
    return looked_at


def test_failures_of_a_name_at_an_address_make_it_wait() -> None:
    failures = Failures()
    assert fail(failures, ALICE, 100) == OWN_MAX
    assert failures.wait_ns(ALICE, 1) == WINDOW_NS - 1
    assert failures.wait_ns(Attempt("bob", ALICE.source, is_shared=False), 1) == WINDOW_NS - 1, "the address"
    assert failures.wait_ns(Attempt("alice", "10.0.0.2", is_shared=False), 1) == 0, "from another address"
    assert failures.wait_ns(ALICE, WINDOW_NS + 1) == 0


def test_a_shared_source_has_more_and_each_name_its_own() -> None:
    failures = Failures()
    proxy = [Attempt(f"user{n}", "uid 33", is_shared=True) for n in range(100)]
    assert fail(failures, proxy[0], 100) == OWN_MAX
    assert failures.wait_ns(proxy[1], 0) == 0
    assert OWN_MAX + sum(fail(failures, one, 1) for one in proxy[1:]) == SHARED_MAX
    assert failures.wait_ns(proxy[1], 1) == WINDOW_NS - 1
    failures.log_in(proxy[99])
    assert failures.wait_ns(proxy[99], 1) == 0, "whoever has logged in there does not wait for others"
    assert fail(failures, proxy[99], 100, 1) == OWN_MAX


def test_one_attacker_keeps_no_other_user_out() -> None:
    """Sixty wrong passwords a minute were enough, from one address or one user of this machine."""
    for shared in (False, True):
        failures = Failures()
        for n in range(10_000):
            fail(failures, Attempt(f"name{n}", "attacker", shared), 1, n)
        for name in ("alice", "bob"):
            for where in ("10.0.0.1", "uid 1000"):
                assert failures.wait_ns(Attempt(name, where, is_shared=False), 10_000) == 0


def test_many_addresses_keep_no_one_out_who_has_log_ins_from_there() -> None:
    failures = Failures()
    failures.log_in(ALICE)
    attackers = [Attempt("alice", f"192.0.2.{n}", is_shared=False) for n in range(250)]
    looked_at = sum(fail(failures, attempt, OWN_MAX) for attempt in attackers)
    assert looked_at == ALL_MAX, "what looking at passwords takes is bounded"
    assert failures.wait_ns(ALICE, 1) == 0
    assert failures.wait_ns(Attempt("bob", ALICE.source, is_shared=False), 1) > 0
    assert fail(failures, ALICE, 100, 1) == OWN_MAX


def test_a_source_without_failures_is_looked_at_while_a_few_addresses_attack() -> None:
    failures = Failures()
    for n in range(KNOWN_FAIL_MAX):
        fail(failures, Attempt("alice", f"192.0.2.{n % 12}", is_shared=False), OWN_MAX)
    assert fail(failures, ALICE, 2) == 1, "one try, and then it waits with the others"


def test_what_is_remembered_is_bounded() -> None:
    failures = Failures()
    for n in range(2 * module.REMEMBERED_MAX):
        one = Attempt(str(n), str(n), is_shared=False)
        assert failures.wait_ns(one, n * WINDOW_NS) == 0
        failures.add(one, n * WINDOW_NS)
        failures.log_in(one)
    assert len(failures._own) == len(failures._log_ins) == module.REMEMBERED_MAX
    assert len(failures._by_source) == len(failures._all) <= 2


def test_a_user_of_this_machine_is_known_by_uid_and_others_by_their_network() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, _ = server.accept()
        with near:
            assert find_source(far.getsockname(), near.getsockname()) == f"uid {os.geteuid()}"
    assert find_source(("192.0.2.7", 4), ("192.0.2.8", 5)) == "192.0.2.7"
    assert find_source(("2001:db8::1:2", 4), ("2001:db8::9", 5)) == find_source(
        ("2001:db8::3:4", 4), ("2001:db8::9", 5)
    )
    assert find_source(("testclient", 4), ("testserver", 5)) == "unix"


@pytest.mark.parametrize("host", ["127.0.0.1", "127.7.8.9", "::ffff:127.0.0.2", "::1"])
def test_connections_of_this_machine_that_are_closed_are_one_source(host: str) -> None:
    """They have no uid, and a local user has as many such addresses as there are."""
    assert find_source((host, 4), (host, 5)) == "loopback"
