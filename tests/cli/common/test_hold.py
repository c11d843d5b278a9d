"""The connection by which `vgpu run` keeps its slice alive."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.fake_server import FakeAttachSocket
from vgpud.client import held_slice
from vgpud.errors import CliError


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_messages_are_those_of_the_abi() -> None:
    shim: Any = pytest.importorskip("vgpud._shim", reason="the native part is not built")
    assert shim.ffi.sizeof("struct vg_attach_request") == len(held_slice.request())
    request = shim.ffi.from_buffer("struct vg_attach_request *", held_slice.request())
    assert held_slice.ABI_VERSION == shim.lib.VG_ABI_VERSION
    oldest = shim.lib.VG_ABI_VERSION_OLDEST  # a daemon that was not restarted since an upgrade takes it
    assert (request.magic, request.abi_version) == (shim.lib.VG_ABI_MAGIC, oldest)
    assert (request.bytes, request.resume) == (len(held_slice.request()), shim.lib.VG_ATTACH_HOLD)
    assert request.device_count == 0
    reply = "struct vg_attach_reply"
    assert shim.ffi.offsetof(reply, "devices") == held_slice._REPLY.size
    assert shim.ffi.offsetof(reply, "slice") == 32
    assert shim.ffi.sizeof(reply) <= held_slice._REPLY_BYTES_MAX
    assert (shim.lib.VG_ATTACH_OK, shim.lib.VG_ATTACH_NO_SLICE) == (held_slice._OK, held_slice._NO_SLICE)


def test_it_holds_and_lets_go(tmp_path: Path) -> None:
    server = FakeAttachSocket(tmp_path / "attach.sock")
    with held_slice.Holder(str(server.path)):
        wait_until(lambda: len(server.peers) == 1)
        assert server.messages == [held_slice.request()]
    assert server.peers[0].recv(1) == b""


def test_it_comes_back_after_a_restart(tmp_path: Path) -> None:
    server = FakeAttachSocket(tmp_path / "attach.sock")
    with held_slice.Holder(str(server.path)):
        wait_until(lambda: len(server.peers) == 1)
        server.stop()
        time.sleep(0.1)
        server.listen()
        wait_until(lambda: len(server.peers) == 1)
    assert server.messages == [held_slice.request()] * 2


def test_a_refusal_is_the_daemons_words(tmp_path: Path) -> None:
    server = FakeAttachSocket(tmp_path / "attach.sock")
    server.status = 3
    with pytest.raises(CliError, match="no: fix it") as caught:
        held_slice.Holder(str(server.path))
    assert caught.value.exit_code == 5


def test_no_socket_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(CliError, match=r"attach\.sock"):
        held_slice.Holder(str(tmp_path / "attach.sock"))
