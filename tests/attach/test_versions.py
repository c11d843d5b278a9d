"""Libraries of an older release at the attach socket: a program keeps its library when vgpud is upgraded."""

from __future__ import annotations

import mmap
import os
import socket
import struct

import pytest

from tests.attach import client
from tests.daemon.node import Node
from vgpud._shim import lib


@pytest.mark.parametrize("kind", [client.FRESH, client.RESUME, client.QUERY])
def test_a_program_with_an_older_library_is_answered_in_its_version(node: Node, kind: int) -> None:
    """It checks the version of the answer and of its page."""
    name = f"older-{kind}"
    node.start()
    node.create(name)
    oldest = lib.VG_ABI_VERSION_OLDEST
    with client.connect(node.socket(name)) as sock:
        sock.send(client.request(kind, abi_version=oldest))
        raw, fds, _flags, _address = socket.recv_fds(sock, client.REPLY_BYTES + 1, 64)
        assert struct.unpack_from("<4I", raw) == (client.MAGIC, oldest, client.REPLY_BYTES, client.OK)
        if kind != client.QUERY:
            with mmap.mmap(fds[0], 2 * client.PAGE, mmap.MAP_SHARED, mmap.PROT_READ) as control:
                assert struct.unpack_from("<2I", control) == (client.MAGIC, oldest)
        for fd in fds:
            os.close(fd)
