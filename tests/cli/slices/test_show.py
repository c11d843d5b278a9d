"""`vgpu slice show`: the whole picture of a slice in lines of text, and all its numbers as json."""

from __future__ import annotations

from typing import Any

import pytest

from vgpud.v1alpha1 import vgpud_pb2 as pb

#: what a slice did, as the daemon reports it
DID = {
    "regime": pb.REGIME_ARBITRATED,
    "gate": pb.GATE_CLOSED,
    "entitlement_milli": 400,
    "share_10s_ratio": 0.41,
    "share_60s_ratio": 0.42,
    "lag_ns": -2_500_000,
    "charged_ns": 20_000_000_000,
    "borrowed_ns": 5_000_000_000,
    "throttled_ns": 12_000_000_000,
    "grants": 900,
    "early_releases": 7,
    "overruns": 3,
    "drains": 800,
    "drain_total_ns": 400_000_000,
    "drain_max_ns": 6_300_000,
    "launches": 12345,
    "mem_denied": 2,
    "wait_counts": [0] * 8 + [30, 60, 9] + [0] * 4 + [1],
}


@pytest.fixture
def daemon_with_slice(daemon: Any, vgpu: Any) -> Any:
    vgpu("slice", "create", "train", "--gpus", "0.25", "--max", "0.75", host=daemon.host)
    for name, value in DID.items():
        if isinstance(value, list):
            daemon.slices["train"].devices[0].wait_counts.extend(value)
        else:
            setattr(daemon.slices["train"].devices[0], name, value)
    return daemon


def lines_of(vgpu: Any, daemon: Any) -> dict[str, str]:
    """The lines of the device by their labels."""
    shown = vgpu("slice", "show", "train", host=daemon.host)
    assert shown.code == 0, shown
    return {line[2:15].strip(): line[16:] for line in shown.stdout.splitlines() if line.startswith("  ")}


def test_everything_is_said_in_words(vgpu: Any, daemon_with_slice: Any) -> None:
    lines = lines_of(vgpu, daemon_with_slice)
    assert lines["SM time"] == "minimum 0.25, maximum 0.75"
    assert lines["memory"].endswith("2 refused")
    assert lines["shared"].startswith("arbitrated: ")
    assert lines["due now"] == "40.0%"
    assert lines["got"] == "25.0% in 1 s, 41.0% in 10 s, 42.0% in 60 s"
    assert lines["balance"] == "2.5ms overdrawn"
    assert lines["device time"] == "20.0 s, of which 5.0 s borrowed (25.0%)"
    assert lines["leases"] == "900, 7 returned early, 3 overrun"
    assert lines["drains"] == "800, mean 500us, longest 6.3ms"
    assert lines["waits"] == "100 at the closed gate, 12.0 s in all, half below 8.2ms, 99 % below 16ms"


def test_copies_say_how_long_the_link_carries_them(vgpu: Any, daemon_with_slice: Any) -> None:
    """Where its rate is known."""
    device = daemon_with_slice.slices["train"].devices[0]
    device.copy_to_device_bytes, device.copy_from_device_bytes = 3 << 29, 1 << 20
    assert lines_of(vgpu, daemon_with_slice)["copied"] == "1.5GiB to the device, 1MiB from it; 0B pinned"
    device.copy_to_device_ns, device.copy_from_device_ns = 24_400_000, 0
    device.copy_to_device_bytes_per_s = 3 << 30
    text = "1.5GiB to the device (24ms of the link, now at most 3GiB/s), 1MiB from it; 0B pinned"
    assert lines_of(vgpu, daemon_with_slice)["copied"] == text
    (shown,) = vgpu("slice", "show", "train", "-o", "json", host=daemon_with_slice.host).json["slice"]["devices"]
    assert (shown["copy_to_device_ns"], shown["copy_from_device_ns"]) == (24_400_000, 0)
    device.ClearField("copy_to_device_ns")
    (shown,) = vgpu("slice", "show", "train", "-o", "json", host=daemon_with_slice.host).json["slice"]["devices"]
    assert shown["copy_to_device_ns"] is None


def test_waits_are_a_histogram(vgpu: Any, daemon_with_slice: Any) -> None:
    lines = lines_of(vgpu, daemon_with_slice)
    bars = {label: text.split() for label, text in lines.items() if label[0] in "<>"}
    labels = list(bars)
    assert (labels[0], labels[-1], len(labels)) == ("< 4.1ms", ">= 262ms", 8)
    assert bars["< 8.2ms"] == ["█" * 30, "60"]
    assert bars["< 4.1ms"] == ["█" * 15, "30"]
    assert bars["< 33ms"] == ["0"]


@pytest.mark.parametrize(("lag_ns", "balance"), [(0, "0"), (70_000_000, "70ms owed to it")])
def test_the_balance_says_who_owes(vgpu: Any, daemon_with_slice: Any, lag_ns: int, balance: str) -> None:
    daemon_with_slice.slices["train"].devices[0].lag_ns = lag_ns
    assert lines_of(vgpu, daemon_with_slice)["balance"] == balance


def test_a_slice_that_never_ran_is_shown_without_nonsense(vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "train", "--gpus", "0.25", host=daemon.host)
    lines = lines_of(vgpu, daemon)
    assert (lines["waits"], lines["drains"], lines["programs"]) == ("0 at the closed gate", "0", "0")
    assert lines["device time"] == "0.0 s, of which 0.0 s borrowed"


def test_nothing_is_due_to_a_slice_without_a_program(vgpu: Any, daemon_with_slice: Any) -> None:
    daemon_with_slice.slices["train"].devices[0].ClearField("gate")
    lines = lines_of(vgpu, daemon_with_slice)
    assert lines["due now"] == lines["balance"] == lines["gate"] == "- (no program)"


def test_json_has_every_number_and_the_ends_of_the_buckets(vgpu: Any, daemon_with_slice: Any) -> None:
    (device,) = vgpu("slice", "show", "train", "-o", "json", host=daemon_with_slice.host).json["slice"]["devices"]
    assert {name: device[name] for name in DID} == DID | {"regime": "arbitrated", "gate": "closed"}
    assert len(device["wait_below_ns"]) == len(device["wait_counts"]) - 1
    assert device["wait_below_ns"][:2] == [16_000, 32_000]


def test_more_than_its_limit_and_past_its_ledger(vgpu: Any, daemon_with_slice: Any) -> None:
    """A limit that was lowered takes nothing away: it is said wherever the slice's memory is."""
    assert {"OVER LIMIT", "past ledger"}.isdisjoint(lines_of(vgpu, daemon_with_slice))
    device = daemon_with_slice.slices["train"].devices[0]
    device.mem_max_bytes, device.mem_used_bytes, device.mem_unattributed_bytes = 2 << 30, 3 << 30, 512 << 20
    lines = lines_of(vgpu, daemon_with_slice)
    assert lines["OVER LIMIT"].startswith("1GiB: ") and lines["past ledger"].startswith("512MiB of it ")
    daemon_with_slice.add_process("train", 41, "trainer")
    row = daemon_with_slice.processes[0].devices[0]
    host = daemon_with_slice.host
    assert "2GiB-OVER" in vgpu("ps", host=host).stdout and "1GiB+" not in vgpu("ps", host=host).stdout
    row.mem_unattributed_bytes = 512 << 20
    assert "1GiB+512MiB" in vgpu("ps", host=host).stdout
    assert "3GiB-OVER" in vgpu("slice", "ls", host=host).stdout
    shown_device = vgpu("slice", "show", "train", "-o", "json", host=host).json["slice"]["devices"][0]
    assert (shown_device["mem_over_limit_bytes"], shown_device["mem_unattributed_bytes"]) == (1 << 30, 512 << 20)


def test_an_evicted_slice_says_where_its_memory_is(vgpu: Any, daemon_with_slice: Any) -> None:
    train = daemon_with_slice.slices["train"]
    train.devices[0].mem_used_bytes = 3 << 30
    train.suspended = pb.SUSPENSION_EVICTED
    train.away_time.FromSeconds(1_700_000_000)
    lines = lines_of(vgpu, daemon_with_slice)
    assert lines["suspended"].startswith(
        "evicted: its share and memory are offered to others; its memory is on the host, "
    )
    assert ", 3GiB since 2023-11-14T22:13:20Z (" in lines["suspended"]
    assert lines["memory"].startswith("3GiB on the host of ") and lines["gate"] == "closed: the slice is evicted"
    shown = vgpu("slice", "show", "train", "-o", "json", host=daemon_with_slice.host).json["slice"]
    assert shown["away_time"] == "2023-11-14T22:13:20Z"
    train.suspended = pb.SUSPENSION_PAUSED
    lines = lines_of(vgpu, daemon_with_slice)
    assert "host" not in lines["suspended"] and lines["memory"].startswith("3GiB in use of ")


def test_a_slice_that_takes_turns_says_where_it_is_and_what_they_cost(vgpu: Any, daemon_with_slice: Any) -> None:
    train = daemon_with_slice.slices["train"]
    train.spec.mem_swap, train.spec.idle_after_ns = True, 600_000_000_000
    train.residency = pb.RESIDENCY_AWAY
    train.asleep_time.FromSeconds(1_700_000_000)
    train.away_time.FromSeconds(1_700_000_003)
    train.devices[0].mem_used_bytes = 3 << 30
    gib = 1 << 30
    cost = pb.Rotation(claims_bytes=160 * gib, capacity_bytes=80 * gib, quantum_ns=64_000_000_000, lost_ratio=0.048)
    cost.host_bytes, cost.bytes_per_second, cost.moves, cost.moved_bytes = 80 * gib, 50 * gib, 3, 240 * gib
    cost.moved_by = "checkpoint"
    train.rotation.CopyFrom(cost)
    lines = lines_of(vgpu, daemon_with_slice)
    said = "asleep: its next call waits until its memory is back; it is on the host, 3GiB since 2023-11-14T22:13:23Z ("
    assert lines["residency"].startswith(said)
    assert lines["memory"].startswith("3GiB on the host of ") and lines["gate"] == "closed: the slice is asleep"
    assert lines["moved"] == "3 moves, 240GiB, at 50GiB/s, by the driver"
    assert "stays" not in lines
    assert lines["idle after"] == "600.0 s without work, its memory is given back"
    assert lines["rotation"] == (
        "160GiB of slices with --mem-swap for 80GiB: turns of up to 64.0 s, 4.8% of the time lost in moves,"
        " 80GiB of the host's RAM"
    )
    listed = vgpu("slice", "ls", host=daemon_with_slice.host).stdout
    assert "asleep:" in listed and "3GiB-HOST" in listed
    train.rotation.waiting_calls, train.rotation.moves, train.away_time.nanos = 1, 1, 123_456_789
    lines = lines_of(vgpu, daemon_with_slice)
    said = "a call waits until its memory is back; it is on the host, 3GiB since 2023-11-14T22:13:23Z ("
    assert lines["residency"].startswith(said) and lines["gate"] == "closed: the slice is waiting"
    assert lines["moved"].startswith("1 move, 240GiB")
    listed = vgpu("slice", "ls", host=daemon_with_slice.host).stdout
    assert "waiting" in listed and "asleep" not in listed
    shown = vgpu("slice", "show", "train", "-o", "json", host=daemon_with_slice.host).json["slice"]
    assert (shown["residency"], shown["mem_swap"], shown["rotation"]["moves"]) == ("away", True, 3)


def test_options_of_memory_that_is_moved(vgpu: Any, daemon: Any) -> None:
    made = vgpu("slice", "create", "a", "--gpus", "0.5", "--mem-swap", "--idle-after", "10m", host=daemon.host)
    assert made.code == 0, made
    spec = daemon.slices["a"].spec
    assert spec.mem_swap and spec.idle_after_ns == 600_000_000_000
    vgpu("slice", "set", "a", "--no-mem-swap", "--idle-after", "0", host=daemon.host)
    assert sorted(daemon.requests[-1].update_mask.paths) == ["idle_after_ns", "mem_swap"]
