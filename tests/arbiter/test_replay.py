"""A recording of a real arbiter thread, played to the model and the core: both decide what was decided then."""

from __future__ import annotations

import errno
import lzma
import os
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from models.arbiter.model import Regime
from tests.arbiter.replay import HEADER, RECORD, read, replay
from tests.builders import make_device, make_slice
from vgpud.config import ArbiterConfig, arbiter_items
from vgpud.core.model import Share, Slice
from vgpud.devices.arbiters import Arbiters, ffi

UUID = "GPU-0"
PIECE_S = 0.001


class Tenant(threading.Thread):
    """Works piece by piece and says so as the shim would; with a pause after each, or (0) without a break."""

    def __init__(self, pause_s: float) -> None:
        super().__init__(daemon=True)
        self.pause_s = pause_s
        self.header = ffi.new("struct vg_control_header *")
        self.control = ffi.new("struct vg_control_device *")
        self.report = ffi.new("struct vg_report_device *", {"contexts": 1})
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)
        self.is_stopped = False

    def run(self) -> None:
        while not self.is_stopped:
            if self.control.gate & 3:
                self._work()
                time.sleep(self.pause_s)
            else:
                self._wait()

    def _work(self) -> None:
        """One that never pauses is active from its first launch on, at its closed gate as well: what a busy machine
        puts between two statements of ours is no pause of a program's."""
        begin_ns = time.monotonic_ns()
        if self.pause_s or not self.report.active_since_ns:
            self._say(active_since_ns=begin_ns)
        self._say(busy_since_ns=begin_ns, outstanding=1)
        time.sleep(PIECE_S)
        while self.control.gate & 3 and not self.pause_s and not self.is_stopped:
            self._say(done_ns=self.report.busy_ns + time.monotonic_ns() - begin_ns)
            time.sleep(PIECE_S)
        total_ns = self.report.busy_ns + time.monotonic_ns() - begin_ns
        self._say(outstanding=0, busy_since_ns=0, busy_ns=total_ns)
        if self.pause_s:
            self._say(active_since_ns=0, active_ns=total_ns)
        self._say(done_ns=total_ns, launches=self.report.launches + 1)

    def _wait(self) -> None:
        word = self.control.gate
        self._say(drained_ns=time.monotonic_ns(), noticed_word=word, drained_word=word, waiting=1)
        while self.control.gate == word and not self.is_stopped:
            time.sleep(PIECE_S / 5)
        self._say(waiting=0)

    def _say(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self.report, name, value)
        os.eventfd_write(self.bell, 1)


def slice_of(serial: int, low: int, high: int) -> Slice:
    return make_slice(f"s{serial}", Share(UUID, low, high, 0, 1 << 28), milli=low, serial=serial)


def arbiters() -> Arbiters:
    return Arbiters([make_device(uuid=UUID)], dict(arbiter_items(ArbiterConfig())))


def record(path: Path) -> None:
    """Two that saturate and one that is capped and leaves gaps; limits change, and one goes."""
    made = arbiters()
    tenants = {1: Tenant(0), 2: Tenant(0), 3: Tenant(0.002)}
    with path.open("wb") as file:
        made.record(UUID, file.fileno())
    for serial, tenant in tenants.items():
        made.apply(slice_of(serial, 250, 300 if serial == 3 else 1000))
        made.attach(serial, serial, UUID, (tenant.header, tenant.control, tenant.report), tenant.bell, 0)
        tenant.start()
    time.sleep(0.6)
    made.apply(slice_of(1, 400, 600))
    made.set_times({"quantum_ns": 5_000_000})
    time.sleep(0.2)
    made.detach(3, UUID)
    made.remove(slice_of(3, 250, 300))
    time.sleep(0.2)
    for serial, tenant in tenants.items():
        tenant.is_stopped = True
        tenant.join()
        made.detach(serial, UUID)
    made.close()


def test_what_was_recorded_is_decided_again(tmp_path: Path) -> None:
    record(tmp_path / "log")
    played = replay(tmp_path / "log")
    assert played.steps > 100
    assert Regime.ARBITRATED in played.regimes


def test_model_and_core_agree_over_a_recording_of_old(tmp_path: Path) -> None:
    """Made by record() above; it stays as it is when the policy changes."""
    path = tmp_path / "log"
    path.write_bytes(lzma.decompress((Path(__file__).parent / "data" / "three_tenants.log.xz").read_bytes()))
    played = replay(path, checks_decisions=False)
    assert played.steps > 1000
    assert {Regime.SOLO, Regime.OPEN, Regime.ARBITRATED} <= played.regimes


def test_a_recording_that_does_not_fit_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "log"
    record(path)
    raw = bytearray(path.read_bytes())
    _begin_ns, records = read(path)
    index = next(i for i, one in enumerate(records) if one.kind == 6 and i > 500)
    struct.pack_into("=Q", raw, HEADER.size + index * RECORD.size + 24, 12345)  # another gate word
    path.write_bytes(raw)
    with pytest.raises(AssertionError):
        replay(path)
    path.write_bytes(b"\0" * 100)
    with pytest.raises(ValueError, match="no recording"):
        read(path)


def test_a_recording_begins_without_slices(tmp_path: Path) -> None:
    made = arbiters()
    made.apply(slice_of(1, 500, 1000))
    with (tmp_path / "log").open("wb") as file, pytest.raises(OSError, match=os.strerror(errno.EBUSY)):
        made.record(UUID, file.fileno())
    made.close()
