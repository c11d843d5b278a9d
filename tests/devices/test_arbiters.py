"""The Python shell of the native arbiters, against real arbiter threads and tenants' pages made by hand."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.builders import make_device, make_slice
from vgpud.config import ArbiterConfig, arbiter_items
from vgpud.core.model import AWAY, COMING, EVICTED, LATENCY, LEAVING, Share, Slice, Spec
from vgpud.core.observed import SCHEDULING
from vgpud.core.slices.gangs import Role
from vgpud.devices.arbiters import Arbiters, _Usage, ffi, lib

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


def make_share(minimum: int, maximum: int = 1000, uuid: str = UUID) -> Share:
    return Share(uuid, minimum, maximum, 0, 1 << 28)


@pytest.fixture
def arbiters() -> Iterator[Arbiters]:
    devices = [make_device(0), make_device(1)]
    made = Arbiters(devices, dict(arbiter_items(ArbiterConfig())))
    made.apply(make_slice("a", make_share(500), serial=SERIAL))
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


def test_what_the_kernel_has_granted_is_known(arbiters: Arbiters, tenant: Tenant) -> None:
    """The thread has what this process may have, and its memory is counted with the tenant's pages."""
    wait_for(lambda: arbiters.standing(UUID).locked_bytes + arbiters.standing(UUID).unlocked_bytes > 0)
    now = arbiters.standing(UUID)
    assert now.scheduling in SCHEDULING and now.steps_down == 0
    scheduled = {os.sched_getscheduler(int(task.name)) & ~os.SCHED_RESET_ON_FORK for task in arbiter_threads()}
    wait_for(lambda: (arbiters.standing(UUID).scheduling == "fifo") == (os.SCHED_FIFO in scheduled))

    def counted_bytes(uuid: str) -> int:
        found = arbiters.standing(uuid)
        return found.locked_bytes + found.unlocked_bytes

    # each thread counts its own memory when it has begun to run
    wait_for(lambda: 0 < counted_bytes("GPU-1") < counted_bytes(UUID))


def arbiter_threads() -> list[Path]:
    return [task for task in Path("/proc/self/task").iterdir() if (task / "comm").read_text() == "vgpu-arbiter\n"]


def test_trace_tells_what_a_tenant_did(arbiters: Arbiters, tenant: Tenant) -> None:
    arbiters.trace(True)
    tenant.says(contexts=1, waiting=2, waited_ns=1)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).throttled_ns == 1)
    tenant.says(waiting=0, outstanding=1, launches=5)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).launches == 5)
    events = arbiters.read_trace()
    assert {(e.device_uuid, e.serial, e.lost_count) for e in events if e.serial} == {(UUID, SERIAL, 0)}
    event_tuples = {(e.kind, e.value, e.text) for e in events}
    assert {
        ("regime", 0, "solo"),
        ("open", 0, "solo"),
        ("waits", 2, ""),
        ("outstanding", 1, ""),
        ("launches", 5, ""),
    } <= event_tuples
    assert [e.time_ns for e in events] == sorted(e.time_ns for e in events)
    assert all(0 <= time.monotonic_ns() - e.time_ns < 60e9 for e in events)


def test_a_newcomer_sees_what_the_others_of_its_slice_use(arbiters: Arbiters, tenant: Tenant) -> None:
    """Its first query may come before the arbiter's next round, and others report without a bell."""
    tenant.says(want_bytes=1 << 28, want_seq=1)
    wait_for(lambda: tenant.control.granted_bytes == 1 << 28)
    for turn in range(20):
        tenant.report.used_bytes = (turn + 1) << 20
        newcomer = Tenant()
        arbiters.attach(
            SERIAL, PROCESS + 1, UUID, (newcomer.header, newcomer.control, newcomer.report), newcomer.bell, 0
        )
        seen_bytes = newcomer.control.slice_used_bytes
        arbiters.detach(PROCESS + 1, UUID)
        os.close(newcomer.bell)
        assert seen_bytes == (turn + 1) << 20


def test_what_comes_after_the_end_has_no_effect(arbiters: Arbiters) -> None:
    """A look at the devices may still be under way when the daemon ends."""
    arbiters.charge(SERIAL, UUID, 5)
    assert arbiters.slice_stats(SERIAL, UUID).mem_unattributed_bytes == 5
    assert arbiters.in_ledger(SERIAL, UUID) == 0 and arbiters.in_ledger(SERIAL + 1, UUID) == 0
    arbiters.close()
    arbiters.charge(SERIAL, UUID, 6)
    assert arbiters.credit(PROCESS, UUID) == (0, 0)


def test_trace_that_is_off_is_empty(arbiters: Arbiters, tenant: Tenant) -> None:
    tenant.says(contexts=1, waiting=1, launches=1)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).launches == 1)
    assert arbiters.read_trace() == []
    arbiters.trace(True)
    tenant.says(launches=2)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).launches == 2)
    arbiters.trace(False)
    assert arbiters.read_trace() == []


def test_shares_look_back_as_far_as_they_say() -> None:
    """Busy for a second at half, then idle: a second later only the longer windows remember."""
    charged_ms = [*range(0, 500, 50), *[500] * 691]
    usage = _Usage()
    seen = []
    for tick, used_ms in enumerate(charged_ms):
        usage.add(1_000_000_000 + tick * 100_000_000, used_ms * 1_000_000, 0.0)
        seen.append(tuple(round(usage.share(window), 3) for window in (1, 10, 60)))
    assert seen[0] == (0.0, 0.0, 0.0)
    assert seen[10] == (0.5, 0.5, 0.5)
    assert seen[20] == (0.0, 0.25, 0.25)
    assert seen[100] == (0.0, 0.05, 0.05)
    assert seen[120] == (0.0, 0.0, 0.042)
    assert seen[600] == (0.0, 0.0, 0.008)
    assert seen[620] == (0.0, 0.0, 0.0)
    assert len(usage._recent) <= 12 and len(usage._seconds) <= 62


def test_readings_of_an_idle_slice_can_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shares are the same as with all readings, while it begins, works and rests again."""
    charged_ms = [*[0] * 37, *range(0, 900, 60), *[900] * 650, *range(900, 1500, 20), *[1500] * 20]
    sparse, whole = _Usage(), _Usage()
    monkeypatch.setattr(whole, "_is_flat", lambda: False, raising=True)
    kept = []
    for tick, used_ms in enumerate(charged_ms):
        for usage in (sparse, whole):
            usage.add(1_000_000_000 + tick * 100_000_000, used_ms * 1_000_000, 0.5 if tick == 690 else 0.0)
        for window in (1, 10, 60):
            assert sparse.share(window) == pytest.approx(whole.share(window), abs=0.02), (tick, window)
        kept.append(sparse._recent[-1][0])
    assert kept[30] == kept[0] and kept[690] == 1_000_000_000 + 690 * 100_000_000


def test_slices_that_use_nothing_are_not_looked_at_one_by_one(
    arbiters: Arbiters, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their shares are those of all readings when one begins to work, also of a slice that came meanwhile."""
    looks: list[int] = []
    add = _Usage.add

    def count_look(usage: _Usage, now_ns: int, *rest: Any) -> bool:
        looks.append(now_ns)
        return add(usage, now_ns, *rest)

    monkeypatch.setattr(_Usage, "add", count_look)
    for tick in range(700):
        arbiters.sample(1_000_000_000 + tick * 100_000_000, {})
    assert len(looks) == 2
    assert arbiters.slice_stats(SERIAL, UUID).share_ratio == 0
    arbiters.apply(make_slice("b", make_share(100), milli=100, serial=SERIAL + 1))
    for tick in range(700, 703):
        arbiters.sample(1_000_000_000 + tick * 100_000_000, {UUID: 1.0})
    now = arbiters.slice_stats(SERIAL, UUID)
    assert [now.share_ratio, now.share_10s_ratio] == [pytest.approx(0.3, abs=0.01), pytest.approx(0.03, abs=0.01)]
    assert arbiters.slice_stats(SERIAL + 1, UUID).share_ratio == 0


def test_alone_on_a_device_the_drivers_reading_counts(arbiters: Arbiters, tenant: Tenant) -> None:
    tenant.says(contexts=1, waiting=1, launches=1)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).launches == 1)
    for tick in range(31):
        arbiters.sample(1_000_000_000 + tick * 100_000_000, {UUID: 0.75})
    now = arbiters.slice_stats(SERIAL, UUID)
    assert [now.share_ratio, now.share_10s_ratio, now.share_60s_ratio] == [pytest.approx(0.75)] * 3
    assert now.charged_ns == pytest.approx(2_250_000_000, abs=10)
    assert now.borrowed_ns == pytest.approx(now.charged_ns - 3_000_000_000 // 2, abs=50)
    assert now.lag_ns == 0, "nobody is beside it"
    tenant.says(waiting=0, contexts=0)
    arbiters.detach(PROCESS, UUID)
    for tick in range(31, 61):
        arbiters.sample(1_000_000_000 + tick * 100_000_000, {UUID: 0.75})
    assert arbiters.slice_stats(SERIAL, UUID).share_ratio == 0, "nobody is there: what is busy is not the slice's"


def test_copies_take_the_link_as_long_as_its_rate_says() -> None:
    """Where it is known; and what a process had copied stays counted when it has gone."""
    arbiters = Arbiters([replace(make_device(0), link_bytes_per_s=2_000_000), make_device(1)], {})
    pages = Tenant()
    arbiters.apply(make_slice("a", make_share(500), make_share(500, uuid="GPU-1"), serial=SERIAL))
    for uuid in (UUID, "GPU-1"):
        arbiters.attach(SERIAL, PROCESS, uuid, (pages.header, pages.control, pages.report), pages.bell, 0)
    pages.report.copy_bytes = [3_000_000, 1]
    for uuid in (UUID, "GPU-1"):
        arbiters.detach(PROCESS, uuid)
    known, unknown = (arbiters.slice_stats(SERIAL, uuid) for uuid in (UUID, "GPU-1"))
    arbiters.close()
    os.close(pages.bell)
    assert (known.copy_to_device_bytes, known.copy_from_device_bytes) == (3_000_000, 1)
    assert (known.copy_to_device_ns, known.copy_from_device_ns) == (1_500_000_000, 500)
    assert unknown.copy_to_device_bytes == 3_000_000
    assert unknown.copy_to_device_ns is unknown.copy_from_device_ns is None


def test_what_leaves_the_device_closes_its_gate_and_is_waited_for(
    arbiters: Arbiters, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Slice, "rotates", property(lambda _: True))
    made = make_slice("a", make_share(500), serial=SERIAL)
    arbiters.apply(made)
    wait_for(lambda: bool(tenant.control.watch & lib.VG_WATCH_CALLS))
    assert tenant.control.residence == 0
    arbiters.apply(replace(made, residency=LEAVING))
    wait_for(lambda: tenant.control.residence != 0 and tenant.control.gate & 3 == 0)
    assert arbiters.slice_stats(SERIAL, UUID).processes_in_driver == 1
    begin_ns = arbiters.slice_stats(SERIAL, UUID).last_work_ns
    tenant.says(left_word=tenant.control.residence, calls=1)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).last_work_ns > begin_ns)
    assert arbiters.slice_stats(SERIAL, UUID).processes_in_driver == 0
    arbiters.apply(replace(made, residency=AWAY))
    tenant.says(waiting_calls=2, waiting=1)
    assert arbiters.slice_stats(SERIAL, UUID).waiting_calls == 3
    arbiters.apply(replace(made, suspended=EVICTED))  # a program that had nothing to move is not locked
    assert tenant.control.residence != 0
    arbiters.apply(replace(made, residency=COMING))
    assert tenant.control.residence != 0
    arbiters.apply(made)
    wait_for(lambda: tenant.control.residence == 0 and tenant.control.gate & 3 != 0)
    assert arbiters.slice_stats(SERIAL, UUID).waiting_calls == 0


def test_memory_that_is_away_is_lent_and_that_which_leaves_or_comes_is_not(arbiters: Arbiters, tenant: Tenant) -> None:
    """The device has less than both maxima together."""
    total = make_device(0).memory_bytes
    made = make_slice("a", Share(UUID, 500, 1000, 0, total), serial=SERIAL)
    other = make_slice("b", Share(UUID, 100, 1000, 0, total), milli=100, serial=SERIAL + 1)
    arbiters.apply(made)
    arbiters.apply(other)
    tenant.says(want_bytes=total, want_seq=1)
    wait_for(lambda: tenant.control.granted_bytes == total)
    tenant.says(used_bytes=total)
    second = Tenant()
    arbiters.attach(SERIAL + 1, PROCESS + 1, UUID, (second.header, second.control, second.report), second.bell, 0)
    granted_bytes = 0
    for turn, residency in enumerate(("", LEAVING, AWAY, COMING)):
        arbiters.apply(replace(made, residency=residency))
        second.says(want_bytes=1 << 20, want_seq=turn + 1)
        wait_for(lambda want=turn + 1: second.control.want_answered == want)  # type: ignore[misc]
        granted_bytes += (residency == AWAY) << 20
        assert second.control.granted_bytes == granted_bytes, residency
    arbiters.detach(PROCESS + 1, UUID)
    os.close(second.bell)


def test_waits_and_drains_are_counted(arbiters: Arbiters, tenant: Tenant) -> None:
    """Under a cap the gate closes, whatever else happens."""
    arbiters.apply(make_slice("a", make_share(100, 100), milli=100, serial=SERIAL))
    tenant.says(contexts=1, waiting=1, waited_ns=100_000, wait_counts=[3, 1] + [0] * 14)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).throttled_ns == 100_000)
    wait_for(lambda: tenant.control.gate & 3 != 0)
    busy = {"outstanding": 1, "busy_since_ns": time.monotonic_ns(), "active_since_ns": time.monotonic_ns()}
    tenant.says(waiting=0, waited_ns=200_000, wait_counts=[5, 0] + [0] * 13 + [2], **busy)
    wait_for(lambda: tenant.control.gate & 3 == 0)
    tenant.says(noticed_word=tenant.control.gate)
    time.sleep(0.002)
    tenant.says(drained_ns=time.monotonic_ns(), drained_word=tenant.control.gate, outstanding=0, busy_since_ns=0)
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).drains == 1)
    now = arbiters.slice_stats(SERIAL, UUID)
    assert now.wait_counts == (5, 1, *[0] * 13, 2)
    assert 2_000_000 <= now.drain_max_ns == now.drain_total_ns < 10_000_000_000


def test_roles_are_those_of_the_native_side() -> None:
    native = (lib.VG_GANG_NONE, lib.VG_GANG_LEADER, lib.VG_GANG_FOLLOWER, lib.VG_GANG_OPEN)
    assert native == tuple(role.value for role in (Role.NONE, Role.LEADER, Role.FOLLOWER, Role.OPEN))


def test_what_a_slice_is_due_and_how_the_device_is_shared(arbiters: Arbiters, tenant: Tenant) -> None:
    tenant.says(contexts=1, outstanding=1, busy_since_ns=time.monotonic_ns(), active_since_ns=time.monotonic_ns())
    wait_for(lambda: arbiters.slice_stats(SERIAL, UUID).borrowed_ns > 0)
    now = arbiters.slice_stats(SERIAL, UUID)
    assert now.regime == "solo"
    assert 500 <= now.entitlement_milli <= 1000  # by what has been seen of its demand
    assert 0 < now.borrowed_ns < now.charged_ns


@pytest.fixture
def neighbour(arbiters: Arbiters) -> Iterator[Tenant]:
    """A second slice's process, at work as the first one's."""
    arbiters.apply(neighbours_slice(Spec(0)))
    made = Tenant()
    arbiters.attach(SERIAL + 1, PROCESS + 1, UUID, (made.header, made.control, made.report), made.bell, 0)
    yield made
    arbiters.detach(PROCESS + 1, UUID)
    os.close(made.bell)


def neighbours_slice(spec: Spec) -> Slice:
    return make_slice("b", make_share(spec.gpus_milli), spec=spec, serial=SERIAL + 1)


def test_weight_priority_and_class_reach_the_device(arbiters: Arbiters, tenant: Tenant, neighbour: Tenant) -> None:
    def due() -> tuple[int, ...]:
        return tuple(arbiters.slice_stats(serial, UUID).entitlement_milli for serial in (SERIAL, SERIAL + 1))

    def apply(first: Spec, second: Spec) -> None:
        arbiters.apply(make_slice("a", make_share(0), spec=first, serial=SERIAL))
        arbiters.apply(neighbours_slice(second))

    for each in (tenant, neighbour):
        now_ns = time.monotonic_ns()
        each.says(contexts=1, outstanding=1, waiting=1, busy_since_ns=now_ns, active_since_ns=now_ns)
    apply(Spec(0, weight=100), Spec(0, weight=300))
    wait_for(lambda: due() == (250, 750))
    apply(Spec(0, weight=100, priority=1), Spec(0, weight=300))
    wait_for(lambda: due()[0] == 1000 and due()[1] <= 1)
    neighbour.says(outstanding=0, waiting=0, busy_since_ns=0, active_since_ns=0)  # it is its class alone that counts
    apply(Spec(0), Spec(100))
    time.sleep(0.5)  # until it is no longer taken for pausing
    wait_for(lambda: tenant.control.bound_ns == ArbiterConfig().open_bound_ns)
    apply(Spec(0), Spec(100, service_class=LATENCY))
    wait_for(lambda: tenant.control.bound_ns == ArbiterConfig().latency_bound_ns)
    arbiters.set_times({"latency_bound_ns": 500_000})
    wait_for(lambda: tenant.control.bound_ns == 500_000)


def test_tenants_of_a_gang_are_asked_for_their_collectives(arbiters: Arbiters, tenant: Tenant) -> None:
    shares = [make_share(500, uuid=uuid) for uuid in (UUID, "GPU-1")]
    arbiters.apply(make_slice("a", *shares, milli=1000, serial=SERIAL))
    wait_for(lambda: tenant.control.watch & lib.VG_WATCH_GANG)
    arbiters.apply(make_slice("a", shares[0], serial=SERIAL), ("GPU-1",))
    wait_for(lambda: not tenant.control.watch & lib.VG_WATCH_GANG)
