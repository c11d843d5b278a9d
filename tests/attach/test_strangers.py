"""Connections to an attach socket that send what is no message of a program's."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.attach import client
from vgpud.attach.server import Tenants
from vgpud.core.slices.attach_rules import Rules


def test_whose_a_connection_is_costs_nothing_where_no_message_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To find that out takes ten times as long as to see that a message is none, and any user may send those."""
    refusals: list[tuple[str, int, str]] = []

    def peer(self: Tenants, sock: socket.socket, slice_name: str) -> None:
        raise AssertionError("it was looked at")

    async def main() -> None:
        backend: Any = SimpleNamespace(
            arbiter=None, rules=lambda: (Rules(), {}), note_refusal=lambda *words: refusals.append(words)
        )
        tenants = Tenants(tmp_path / "slices", tmp_path / "shared", "n", "open", backend)
        tenants.open("a")
        sock, gone = (client.connect(str(tmp_path / "slices/a/attach.sock")) for _ in range(2))
        gone.close()
        sock.send(b"GET / HTTP/1.1")
        sock.setblocking(False)
        reply = await asyncio.get_running_loop().sock_recv(sock, client.REPLY_BYTES)
        assert b"message of 14 bytes" in reply
        tenants.close_all()
        sock.close()

    monkeypatch.setattr(Tenants, "_peer", peer)
    asyncio.run(asyncio.wait_for(main(), 30))
    ((name, pid, why),) = refusals
    assert (name, pid) == ("a", os.getpid()) and "message of 14 bytes" in why
