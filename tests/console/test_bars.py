"""Bars, free capacity and alerts."""

from __future__ import annotations

import itertools

from vgpud.console.pages import alerts, bars
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.text import natural_key

GIB = 1 << 30


def device(uuid: str, reserved: int, **fields: object) -> pb.Device:
    values = {"offered": True, "mem_total_bytes": 100 * GIB, "reserved_milli": reserved, **fields}
    return pb.Device(uuid=uuid, **values)  # type: ignore[arg-type]


def item(name: str, uuid: str, low: int, share: float = 0.0, used: int = 0, limit: int = 10 * GIB) -> pb.Slice:
    part = pb.SliceDevice(
        device_uuid=uuid,
        min_milli=low,
        share_ratio=share,
        mem_used_bytes=used,
        mem_min_bytes=limit,
        mem_max_bytes=limit,
    )
    return pb.Slice(name=name, uid=name, devices=[part])


def test_parts_lie_side_by_side() -> None:
    (bar,) = bars.bars([device("d", 800)], [item("b", "d", 300, 0.1), item("a", "d", 500, 0.9)])
    assert [(p.name, p.at, p.width, p.used) for p in bar.parts] == [("a", 0, 500, 500), ("b", 500, 300, 100)]
    assert [(p.mem_at, p.mem_width) for p in bar.parts] == [(0, 100), (100, 100)]
    assert bar.free_milli == 200
    assert bar.parts[0].color != bar.parts[1].color


def test_a_slice_that_is_away_is_said_to_be_so_and_not_to_wait() -> None:
    absent = {"asleep": pb.RESIDENCY_AWAY, "coming": pb.RESIDENCY_COMING, "away": pb.RESIDENCY_AWAY, "": 0}
    for word, residency in absent.items():
        made = item("a", "d", 500)
        made.devices[0].gate, made.residency = pb.GATE_CLOSED, residency  # type: ignore[assignment]
        if word == "asleep":
            made.asleep_time.FromSeconds(1)
        (bar,) = bars.bars([device("d", 500)], [made])
        assert (bar.parts[0].absence, bar.parts[0].waits) == (word, not word)


def test_what_others_have_is_not_drawn_as_free() -> None:
    """A user who is no admin sees the slices of other users in the devices' sums alone."""
    there = device("d", 800, mem_reserved_bytes=50 * GIB)
    (bar,) = bars.bars([there], [item("a", "d", 500)])
    others = bar.others
    assert (others.at, others.width, others.mem_at, others.mem_width) == (500, 300, 100, 400)
    assert others.label
    (bar,) = bars.bars([there], [item("a", "d", 500), item("b", "d", 300, limit=40 * GIB)])
    assert (bar.others.width, bar.others.mem_width, bar.others.label) == (0, 0, "")


def test_slices_lie_in_their_natural_order() -> None:
    names = ["j-10", "j-2", "j-1", "j-2-10", "j-2-9", "a"]
    (bar,) = bars.bars([device("d", 0)], [item(name, "d", 10) for name in names])
    assert [part.name for part in bar.parts] == ["a", "j-1", "j-2", "j-2-9", "j-2-10", "j-10"]


def test_neighbours_have_different_colours() -> None:
    slices = [item(f"s{n}", "d", 10) for n in range(60)]
    found = bars.colors(slices)
    names = sorted(found, key=natural_key)
    assert all(found[a] != found[b] for a, b in itertools.pairwise(names))


def test_a_long_name_is_cut_and_a_narrow_part_has_none() -> None:
    (bar,) = bars.bars([device("d", 0)], [item("a" * 30, "d", 90), item("b", "d", 20)])
    assert bar.parts[0].label == "a" * 9 + "…"
    assert bar.parts[1].label == ""


def test_free_capacity_is_fragmented_by_what_is_partly_used() -> None:
    found = bars.bars([device("a", 0), device("b", 500), device("c", 250), device("d", 0, drained="why")], [])
    free = bars.free(found)
    assert (free.milli, free.largest_milli, free.whole_device_count) == (2250, 1000, 1)
    assert round(free.fragmented_part, 3) == round(1250 / 2250, 3)
    assert bars.free([]).fragmented_part == 0


def test_alerts_of_devices_and_slices() -> None:
    devices = [device("a", 0, drained="Xid 79", drained_by_fault=True), device("b", 0, taken_by="MPS", offered=False)]
    slices = [item("full", "d", 100, used=10 * GIB - 1), item("over", "d", 100, used=11 * GIB), item("fine", "d", 1)]
    found = alerts.alerts(devices, slices, [], 0)
    assert [alert.level for alert in found] == ["bad", "bad", "bad", "warn"]
    text = "\n".join(alert.text for alert in found)
    assert "Xid 79" in text
    assert "taken by MPS" in text
    assert "slice over uses 11GiB of 10GiB" in text
    assert "fine" not in text


def test_alerts_of_events_are_for_an_hour() -> None:
    events = [pb.Event(kind="device.xid", message=f"xid {n}") for n in range(2)]
    events[0].create_time.FromSeconds(1000)
    events[1].create_time.FromSeconds(9000)
    assert [a.text for a in alerts.alerts([], [], events, 9100)] == ["device.xid: xid 1"]
