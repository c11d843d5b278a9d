"""Ports of sessions: free ones, and known again after a restart."""

from __future__ import annotations

import socket

import pytest

from vgpud.jobs import session_ports
from vgpud.jobs.runner import StartError


def test_a_port_that_is_taken_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = server.getsockname()[1]
        monkeypatch.setattr(session_ports.random, "sample", lambda *_: [taken])
        with pytest.raises(StartError, match="are taken") as refused:
            session_ports.choose()
        assert refused.value.may_retry
    assert session_ports.choose() == taken


def test_ports_are_below_those_of_outgoing_connections() -> None:
    assert session_ports.FIRST <= session_ports.choose() <= session_ports.LAST < 32_768


def test_a_port_is_of_one_attempt() -> None:
    facts = {"cpu_ns": 1, **session_ports.as_facts(20_001, 2)}
    assert [session_ports.known_port(facts, attempt) for attempt in (1, 2, 3)] == [0, 20_001, 0]
    assert session_ports.known_port({}, 1) == 0
