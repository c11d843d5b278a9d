"""The Python shell of the native arbiters, against real arbiter threads and tenants' pages made by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from vgpud.arbiter import Arbiters, ffi
from vgpud.config import ArbiterConfig, arbiter_items
from vgpud.core.model import Device, Share, Slice, Spec

UUID = "GPU-0"
SERIAL, PROCESS = 7, 70


class Tenant:
    """A process's pages, written by the test instead of the shim."""

    def __init__(self) -> None:
        self.header = ffi.new("struct vg_control_header *")
        self.control = ffi.new("struct vg_control_device *")
        self.report = ffi.new("struct vg_report_device *")
        self.bell = os.eventfd(0, os.EFD_NONBLOCK)

    def says(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self.report, name, value)
        os.eventfd_write(self.bell, 1)


@pytest.fixture
def arbiters() -> Iterator[Arbiters]:
    device = Device(UUID, 0, "a device", "", 1 << 30, 1, True, 0, 1)
    made = Arbiters([device], dict(arbiter_items(ArbiterConfig())))
    made.apply(Slice("a", "uid", SERIAL, Spec(500), (Share(UUID, 500, 1000, 0, 1 << 28),), False, 0, 0))
    yield made
    made.close()


@pytest.fixture
def tenant(arbiters: Arbiters) -> Iterator[Tenant]:
    made = Tenant()
    arbiters.attach(SERIAL, PROCESS, UUID, (made.header, made.control, made.report), made.bell, 0)
    yield made
    arbiters.detach(PROCESS, UUID)
    os.close(made.bell)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_trace_tells_what_a_tenant_did(arbiters: Arbiters, tenant: Tenant) -> None:
    arbiters.trace(True)
    tenant.says(contexts=1, waiting=2)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).gate == "solo")
    tenant.says(waiting=0, outstanding=1, launches=5)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).launches == 5)
    events = arbiters.read_trace()
    assert {(e.device_uuid, e.serial, e.lost) for e in events if e.serial} == {(UUID, SERIAL, 0)}
    told = {(e.kind, e.value, e.text) for e in events}
    assert {("open", 0, "solo"), ("waits", 2, ""), ("outstanding", 1, ""), ("launches", 5, "")} <= told
    assert [e.time_ns for e in events] == sorted(e.time_ns for e in events)
    assert all(0 <= time.monotonic_ns() - e.time_ns < 60e9 for e in events)


def test_trace_that_is_off_is_empty(arbiters: Arbiters, tenant: Tenant) -> None:
    tenant.says(contexts=1, waiting=1)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).gate == "solo")
    assert arbiters.read_trace() == []
    arbiters.trace(True)
    tenant.says(launches=1)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).launches == 1)
    arbiters.trace(False)
    assert arbiters.read_trace() == []
