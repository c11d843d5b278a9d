"""Memory pressure as a program sees it. The hook is played here; tests/system/test_memory_pressure.py has it."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from vgpud.client import (
    ClientError,
    MemoryRequest,
    MemoryWatch,
    empty_torch_cache,
    memory,
    memory_requests,
    sleep_vllm,
    watch_memory_pressure,
)

PATIENCE_S = 30.0


class Hook:
    """What libvgpu.so exports for this, with one request that a test sets."""

    def __init__(self) -> None:
        self.fds: list[int] = []
        self.request: tuple[int, int, int] | None = None  # bytes, deadline, serial

    def vg_shim_reclaim_watch(self) -> int:
        self.fds.append(os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC))
        return self.fds[-1]

    def vg_shim_reclaim_unwatch(self, fd: int) -> int:
        self.fds.remove(fd)
        os.close(fd)
        return 0

    def vg_shim_reclaim_read(self, raw: Any, capacity: int) -> int:
        assert capacity == len(raw)
        if self.request is None:
            return 0
        raw[0].remaining_bytes, raw[0].deadline_ns, raw[0].serial = self.request
        raw[0].uuid = (ctypes.c_ubyte * 16)(*range(16))
        return 1

    def ask(self, size: int, serial: int) -> None:
        self.request = size, 5_000_000_000, serial
        for fd in self.fds:
            os.eventfd_write(fd, 1)


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    made = Hook()
    monkeypatch.setattr(memory, "_hook", lambda: made)
    yield made
    assert made.fds == [], "all watches were closed"


def test_a_request_is_taken_once(hook: Hook) -> None:
    with MemoryWatch() as watch:
        assert watch.take_requests() == []
        hook.ask(300, 1)
        (request,) = watch.take_requests()
        uuid = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
        assert request == MemoryRequest(0, uuid, 300, 5.0, 1)
        assert request.remaining_s == 0.0, "its deadline has passed"
        hook.request = 200, 5_000_000_000, 1
        assert watch.take_requests() == [], "it is the same request"
        assert [now.remaining_bytes for now in watch.open_requests()] == [200]
        hook.ask(900, 2)
        assert [now.remaining_bytes for now in watch.take_requests()] == [900]


def test_the_callback_is_called_and_may_fail(hook: Hook, capsys: pytest.CaptureFixture[str]) -> None:
    sizes: list[int] = []
    called = threading.Event()

    def callback(request: MemoryRequest) -> None:
        sizes.append(request.remaining_bytes)
        called.set()
        raise ValueError("no room")

    with watch_memory_pressure(callback):
        for serial, size in ((1, 100), (2, 400)):
            hook.ask(size, serial)
            assert called.wait(PATIENCE_S)
            called.clear()
    assert sizes == [100, 400]
    assert capsys.readouterr().err.count("ValueError: no room") == 2


def test_a_callback_may_close_its_watch(hook: Hook) -> None:
    done = threading.Event()

    def callback(_: MemoryRequest) -> None:
        watcher.close()
        done.set()

    watcher = watch_memory_pressure(callback)
    hook.ask(1, 1)
    assert done.wait(PATIENCE_S)
    watcher.close()
    watcher._thread.join(PATIENCE_S)


def test_requests_are_an_asynchronous_iterator(hook: Hook) -> None:
    async def read() -> list[int]:
        sizes: list[int] = []
        async with contextlib.aclosing(memory_requests()) as requests:
            asyncio.get_running_loop().call_later(0.01, hook.ask, 100, 1)
            async for request in requests:
                sizes.append(request.remaining_bytes)
                if len(sizes) == 2:
                    break
                hook.ask(200, 2)
        return sizes

    assert asyncio.run(asyncio.wait_for(read(), PATIENCE_S)) == [100, 200]


def test_outside_of_slices_it_is_refused() -> None:
    with pytest.raises(ClientError, match="this program is in no slice: start it with `vgpu run`"):
        watch_memory_pressure(empty_torch_cache)


def test_it_loads_no_grpc() -> None:
    code = "import sys; from vgpud.client import watch_memory_pressure, sleep_vllm; assert 'grpc' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


REQUEST = MemoryRequest(0, "GPU-0", 100, 0.0, 1)


def test_torchs_cache_is_emptied_only_where_torch_uses_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    empty_torch_cache(REQUEST)
    assert "torch" not in sys.modules, "it is not imported for this"
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(  # type: ignore[attr-defined]
        is_initialized=lambda: bool(calls), empty_cache=lambda: calls.append("emptied")
    )
    monkeypatch.setitem(sys.modules, "torch", torch)
    empty_torch_cache(REQUEST)
    assert calls == []
    calls.append("begun")
    empty_torch_cache(REQUEST)
    assert calls == ["begun", "emptied"]


class Engine(BaseHTTPRequestHandler):
    """The part of vLLM's server that is asked."""

    paths: list[str] = []

    def do_POST(self) -> None:
        self.paths.append(self.path)
        self.send_response(200 if self.path.startswith("/sleep") else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_vllm_is_sent_to_sleep() -> None:
    with HTTPServer(("127.0.0.1", 0), Engine) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        sleep_vllm(address)(REQUEST)
        sleep_vllm(address, level=2)(REQUEST)
        server.shutdown()
        thread.join()
    assert Engine.paths == ["/sleep?level=1", "/sleep?level=2"]
