"""A test double of the daemon's attach socket: real pages, real native arbiters, and answers as bad as a test wants.

Runs in threads of the test's process. `script` makes it misbehave at the next connections; without one it attaches
every program. It keeps what came in (`requests`) and the pages it gave out (`processes`), so that tests see ledgers.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import vgpud._shim as _shim
from vgpud.attach.messages import Pages

ffi, lib = _shim.ffi, _shim.lib
MIB = 1 << 20
GRANULE = 2 * MIB


def driver_uuid(index: int) -> bytes:
    """The UUID that ledger_driver.c gives its device `index`."""
    return bytes([index + 1] * 16)


@dataclass
class FakeDevice:
    uuid: bytes
    limit_bytes: int = 1024 * MIB
    context_bytes: int = 300 * MIB
    total_bytes: int = 16384 * MIB
    min_bytes: int | None = None  # None: as the limit


@dataclass
class Attached:
    process_id: int
    sock: socket.socket
    pages: Pages
    held: dict[bytes, int] = field(default_factory=dict)

    def control(self, index: int) -> Any:
        return self.pages.of(index)[1]

    def report(self, index: int) -> Any:
        return self.pages.of(index)[2]


#: what is done with one connection instead of attaching it; the request is bytes
Script = Callable[["FakeDaemon", socket.socket, bytes], None]


class FakeDaemon:
    """Listens at `path`. Use as a context manager; stop() and start() play a daemon that dies and comes back."""

    def __init__(self, path: Path, devices: list[FakeDevice], mode: int = lib.VG_MODE_COAST) -> None:
        self.path, self.devices, self.mode = path, devices, mode
        self.script: list[Script] = []
        self.moves_itself = False  # its program moves the slice's memory, as move() asks
        self.leaves: bool | None = None  # None: the slice's memory never leaves the devices
        self.requests: list[Any] = []
        self.processes: list[Attached] = []
        self._serial = 0
        self._running = False

    def __enter__(self) -> FakeDaemon:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        for process in self.processes:
            process.pages.close_sent()
            for bell in process.pages.bells:
                os.close(bell)

    # ---- life ----

    def start(self) -> None:
        self._arbiters = [self._new_arbiter(device) for device in self.devices]
        made = self.path.with_suffix(".new")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(made))
        self._listener.listen(64)
        made.replace(self.path)
        self._running = True
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """As a killed daemon: sockets end, arbiters stop, pages stay with the processes."""
        if not self._running:
            return
        self._running = False
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for arbiter in self._arbiters:
            lib.vg_arbiter_free(arbiter)
        for process in self.processes:
            process.sock.close()

    def freeze(self) -> None:
        """As a daemon that is stopped: sockets stay open, no request is decided any more."""
        for arbiter in self._arbiters:
            lib.vg_arbiter_free(arbiter)
        self._arbiters = []

    def _new_arbiter(self, device: FakeDevice) -> Any:
        params = ffi.new("struct vg_arbiter_params *")
        params.quantum_ns, params.quantum_min_ns, params.bound_ns = 8_000_000, 1_000_000, 2_000_000
        params.open_bound_ns, params.overrun_ns = 20_000_000, 2_000_000
        params.guarantee_depth_ns, params.cap_depth_ns = 50_000_000, 15_000_000
        params.heartbeat_ns, params.memory_total_bytes = 20_000_000, device.total_bytes
        arbiter = lib.vg_arbiter_new(params)
        assert lib.vg_arbiter_slice_set(arbiter, 1, self._params(device)) == 0
        assert lib.vg_arbiter_start(arbiter) == 0
        return arbiter

    def _params(self, device: FakeDevice) -> Any:
        params = ffi.new("struct vg_slice_params *")
        params.min_milli, params.max_milli = 1000, 1000
        params.mem_min_bytes = device.limit_bytes if device.min_bytes is None else device.min_bytes
        params.mem_max_bytes = device.limit_bytes
        params.rotates, params.leaves, params.paused = self.leaves is not None, bool(self.leaves), bool(self.leaves)
        params.moves_itself = self.moves_itself
        return params

    def rotate(self, *, leaves: bool) -> None:
        """The slice's memory leaves its devices, or is back."""
        self.leaves = leaves
        for arbiter, device in zip(self._arbiters, self.devices, strict=True):
            assert lib.vg_arbiter_slice_set(arbiter, 1, self._params(device)) == 0

    def move(self, where: int) -> int:
        """Asks the program to have its memory there (VG_MOVE_*); returns the word that it answers."""
        (arbiter,) = self._arbiters
        word: int = lib.vg_arbiter_slice_move(arbiter, 1, where)
        assert word > 0
        return word

    def stats(self) -> list[Any]:
        """The slice's counters on each device."""
        rows = [ffi.new("struct vg_slice_stats *") for _ in self._arbiters]
        for arbiter, row in zip(self._arbiters, rows, strict=True):
            assert lib.vg_arbiter_slice_stats(arbiter, 1, row) == 0
        return rows

    def resize(self, index: int, limit_bytes: int) -> None:
        """Changes the slice's memory on a device, live."""
        limits = ffi.new("struct vg_slice_params *")
        limits.min_milli = limits.max_milli = 1000
        limits.mem_min_bytes = limits.mem_max_bytes = limit_bytes
        assert lib.vg_arbiter_slice_set(self._arbiters[index], 1, limits) == 0

    # ---- attach ----

    def _serve(self) -> None:
        while self._running:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            raw = sock.recv(1 << 16)
            if not raw:
                sock.close()
                continue
            script = self.script.pop(0) if self.script else FakeDaemon.attach
            script(self, sock, raw)

    def reply(self, status: int = 0, text: str = "") -> Any:
        """A good answer, to be spoiled."""
        reply = ffi.new("struct vg_attach_reply *")
        reply.magic, reply.abi_version, reply.bytes = lib.VG_ABI_MAGIC, lib.VG_ABI_VERSION, ffi.sizeof(reply[0])
        reply.status, reply.mode, reply.text = status, self.mode, text.encode()
        reply.slice, reply.node, reply.process_id = b"test", b"here", self._serial
        reply.device_count = len(self.devices)
        for entry, device in zip(reply.devices, self.devices, strict=False):
            ffi.buffer(entry.uuid)[:] = device.uuid
            entry.min_milli = entry.max_milli = 1000
            entry.mem_min_bytes = entry.mem_max_bytes = device.limit_bytes
            entry.context_bytes, entry.granule_bytes = device.context_bytes, GRANULE
        return reply

    def attach(self, sock: socket.socket, raw: bytes) -> None:
        """As the daemon does it."""
        request = ffi.new("struct vg_attach_request *")
        ffi.buffer(request)[:] = raw
        self.requests.append(request)
        self._serial += 1
        process = Attached(self._serial, sock, Pages(len(self.devices), self.mode))
        if request.resume == lib.VG_ATTACH_RESUME:
            for i in range(request.device_count):
                entry = request.devices[i]
                process.held[bytes(ffi.buffer(entry.uuid))] = entry.held_bytes
        for index, device in enumerate(self.devices):
            held = process.held.get(device.uuid, 0)
            bell = process.pages.bells[index]
            result = lib.vg_arbiter_process_add(
                self._arbiters[index], 1, process.process_id, *process.pages.of(index), bell, held
            )
            assert result == 0
        self.processes.append(process)
        message = bytes(ffi.buffer(self.reply()))
        socket.send_fds(sock, [message], [*process.pages.fds, *process.pages.bells])

    def dead(self, process: Attached) -> None:
        """A process is gone: its credit is free."""
        for arbiter in self._arbiters:
            lib.vg_arbiter_process_remove(arbiter, process.process_id)

    def used_bytes(self, index: int = 0) -> int:
        """What the ledgers of all processes say they use of device `index`."""
        return sum(int(process.report(index).used_bytes) for process in self.processes)


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    """True as soon as the condition holds; a deadline far beyond what it takes, against hanging only."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


@contextlib.contextmanager
def memfd(size: int) -> Iterator[int]:
    """A descriptor of memory, for spoiled answers."""
    fd = os.memfd_create("spoiled", os.MFD_CLOEXEC)
    os.ftruncate(fd, size)
    yield fd
    os.close(fd)
