"""`vgpu top`: a view per sample, bars that mean something."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.cli.fake_server import FakeDaemon
from vgpud.cli.common.history import History, Recent
from vgpud.cli.common.output import blocks_unknown
from vgpud.cli.slices.top_frame import COLUMNS, Line, _divide_lines, _got_style, choose_columns, frame
from vgpud.cli.slices.top_keys import HELP, SORTS, Screen, split_keys
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view import figures
from vgpud.view import slices as views

UUID = "GPU-00000000-0000-0000-0000-000000000000"


def device_of(**fields: Any) -> dict[str, Any]:
    """A slice's view on the fake daemon's device."""
    return views.slice_device_view(pb.SliceDevice(device_uuid=UUID, **fields), is_simulated=True)


def slice_of(name: str, processes: int = 1, **fields: Any) -> dict[str, Any]:
    holders = {"owner_uid": 0, "queue": "default", "job_id": 12, "job_name": "fit", "claim": None, "containers": []}
    there = {"suspended": None, "residency": None, "asleep_time": None, "rotation": None}
    return {"name": name, "uid": name, "processes": processes, "devices": [device_of(**fields)], **holders, **there}


def draw_lines(
    slices: list[dict[str, Any]], width: int, height: int = 24, encoding: str = "utf-8", **options: Any
) -> list[str]:
    """The lines of a frame, after a minute of the same view every second."""
    device = views.device_view(pb.Device(uuid=UUID, name="H200", simulated=True, mem_total_bytes=1 << 36))
    history = History(1.0)
    for second in range(120):
        history.add(float(second), slices)
    written = io.BytesIO()
    out = Console(file=io.TextIOWrapper(written, encoding), width=width, height=height)
    out.print(frame(out, {"devices": [device], "slices": slices}, history, "12:34:56", **options))
    out.file.flush()
    return written.getvalue().decode(encoding).split("\n")


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "closed"),
        ({"residency": "away", "asleep_time": "2023-11-14T22:13:20Z"}, "asleep"),
        ({"residency": "away"}, "away"),
        ({"residency": "away", "rotation": {"waiting_calls": 0}}, "away"),
        ({"residency": "away", "rotation": {"waiting_calls": 2}, "asleep_time": "2023-11-14T22:13:20Z"}, "waiting"),
        ({"residency": "coming", "asleep_time": "2023-11-14T22:13:20Z"}, "coming"),
        ({"residency": "leaving"}, "leaving"),
        ({"suspended": "evicted"}, "evicted"),
    ],
)
def test_the_gate_of_a_slice_that_is_away_is_no_closed_gate(fields: dict[str, Any], word: str) -> None:
    made = slice_of("train", gate=pb.GATE_CLOSED) | fields
    (line,) = (line for line in draw_lines([made], 200) if "train" in line)
    assert {"closed", "asleep", "away", "waiting", "coming", "leaving", "evicted"} & set(line.split()) == {word}


# ---- figures ----


def test_a_sparkline_goes_from_low_to_high() -> None:
    assert figures.sparkline([0.0, 0.5, 0.99, 1.0, 7.0, -1.0, None]) == "▁▅███▁ "
    plain = figures.sparkline([i / 8 for i in range(9)], ascii_only=True)
    assert plain.isascii() and len(set(plain)) == 8


def test_bars_are_as_long_as_their_ratio_and_never_vanish() -> None:
    assert figures.bar(1.0, 10) == "█" * 10
    assert figures.bar(0.55, 10) == "█████▌"
    assert figures.bar(0.0001, 10) == "▏"
    assert figures.bar(0.0, 10) == figures.bar(0.0, 10, ascii_only=True) == ""
    assert figures.bar(0.5, 10, ascii_only=True) == "#####"


@pytest.mark.parametrize(
    ("span_ns", "text"),
    [
        (0, "0"),
        (400, "0"),
        (16_000, "16us"),
        (999_499, "999us"),
        (999_501, "1.0ms"),
        (8_190_000, "8.2ms"),
        (-131_000_000, "-131ms"),
        (1.5e9, "1.5s"),
        (4.2e11, "420s"),
    ],
)
def test_spans_of_time_are_short(span_ns: float, text: str) -> None:
    assert figures.short_time(span_ns) == text


def test_quantiles_are_ends_of_buckets() -> None:
    counts = [0] * 16
    assert figures.wait_quantile(counts, 0.5) == "-"
    counts[3], counts[9] = 98, 2
    assert figures.wait_quantile(counts, 0.5) == "128us"
    assert figures.wait_quantile(counts, 0.99) == "8.2ms"
    counts[15] = 1000
    assert figures.wait_quantile(counts, 0.5) == ">262ms"


def test_wait_bars_leave_out_the_empty_ends() -> None:
    counts = [0, 0, 4, 0, 8] + [0] * 10 + [1]
    bars = figures.wait_bars(counts, 8)
    assert bars[0] == ("< 64us", "████", 4)
    assert bars[1] == ("< 128us", "", 0)
    assert bars[-1] == (">= 262ms", "█", 1)
    assert len(bars) == 14
    assert figures.wait_bars([0] * 16, 8) == []


# ---- the last minute ----


def test_the_minute_is_a_mean_per_cell_and_blank_where_nothing_was_heard() -> None:
    history = History(1.0)
    for second, share in [(0, 1.0), (1, 0.5), (2, 0.0), (3, 0.0), (30, 0.4), (31, 0.6), (59, 0.2)]:
        history.add(float(second), [slice_of("a", share_ratio=share)])
    cells = history.shares(("a", UUID), 60)
    assert cells[:4] == [1.0, 0.5, 0.0, 0.0]
    assert cells[30:32] == [0.4, 0.6]
    assert cells[-1] == 0.2
    assert set(cells[4:30]) == set(cells[32:59]) == {None}
    assert history.shares(("a", UUID), 6)[0] == pytest.approx(0.375)
    assert history.shares(("unknown", UUID), 3) == [None] * 3


def test_slow_views_fill_the_cells_between_them() -> None:
    history = History(10.0)
    for second in range(0, 70, 10):
        history.add(float(second), [slice_of("a", share_ratio=0.5)])
    assert history.shares(("a", UUID), 60) == [0.5] * 60


def test_rates_are_of_the_last_second_and_waits_of_the_last_minute() -> None:
    history = History(0.5)
    assert history.recent(("a", UUID)).throttled_ratio is None
    for step in range(200):
        waits = [step] + [0] * 15
        fields = {"throttled_ns": step * 100_000_000, "borrowed_ns": step * 50_000_000, "wait_counts": waits}
        history.add(step * 0.5, [slice_of("a", **fields)])
    recent = history.recent(("a", UUID))
    assert recent.throttled_ratio == pytest.approx(0.2)
    assert recent.borrowed_ratio == pytest.approx(0.1)
    assert recent.wait_counts == (120,) + (0,) * 15


def test_counters_that_begin_again_and_slices_that_went_are_forgotten() -> None:
    history = History(1.0)
    history.add(0.0, [slice_of("a", throttled_ns=5_000_000_000), slice_of("b")])
    history.add(1.0, [slice_of("a", throttled_ns=1_000)])
    assert history.recent(("a", UUID)).throttled_ratio is None
    history.add(2.0, [slice_of("a", throttled_ns=500_001_000), slice_of("b")])
    assert history.recent(("a", UUID)).throttled_ratio == pytest.approx(0.5)
    assert history.recent(("b", UUID)).throttled_ratio is None


# ---- the frame ----


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_lines_fit_and_wide_terminals_show_more(width: int) -> None:
    lines = draw_lines([slice_of("a-name-that-is-rather-long-for-a-slice", share_ratio=0.5)], width)
    assert max(map(len, lines)) <= width
    titles = lines[2].split()
    assert {"SLICE", "DUE%", "GOT%", "WAIT%", "p99", "BALANCE", "MEM%"} <= set(titles)
    assert ({"BORR%", "GATE", "USER"} <= set(titles)) == (width >= 80)
    assert ("p50" in titles) == (width >= 100)
    assert (("QUEUE" in titles), ("FOR" in titles)) == (width >= 200, width >= 200)
    assert ("PROCS" in titles) == (width >= 200)


def test_a_line_says_what_the_slice_is_due_got_and_waited() -> None:
    fields = {"entitlement_milli": 250, "share_ratio": 0.253, "lag_ns": -3_000_000, "gate": pb.GATE_CLOSED}
    limits = {"min_milli": 250, "max_milli": 750, "mem_max_bytes": 8 << 30, "mem_used_bytes": 2 << 30}
    lines = draw_lines([slice_of("train", regime=pb.REGIME_ARBITRATED, **fields, **limits)], 120)
    assert "arbitrated" in lines[0] and "SIMULATED" in lines[0]
    shown = dict(zip(lines[2].replace("LAST MINUTE", "MINUTE").split(), lines[3].split(), strict=False))
    assert (shown["DUE%"], shown["GOT%"], shown["LIMITS"]) == ("25.0", "25.3", "0.25..0.75")
    for text in ("-3.0ms", "closed", " 25.0\n", "▃▃▃▃▃▃▃▃▃▃"):
        assert text in lines[3] + "\n"
    assert "12:34:56" in lines[-2]


def test_lines_stay_where_they_are_and_idle_slices_come_last() -> None:
    slices = [slice_of("c", share_ratio=0.9), slice_of("a", processes=0), slice_of("b", share_ratio=0.1)]
    assert [line[0] for line in draw_lines(slices, 80)[3:6]] == ["b", "c", "a"]


def test_what_does_not_fit_is_counted() -> None:
    lines = draw_lines([slice_of(f"s{i:02d}", processes=i % 2) for i in range(40)], 80, height=12)
    assert len([line for line in lines if line]) <= 12
    assert lines[-4] == "and 34 more, 20 of them without a program"


def test_a_slice_without_a_program_is_due_nothing() -> None:
    lines = draw_lines([slice_of("a", processes=0, entitlement_milli=250, lag_ns=500_000)], 80)
    assert lines[3].split()[1:3] == ["root", "-"]
    assert "500us" not in lines[3]


@pytest.mark.parametrize(
    ("share", "throttled_ratio", "style"),
    [(0.45, 0.9, "yellow"), (0.45, 0.0, "green"), (0.49, 0.9, "green"), (0.65, 0.9, "red")],
)
def test_a_waiting_slice_below_its_entitlement_is_coloured(share: float, throttled_ratio: float, style: str) -> None:
    (given,) = slice_of("a", entitlement_milli=500, max_milli=600, share_ratio=share)["devices"]
    assert _got_style(Line({}, given, Recent(throttled_ratio, 0.0, ()))) == style


@pytest.mark.parametrize(
    ("needed_lines", "room", "granted_lines"),
    [([3, 1], 20, [3, 1]), ([40, 1], 10, [9, 1]), ([9, 8, 2], 12, [5, 5, 2]), ([5], 0, [1])],
)
def test_devices_share_the_lines_that_there_are(needed_lines: list[int], room: int, granted_lines: list[int]) -> None:
    assert _divide_lines(needed_lines, room) == granted_lines


def test_a_terminal_without_block_characters_gets_ascii() -> None:
    text = "\n".join(draw_lines([slice_of("a", share_ratio=0.5)], 120, encoding="ascii"))
    assert "======" in text and text.isascii()


@pytest.mark.parametrize(("name", "plain"), [("C", True), ("POSIX", True), ("C.UTF-8", False), ("", False)])
def test_a_terminal_of_the_c_locale_gets_ascii(monkeypatch: pytest.MonkeyPatch, name: str, plain: bool) -> None:
    """Python says UTF-8 there."""
    for variable in ("LC_ALL", "LC_CTYPE", "TERM"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("LANG", name)
    out = Console(file=io.TextIOWrapper(io.BytesIO(), "utf-8"), force_terminal=True)
    assert blocks_unknown(out) is plain


def test_an_old_view_says_why() -> None:
    assert "the daemon does not answer" in draw_lines([], 80, problem="the daemon does not answer")[-2]


def draw_screen(screen: Screen, slices: list[dict[str, Any]], **fields: Any) -> list[str]:
    """The lines of a view on a terminal of 80 columns; fields: of the device."""
    processes = fields.pop("processes", [])
    device = views.device_view(pb.Device(uuid=UUID, name="H200", simulated=True, mem_total_bytes=1 << 36, **fields))
    history = History(1.0)
    history.add(0.0, slices)
    out = Console(file=io.StringIO(), width=80, height=24)
    out.print(frame(out, {"devices": [device], "slices": slices, "processes": processes}, history, "", "", screen))
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue().split("\n")


def test_a_device_shows_memory_temperature_power_and_faults() -> None:
    fields = {"mem_used_bytes": 1 << 35, "temperature_celsius": 41, "power_milliwatts": 312_400}
    line = draw_screen(Screen(), [], power_limit_milliwatts=700_000, xids=3, last_xid=79, **fields)[1]
    assert line.strip() == "memory [█████     ] 32GiB of 64GiB  41 C  312 of 700 W  XIDs: 3, last 79"
    bare = draw_screen(Screen(), [])[1]
    assert bare.strip() == "memory [          ] 0B of 64GiB", "what NVML does not report is left out"


def test_keys_choose_the_order_of_the_slices() -> None:
    slices = [
        slice_of("a", share_ratio=0.1, mem_used_bytes=1),
        slice_of("b", share_ratio=0.5, mem_used_bytes=2),
        slice_of("c", share_ratio=0.3, mem_used_bytes=3),
    ]
    screen, orders = Screen(), {}
    for _ in SORTS:
        orders[screen.sort] = "".join(line[0] for line in draw_screen(screen, slices)[3:6])
        screen.press("s")
    assert orders == {"name": "abc", "got": "bca", "wait": "abc", "memory": "cba"}
    assert screen.sort == "name"


def test_a_filter_is_typed_kept_and_cleared() -> None:
    screen = Screen()
    slices = [slice_of("train-a"), slice_of("infer")]
    for key in "/qx\x7f":
        screen.press(key)
    assert (screen.filter, screen.has_ended) == ("q", False), "while typing q is a letter"
    for key in "\x7fTRA\r":
        screen.press(key)
    lines = draw_screen(screen, slices)
    assert lines[3].startswith("train-a") and not any(line.startswith("infer") for line in lines)
    assert "f filter: TRA" in lines[-2]
    screen.press("\x1b")
    assert screen.filter == ""
    assert Screen(filter="root").shows("a", "root")
    assert "no slice passes the filter" in draw_screen(Screen(filter="none"), slices)[2]


def test_processes_stand_below_their_slice() -> None:
    process = pb.Process(slice="a", pid=4321, uid=0, program="python\x1b train.py")
    process.devices.add(device_uuid=UUID, mem_used_bytes=3 << 30)
    rows = [views.process_view(process, frozenset())]
    screen = Screen()
    assert not any("4321" in line for line in draw_screen(screen, [slice_of("a"), slice_of("b")], processes=rows))
    screen.press("p")
    lines = draw_screen(screen, [slice_of("a"), slice_of("b")], processes=rows)
    assert lines[3].startswith("a ") and lines[5].startswith("b ")
    assert lines[4].split() == ["4321", "root", "3GiB", "python\\x1b", "train.py"]


def test_help_and_pause_are_said() -> None:
    screen = Screen()
    screen.press(" ")
    assert "PAUSED" in draw_screen(screen, [])[-2]
    screen.press("h")
    text = "\n".join(draw_screen(screen, []))
    assert all(f"{key} " in text for key, _ in HELP) and "device 0" not in text
    shown = {column.title for column in choose_columns(80)}
    hidden = [column.title for column in COLUMNS if column.title not in shown]
    assert f"not shown in 80 columns: {', '.join(hidden)}" in " ".join(text.split())
    screen.press("\x1b")
    assert not screen.help and screen.is_paused
    screen.press("q")
    assert screen.has_ended
    assert "Ctrl-C ends" in draw_screen(Screen(keys=False), [])[-2]


def test_arrow_keys_are_no_letters() -> None:
    assert split_keys("\x1b[A") == [] and split_keys("qs") == ["q", "s"] and split_keys("\x1b") == ["\x1b"]


# ---- the command ----


def test_json_is_a_line_a_view(vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "a", "--gpus", "0.5", host=daemon.host)
    result = vgpu("top", "-n", "3", "-d", "0.1", "-o", "json", host=daemon.host)
    assert result.code == 0
    views = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(views) == 3
    assert all(v["schema_version"] == 1 and v["sample_time"].endswith("Z") for v in views)
    assert views[0]["slices"][0]["devices"][0]["share_ratio"] == 0.25


def test_without_a_terminal_tables_follow_each_other(vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "a", "--gpus", "0.5", host=daemon.host)
    result = vgpu("top", "-n", "2", "-d", "0.1", "--no-headers", host=daemon.host)
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [["a", "0-SIMULATED"]] * 2


@pytest.fixture
def waiting(vgpu: Any, daemon: Any) -> Any:
    """A daemon with one slice, which waits more and more."""
    vgpu("slice", "create", "a", "--gpus", "0.5", host=daemon.host)
    daemon.throttled_ns_per_view = 1_000_000_000
    return daemon


def test_one_view_is_enough_to_see_waiting_slices(vgpu: Any, waiting: Any) -> None:
    titles, line = vgpu("top", "-n", "1", "-d", "0.1", host=waiting.host).stdout.splitlines()
    shown = dict(zip(titles.split(), line.split(), strict=True))
    assert (shown["SLICE"], shown["LIMITS"], shown["GOT%"]) == ("a", "0.5", "25.0")
    assert float(shown["WAIT%"]) > 0


def on_a_terminal(*command: str) -> tuple[int, str]:
    """Exit code of `vgpu` on a terminal, and all that it has written."""
    pid, terminal = pty.fork()
    if pid == 0:
        whole = [sys.executable, "-m", "vgpud.cli.main", *command]
        os.execve(sys.executable, whole, os.environ | {"TERM": "xterm", "COLUMNS": "100"})
    text = b""
    try:
        while data := os.read(terminal, 4096):
            text += data
    except OSError:  # how Linux says that the other end of a terminal is closed
        pass
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return os.waitstatus_to_exitcode(status), text.decode()


def test_on_a_terminal_it_draws_and_leaves_the_screen(daemon: Any) -> None:
    code, text = on_a_terminal("--host", daemon.host, "top", "-n", "2", "-d", "0.1")
    assert code == 0
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l") == 1
    drawn_there, _, left = text.partition("\x1b[?1049l")
    assert "no slices" in drawn_there and "no slices" in left, "the last view stays"


def test_keys_are_obeyed_at_once_and_q_leaves_the_terminal_as_it_was(daemon: Any, vgpu: Any) -> None:
    vgpu("slice", "create", "abc", "--gpus", "0.5", host=daemon.host)
    leader, terminal = pty.openpty()
    before = termios.tcgetattr(terminal)
    command = [sys.executable, "-m", "vgpud.cli.main", "--host", daemon.host, "top", "-d", "60"]
    env = os.environ | {"TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    running = subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=env)
    text = ""

    def until(words: str) -> None:
        nonlocal text
        while words not in text:
            text += os.read(leader, 4096).decode(errors="ignore")
        text = text.partition(words)[2]

    try:
        until("s sort: name")
        os.write(leader, b"s")
        until("s sort: got")  # long before the next view
        os.write(leader, b"/none\r")
        until("no slice passes the filter")
        os.write(leader, b"q")
        until("\x1b[?1049l")
        assert running.wait(timeout=60) == 0
        assert termios.tcgetattr(terminal) == before
    finally:
        running.kill()
        running.wait()
        os.close(leader)
        os.close(terminal)


def test_the_first_view_on_a_terminal_shows_waiting_slices_as_well(waiting: Any) -> None:
    code, text = on_a_terminal("--host", waiting.host, "top", "-n", "1", "-d", "0.1")
    left = re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", text.partition("\x1b[?1049l")[2])
    titles, line = left.splitlines()[2:4]
    end = titles.index("WAIT%") + len("WAIT%")
    assert code == 0 and float(line[end - 5 : end]) > 0


def test_it_waits_for_a_daemon_that_is_restarted(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path)
    command = [sys.executable, "-m", "vgpud.cli.main", "--host", first.host, "top", "-d", "0.1", "-o", "name"]
    with first:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "\n"
            first.stop()
            assert "daemon" in process.stderr.readline()
            with FakeDaemon(tmp_path) as second:
                second.create("back")
                while process.stdout.readline() != "back\n":
                    pass
        finally:
            process.kill()
            process.communicate()
