"""Ports of sessions: free ones, a share of them for each user, and known again after a restart."""

from __future__ import annotations

import os
import socket

import pytest

from vgpud.jobs import session_ports
from vgpud.jobs.runner import StartError
from vgpud.jobs.session_ports import Ports, SessionPorts


def test_a_port_that_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(session_ports.random, "sample", lambda *_: [taken])
        monkeypatch.setattr(session_ports, "FIRST", taken)
        monkeypatch.setattr(session_ports, "LAST", taken)
        with pytest.raises(StartError, match=f"are taken \\(at 1 of them programs of uid {os.geteuid()} listen") as no:
            SessionPorts().choose(1, 1000, ())
        assert no.value.may_retry
    assert SessionPorts().choose(1, 1000, ()).own == taken


def test_two_sessions_have_no_port_in_common() -> None:
    """Though neither listens yet."""
    known = SessionPorts()
    found = [port for job_id in range(50) for port in known.choose(job_id, 1000, ("tb", "api"))]
    assert len(set(found)) == 150
    assert all(session_ports.FIRST <= port <= session_ports.LAST < 32_768 for port in found), (
        "below those of outgoing connections"
    )


def test_a_user_has_a_share_of_the_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_ports, "USER_PORTS_MAX", 3)
    known = SessionPorts()
    known.choose(1, 1000, ("tb",))
    known.choose(2, 1000, ())
    with pytest.raises(StartError, match="sessions of uid 1000 have 3 ports, of 3 that one user may have") as refused:
        known.choose(3, 1000, ())
    assert refused.value.may_retry, "the job waits until one of its user's sessions has ended"
    known.choose(3, 1001, ())
    known.choose(2, 1000, ())  # another attempt of the same job
    known.release(2)
    known.choose(4, 1000, ())


def test_a_thousand_sessions_of_one_user_leave_ports_to_others() -> None:
    known = SessionPorts()
    for job_id in range(session_ports.USER_PORTS_MAX):
        known.choose(job_id, 1000, ())
    with pytest.raises(
        StartError, match=r"1000 ports, of 1000 that one user may have: stop some \(`vgpu session ls`\)"
    ):
        known.choose(5000, 1000, ())
    assert known.choose(5001, 1001, ()).own


def test_ports_are_of_one_attempt() -> None:
    for ports in (Ports(20_001), Ports(20_001, (("tb", 20_002), ("api", 20_003)))):
        facts = {"cpu_ns": 1, **session_ports.as_facts(ports, 2)}
        assert [session_ports.known_ports(facts, attempt) for attempt in (1, 2, 3)] == [None, ports, None]
    assert session_ports.known_ports({}, 1) is None
    of_before = {"session_port": 20_001, "session_attempt": 1}
    assert session_ports.known_ports(of_before, 1) == Ports(20_001), "a daemon of before named ports has saved this"
