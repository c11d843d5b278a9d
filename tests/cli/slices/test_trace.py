"""`vgpu trace`: events become a Chrome trace that keeps the format's rules; the file is whole however it ends."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud.cli.slices.perfetto import chrome_trace
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

MS = 1_000_000
BEGIN_NS = 5_000_000_000_000


def at(ms: float, kind: str, name: str = "train", value: int = 0, text: str = "", **fields: Any) -> pb.TraceEvent:
    number = words.TRACE_EVENT_KIND.to_number(kind)
    return pb.TraceEvent(time_ns=BEGIN_NS + round(ms * MS), slice=name, kind=number, value=value, text=text, **fields)


def make_trace_events(*events: pb.TraceEvent) -> list[dict[str, Any]]:
    """The trace events of slice train, after a look at the rules of the format."""
    document = json.loads(json.dumps(chrome_trace(events, "train", {0: "device 0 SIMULATED H200"})))
    check(document)
    return list(document["traceEvents"])


def check(document: dict[str, Any]) -> None:
    """The rules of the trace event format that viewers insist on."""
    events = document["traceEvents"]
    names = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    processes = {e["pid"] for e in events if e["name"] == "process_name"}
    shown = [e for e in events if e["ph"] != "M"]
    assert [e["ts"] for e in shown] == sorted(e["ts"] for e in shown)
    ends: dict[tuple[int, int], list[float]] = {}
    for event in events:
        assert event["ph"] in "XiCM" and event["name"] and event["ts"] >= 0
        assert event["pid"] > 0 and event["tid"] > 0 and event["pid"] in processes
        track = (event["pid"], event["tid"])
        assert track in names
        if event["ph"] == "X":
            assert event["dur"] > 0
            inside = ends.setdefault(track, [])
            while inside and inside[-1] <= event["ts"] + 1e-6:
                inside.pop()
            assert not inside or event["ts"] + event["dur"] <= inside[-1] + 1e-6, "bars of a track nest or follow"
            inside.append(event["ts"] + event["dur"])
        if event["ph"] == "C":
            assert all(isinstance(value, (int, float)) for value in event["args"].values())
        if event["ph"] == "i":
            assert event["s"] in "gpt"


def bars(events: list[dict[str, Any]], name: str = "train") -> list[tuple[str, float, float]]:
    """(name, begin, end) of a track's bars in ms."""
    (tid,) = {e["tid"] for e in events if e["name"] == "thread_name" and e["args"]["name"] == name}
    found = [e for e in events if e["ph"] == "X" and e["tid"] == tid]
    return [(e["name"], round(e["ts"] / 1000, 6), round((e["ts"] + e["dur"]) / 1000, 6)) for e in found]


def test_a_lease_its_drain_and_an_overlap() -> None:
    events = make_trace_events(
        at(0, "regime", "", text="arbitrated"),
        at(1, "open", text="count"),
        at(11, "close", text="closed"),
        at(13, "overlap"),
        at(13.1, "open", "other", text="count"),
        at(15, "drained", value=4 * MS),
        at(20, "close", "other", text="closed"),
    )
    assert bars(events) == [("gate count", 1, 11), ("drain", 11, 15), ("overlap", 13, 15)]
    assert bars(events, "other") == [("gate count", 13.1, 20)]
    assert bars(events, "regime") == [("arbitrated", 0, 20)]


def test_what_continues_is_cut_at_the_end_and_what_was_closed_begins_nothing() -> None:
    events = make_trace_events(at(0, "close", text="closed"), at(2, "open", text="count"), at(9, "waits", value=1))
    assert bars(events) == [("gate count", 2, 9)]


def test_a_lease_that_is_extended_is_one_bar_and_another_gate_another() -> None:
    events = make_trace_events(
        at(0, "open", text="count"), at(5, "open", text="count"), at(8, "open", text="solo"), at(9, "waits", value=1)
    )
    assert bars(events) == [("gate count", 0, 8), ("gate solo", 8, 9)]


def test_a_gate_that_closes_on_nothing_has_no_drain() -> None:
    events = make_trace_events(at(0, "open", text="count"), at(10.999, "drained"), at(11, "close"), at(20, "waits"))
    assert [name for name, _, _ in bars(events)] == ["gate count"]


def test_a_drain_that_began_before_the_trace_is_cut() -> None:
    assert bars(make_trace_events(at(0, "waits"), at(3, "drained", value=7 * MS))) == [("drain", 0, 3)]


def test_an_overlap_ends_at_the_next_opening() -> None:
    events = make_trace_events(
        at(0, "open", text="count"), at(5, "close"), at(7, "overlap"), at(9, "open", text="count"), at(10, "waits")
    )
    assert bars(events) == [("gate count", 0, 5), ("overlap", 7, 9), ("gate count", 9, 10)]


def test_an_overlap_that_was_seen_after_the_drain_had_ended_is_none() -> None:
    events = make_trace_events(
        at(0, "open", text="count"),
        at(5, "close"),
        at(7, "drained", value=2 * MS),
        at(7.1, "overlap"),
        at(9, "open", text="count"),
        at(10, "close"),
        at(11, "overlap"),
        at(12, "drained", value=2 * MS),
    )
    assert bars(events) == [
        ("gate count", 0, 5),
        ("drain", 5, 7),
        ("gate count", 9, 10),
        ("drain", 10, 12),
        ("overlap", 11, 12),
    ]


def test_an_overlap_that_continues_is_cut_at_the_end() -> None:
    events = make_trace_events(at(0, "open", text="count"), at(5, "close"), at(7, "overlap"), at(10, "waits"))
    assert bars(events) == [("gate count", 0, 5), ("overlap", 7, 10)]


def test_counters_begin_at_nothing_and_carry_the_slices_name() -> None:
    events = make_trace_events(
        at(0, "launches", value=1000),
        at(1, "charged", value=7 * MS),
        at(2, "launches", value=1250),
        at(3, "charged", value=9 * MS),
        at(4, "outstanding", value=1),
        at(5, "waits", value=3),
    )
    counted = [(e["name"], e["ts"], e["args"]["value"]) for e in events if e["ph"] == "C"]
    assert counted == [
        ("train: launches", 0, 0),
        ("train: device time (ms)", 1000, 0),
        ("train: launches", 2000, 250),
        ("train: device time (ms)", 3000, 2),
        ("train: outstanding work", 4000, 1),
        ("train: waiting threads", 5000, 3),
    ]


def test_devices_are_processes_and_the_slice_comes_before_its_neighbours() -> None:
    events = make_trace_events(
        at(0, "open", "a-neighbour", text="count"),
        at(1, "regime", "", text="open"),
        at(2, "open", text="count"),
        at(3, "open", device_index=1, text="solo"),
        at(4, "waits", device_index=1),
    )
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert processes == {1: "device 0 SIMULATED H200", 2: "device 1"}
    order = {e["tid"]: e["args"]["sort_index"] for e in events if e["name"] == "thread_sort_index" and e["pid"] == 1}
    tracks = {e["args"]["name"]: e["tid"] for e in events if e["name"] == "thread_name" and e["pid"] == 1}
    assert sorted(tracks, key=lambda name: order[tracks[name]]) == ["regime", "train", "a-neighbour"]


def test_lost_events_are_marked() -> None:
    events = make_trace_events(at(0, "open", text="count"), at(1, "waits", lost=12))
    assert [e["name"] for e in events if e["ph"] == "i"] == ["12 events lost before this point"]


def test_nothing_is_a_whole_trace_too() -> None:
    assert make_trace_events() == []


@pytest.mark.parametrize("seed", range(30))
def test_any_events_in_any_order_keep_the_rules(seed: int) -> None:
    rng = random.Random(seed)
    event_kinds = ("open", "close", "drained", "overlap", "waits", "outstanding", "launches", "charged")
    events = []
    for _ in range(200):
        kind, name = rng.choice(event_kinds), rng.choice(["train", "a", "b"])
        value = rng.randrange(5 * MS) if kind == "drained" else rng.randrange(9)
        text = rng.choice(["count", "solo"]) if kind == "open" else ""
        device = rng.randrange(2)
        events.append(at(rng.random() * 100, kind, name, value=value, text=text, device_index=device))
    assert make_trace_events(*events)


# ---- the command ----


@pytest.fixture
def traced_slice(vgpu: Any, daemon: Any) -> Any:
    vgpu("slice", "create", "train", "--gpus", "0.5", host=daemon.host)
    return daemon


@pytest.fixture
def recording(traced_slice: Any, tmp_path: Path) -> Iterator[Any]:
    """`vgpu trace train` without an end, once it has begun; killed if it lives still."""
    file = tmp_path / "t.json"
    command = [
        sys.executable,
        "-m",
        "vgpud.cli.main",
        "--host",
        traced_slice.host,
        "trace",
        "train",
        "--out",
        str(file),
    ]
    hears_hangups = lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL)  # noqa: E731  nohup has them ignored
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=hears_hangups)
    assert process.stderr is not None
    assert "recording train; Ctrl-C ends" in process.stderr.readline()
    while not isinstance(traced_slice.requests[-1], pb.WatchTraceRequest):
        time.sleep(0.01)
    yield process, file
    process.kill()
    process.communicate()


def read_bars(file: Path) -> list[tuple[str, float, float]]:
    document = json.loads(file.read_text())
    check(document)
    return bars(document["traceEvents"])


def test_a_file_is_as_it_was_until_the_trace_is_whole(vgpu: Any, daemon: Any, tmp_path: Path) -> None:
    (tmp_path / "keep").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "keep")
    vgpu("slice", "create", "train", "--gpus", "0.5", host=daemon.host)
    daemon.trace_denied = "slice 'train' does not belong to uid 7: ask its owner or an admin"
    result = vgpu("trace", "train", "-s", "0.1", "--out", str(tmp_path / "link"), host=daemon.host)
    assert result.code == 5 and "perfetto" not in result.stderr and "ask its owner" in result.stderr
    assert (tmp_path / "keep").read_text() == "precious"
    daemon.trace_denied = ""
    assert vgpu("trace", "train", "-s", "0.1", "--out", str(tmp_path / "link"), host=daemon.host).code == 0
    assert read_bars(tmp_path / "keep") and (tmp_path / "link").is_symlink()
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")], "nothing is left beside it"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_who_is_asked_to_end_keeps_what_was_recorded(recording: Any, number: int) -> None:
    process, file = recording
    process.send_signal(number)
    assert process.wait(30) == 0
    assert read_bars(file)


def test_it_ends_by_itself_and_says_where_to_look(vgpu: Any, traced_slice: Any, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    result = vgpu("trace", "train", "--seconds", "0.1", "--out", str(file), host=traced_slice.host)
    assert result.code == 0 and not result.stdout
    assert f"{file}: 3 events" in result.stderr and "perfetto" in result.stderr
    assert read_bars(file) == [("gate count", 0, 3), ("gate count", 4, 6)]


def test_a_name_is_found_if_none_is_given(
    vgpu: Any, traced_slice: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert vgpu("trace", "train", "-s", "0.1", host=traced_slice.host).code == 0
    assert read_bars(tmp_path / "train.trace.json")


def test_stdout_has_nothing_but_the_trace(vgpu: Any, traced_slice: Any) -> None:
    result = vgpu("trace", "train", "-s", "0.1", "--out", "-", host=traced_slice.host)
    check(json.loads(result.stdout))
    assert "3 events" in result.stderr


def test_interrupted_it_writes_what_it_has(recording: Any) -> None:
    process, file = recording
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert read_bars(file) == [("gate count", 0, 3), ("gate count", 4, 6)]


def test_it_ends_with_the_slice_and_says_so(recording: Any, traced_slice: Any) -> None:
    process, file = recording
    del traced_slice.slices["train"]
    assert process.wait(30) == 0
    assert "until the slice was removed" in process.stderr.read()
    assert read_bars(file)


def test_what_was_recorded_outlives_the_daemon(recording: Any, traced_slice: Any) -> None:
    process, file = recording
    traced_slice.stop()
    assert process.wait(30) == 3
    assert "does not answer" in process.stderr.read()
    json.loads(file.read_text())


def test_an_unknown_slice_is_named_and_no_file_is_made(vgpu: Any, daemon: Any, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    result = vgpu("trace", "none", "--out", str(file), host=daemon.host)
    assert result.code != 0 and "none" in result.stderr and "vgpu slice ls" in result.stderr
    assert not file.exists()


def test_a_file_that_cannot_be_written_is_said_before_anything_is_recorded(vgpu: Any, traced_slice: Any) -> None:
    result = vgpu("trace", "train", "--out", "/nonexistent/t.json", host=traced_slice.host)
    assert result.code != 0 and "/nonexistent/t.json" in result.stderr and "--out" in result.stderr
    assert "recording" not in result.stderr


def test_a_full_disk_is_said_in_one_line(vgpu: Any, traced_slice: Any) -> None:
    result = vgpu("trace", "train", "-s", "0.1", "--out", "/dev/full", host=traced_slice.host)
    assert result.code == 1
    assert result.stderr.splitlines()[1:] == [
        "vgpu: cannot write /dev/full: No space left on device; name another file with --out"
    ]
