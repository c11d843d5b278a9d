"""The arithmetic of the sharing benchmark, its table, and its C program on a simulated device."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import harness
from benchmarks.sharing import __main__ as command
from benchmarks.sharing import rows_bursts, rows_got, rows_return, rows_shares
from benchmarks.sharing.bench import Observed, Tenant
from benchmarks.sharing.figures import SharingFigure, compare, with_window
from benchmarks.sharing.measure import (
    Histogram,
    ProcessorTime,
    WorstWindow,
    completed_between,
    first_ms_with_share,
    jain,
    merge_histograms,
    pairs,
    share,
    spans_by_tenant,
    stolen_windows,
    worst_window,
)
from benchmarks.sharing.plan import Plan, at_switch
from benchmarks.spinning import spinning
from benchmarks.table import at_least, at_most, by_row, count_met, format_figures
from vgpud.simdevice.busy_log import SECOND_NS, Span
from vgpud.simdevice.process import SimulatedDevice

MS = 1_000_000
ROOT = Path(__file__).resolve().parents[2]


def turns(first: float, seconds: int) -> list[Span]:
    """Processes 1 and 2 in turn within each 10 ms, 1 with this share."""
    cut = int(10 * MS * first)
    begins = range(0, seconds * SECOND_NS, 10 * MS)
    return [s for b in begins for s in (Span(b, b + cut, 1), Span(b + cut, b + 10 * MS, 2))]


def make_run(spans: list[Span], seconds: int, **fields: object) -> Observed:
    names = {"a": [1], "b": [2]}
    kept: dict[str, object] = {"completed": {}, "latencies": {}, "phases": {}, **fields}
    return Observed(0, seconds * SECOND_NS, spans_by_tenant(spans, names), **kept)  # type: ignore[arg-type]


# ---- arithmetic ----


def test_a_tenant_is_all_its_processes_and_strangers_are_no_tenants() -> None:
    spans = [Span(5, 6, 3), Span(0, 1, 1), Span(2, 4, 2), Span(7, 9, 9)]
    assert spans_by_tenant(spans, {"a": [1, 3], "b": [2]}) == {"a": [spans[1], spans[0]], "b": [spans[2]]}


def test_share_is_clipped_to_the_time_asked_for() -> None:
    assert share([Span(0, 10, 1), Span(15, 30, 1)], 5, 25) == pytest.approx(15 / 20)
    assert share([], 5, 5) == 0


def test_jain() -> None:
    assert jain([0.3, 0.3, 0.3]) == pytest.approx(1)
    assert jain([1, 0, 0, 0]) == pytest.approx(0.25)
    assert math.isnan(jain([0, 0]))


def test_completed_work_lies_on_the_lines_between_reports() -> None:
    points = [(0, 0), (10, 100), (30, 100), (40, 300)]
    assert completed_between(points, 5, 35) == pytest.approx(150)
    assert completed_between(points, 10, 30) == pytest.approx(0)
    with pytest.raises(ValueError, match="do not reach"):
        completed_between(points, 5, 41)


def test_percentiles_are_bounds_that_were_kept() -> None:
    histogram = Histogram(((10, 98), (20, 1), (50, 1)))
    assert [histogram.percentile_ns(p) for p in (0.5, 0.98, 0.99, 1.0)] == [10, 10, 20, 50]
    assert math.isnan(Histogram(()).percentile_ns(0.99))


def test_histograms_add_up() -> None:
    both = merge_histograms([Histogram(((10, 1), (20, 2)), 3), Histogram(((5, 4), (20, 1)), 1)])
    assert both == Histogram(((5, 4), (10, 1), (20, 3)), 4)


def test_the_first_window_with_a_share_is_found() -> None:
    spans = [Span(0, 2 * MS, 1), Span(7 * MS, 40 * MS, 1)]
    assert first_ms_with_share(spans, 0, 40 * MS, 10 * MS, 1.0) == 7
    assert first_ms_with_share(spans, 0, 40 * MS, 10 * MS, 0.9) == 6
    assert first_ms_with_share(spans, 0, 16 * MS, 10 * MS, 1.0) == math.inf


def test_pairs_of_phases_leave_open_ones_out() -> None:
    points = [(1, "active"), (2, "idle"), (5, "active"), (9, "idle")]
    assert pairs(points, "idle", "active") == [(2, 5)]
    assert pairs(points, "active", "idle") == [(1, 2), (5, 9)]


# ---- rows ----


def test_errors_and_fairness_are_the_worst_second_not_the_mean() -> None:
    spans = [s for s in turns(0.5, 6) if not (s.pid == 1 and 2 * SECOND_NS <= s.begin_ns < 3 * SECOND_NS)]
    run = make_run(spans, 6)
    tenants = [Tenant("a", 0.5, 0.5), Tenant("b", 0.5, 0.5)]
    assert rows_shares.worst_error_pp(run, tenants) == pytest.approx(50)
    assert rows_shares.worst_jain(run) == pytest.approx(0.5)
    assert rows_shares.worst_error_pp(make_run(turns(0.5, 6), 6), tenants) == pytest.approx(0, abs=1e-9)


def test_the_least_tenant_against_an_equal_part() -> None:
    assert rows_bursts.least_part(make_run([], 1, completed={"a": 30.0, "b": 70.0})) == pytest.approx(0.6)


def test_absences_and_returns_out_of_the_log() -> None:
    """One is away from 100 to 300 ms, its neighbour needs 15 ms to take all; back, it waits 3 ms for its turn."""
    stays = [Span(0, 50 * MS, 1), Span(115 * MS, 303 * MS, 1)]
    goes = [Span(303 * MS, 500 * MS, 2)]
    phases = {"goes": [(100 * MS, "idle"), (300 * MS, "active"), (500 * MS, "idle"), (700 * MS, "active")]}
    run = Observed(0, 600 * MS, {"stays": stays, "goes": goes}, {}, {}, phases)
    assert rows_return.absences_ms(run) == [15]
    ((first, until_ms),) = rows_return.returns(run)
    assert first == pytest.approx(2 / 2.5)
    assert until_ms == 0


def test_a_return_that_waits_is_seen_to_wait() -> None:
    phases = {"goes": [(0, "active"), (500 * MS, "idle")]}
    goes = [Span(80 * MS, 500 * MS, 2)]
    ((first, until_ms),) = rows_return.returns(Observed(0, 600 * MS, {"goes": goes}, {}, {}, phases))
    assert first == 0
    assert until_ms == 55  # from there, half of the window's 50 ms, less 2 %, lie behind the wait


@pytest.mark.parametrize("tenants", [*rows_shares.W1_DEFAULT.values(), *rows_shares.W1_MORE.values()])
def test_no_mix_asks_for_more_than_a_device(tenants: tuple[Tenant, ...]) -> None:
    assert sum(t.minimum for t in tenants) == pytest.approx(1)
    assert len({t.name for t in tenants}) == len(tenants)
    assert {t.kernel_us for t in tenants} <= set(rows_shares.KERNELS_US)


def test_a_seed_moves_saturating_bursts_and_leaves_the_others() -> None:
    options = {tuple(Tenant("a", 1, 1).options(random.Random(seed))) for seed in range(20)}
    assert len(options) > 1
    bound = rows_bursts.launch_bound("l", 0.5)
    assert {tuple(bound.options(random.Random(seed))) for seed in range(20)} == {
        ("--kernel-us", "20", "--burst", "50", "--depth", "3", "--gap-us", "1000")
    }


def test_only_a_full_run_changes_the_switch_cost() -> None:
    assert Plan(10, 1, False).switches_us(100) == (None,)
    assert Plan(60, 5, True).switches_us(100) == (None, 10, 60, 100)
    assert at_switch("x", 60) != at_switch("x", None) == "x"


# ---- table ----


def test_a_missed_goal_is_shown_and_counts() -> None:
    figures = [
        compare("W1", "x", "error", (9.0, 1.0), at_most(1.5)),
        compare("W1", "x", "sum", (99.5, 90.0, 100.0, None), at_least(99)),
        SharingFigure("W5", "y", "reported", 7.0),
        SharingFigure("W5", "y", "nothing measured", math.nan, at_most(1)),
    ]
    assert [figure.is_missed for figure in figures] == [False, True, False, True]
    lines = format_figures(figures).splitlines()
    assert lines[2] == "| W1 | x | error | 9.00 | 1.00 | - | - | - | <= 1.5 | met |"
    assert lines[3].endswith("| 99.50 | 90.00 | 100.00 | - | - | >= 99 | **missed** |")
    assert lines[4] == "| W5 | y | reported | - | 7.00 | - | - | - |  |  |"
    assert [len(rows) for rows in by_row(figures).values()] == [2, 2]


def test_a_figure_from_stolen_time_is_shown_and_not_judged() -> None:
    worst = worst_window([(1.0, 0.02), (1.2, 0.10), (5.3, 0.34), (7.0, 0.2)])
    assert worst == WorstWindow(1.2, 0.10, (7.0, 0.2))
    figure = with_window(compare("W1", "x", "error", (9.0, 7.0), at_most(1.5)), worst)
    assert (figure.is_judged, figure.is_missed) == (True, False)
    assert (
        format_figures([figure]).splitlines()[2]
        == "| W1 | x | error | 9.00 | 1.20 | - | - | 10%, 7.00 at 20% | <= 1.5 | met |"
    )
    stolen = with_window(compare("W1", "x", "error", (9.0, 7.0), at_most(1.5)), worst_window([(5.0, 0.3), (2.0, 0.4)]))
    assert (stolen.value, stolen.is_judged, stolen.is_missed, stolen.as_json()["met"]) == (5.0, False, False, None)
    assert format_figures([stolen]).endswith("| 30% | <= 1.5 | not judged |")
    assert count_met([figure, stolen]) == "1 of 1 goals met, 1 not judged"


def test_stolen_time_is_reported_for_each_window() -> None:
    """The host takes half of all processors' time in the third second, and none else."""
    samples = [
        ProcessorTime(ms * MS, ms * 4 / 1000, max(0, min(ms - 2000, 1000)) * 2 / 1000) for ms in range(0, 5001, 100)
    ]
    found = stolen_windows(samples, 0, 5 * SECOND_NS, SECOND_NS)
    assert len(found) == 41
    assert [found[at] for at in (0, 10, 20, 30, 40)] == pytest.approx([0, 0, 0.5, 0, 0], abs=1e-3)
    assert found[15] == pytest.approx(0.25, abs=1e-3)
    assert stolen_windows([], 0, SECOND_NS, SECOND_NS) == []
    assert make_run([], 3).stolen() == [0.0] * 21


def test_usage_is_compared_with_the_log_of_the_same_time() -> None:
    spans = [Span(0, 300 * MS, 1), Span(SECOND_NS, SECOND_NS + 500 * MS, 1)]
    answers = [(0, {"a": 0}), (SECOND_NS, {"a": 310 * MS}), (2 * SECOND_NS, {"a": 790 * MS})]
    run = make_run(spans, 2)
    assert rows_got.errors_pp(run, "a", answers) == pytest.approx([1.0, -2.0])
    assert rows_got.errors_pp(run, "a", [answers[0], answers[-1]]) == pytest.approx([-0.5])


def test_a_busy_host_is_so_many_processes_that_end_with_it() -> None:
    me = psutil.Process()
    before = set(me.children())
    with spinning(3, 60):
        started = set(me.children()) - before
        assert len(started) == 3 and len({os.getsid(process.pid) for process in started}) == 3
    assert not any(process.is_running() for process in started)


@pytest.mark.parametrize(("words", "message"), [("W99", "is no row"), ("--real W9", "needs the simulated device")])
def test_a_row_that_is_not_there_is_refused(words: str, message: str) -> None:
    command = [sys.executable, "-m", "benchmarks.sharing", *words.split()]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr


def test_help_names_the_rows() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sharing", "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "python -m benchmarks.sharing " in done.stdout
    assert all(row in done.stdout for row in command.ROWS)


# ---- the C program ----


def test_load_reports_its_work_phases_and_latencies(tmp_path: Path) -> None:
    program = harness.build("tenants/load.c", output="load-test")
    histogram = tmp_path / "histogram"
    with SimulatedDevice(tmp_path / "sim", {"devices": 1}) as device:
        env = {**device.environment(), "VGPU_SIM_KERNELS": str(harness.spin_model(tmp_path, [1000]))}
        words = ["--kernel-us", "1000", "--burst", "2", "--gap-us", "2000", "--streams", "2"]
        words += ["--active-ms", "200", "--idle-ms", "50"]
        done = subprocess.Popen(
            [str(program), *words, "--histogram", str(histogram)], env=env, stdout=subprocess.PIPE, text=True
        )
        assert done.stdout
        lines = [json.loads(done.stdout.readline())]  # "ready": signals mean something from here on
        done.send_signal(signal.SIGUSR1)
        time.sleep(0.6)
        done.send_signal(signal.SIGTERM)
        lines += [json.loads(line) for line in done.communicate(timeout=60)[0].splitlines()]
    assert done.returncode == 0
    events = [line["event"] for line in lines]
    assert events[0] == "ready" and events[-1] == "end" and {"idle", "active", "progress"} <= set(events)
    raw = json.loads(histogram.read_text())
    found = Histogram(tuple((upper_ns, count) for upper_ns, count in raw["buckets"]), raw["skipped"])
    assert 0 < found.count <= lines[-1]["completed"] / 2
    assert found.percentile_ns(0.01) >= 2_000_000  # two kernels of 1 ms take that long at least


@pytest.mark.parametrize(
    "words",
    [
        "--depth 0",
        "--burst 0",
        "--streams 65",
        "--gap-us 1 --period-us 1",
        "--idle-ms 5",
        "--period-us 9 --active-ms 1 --idle-ms 1",
        "--what 1",
        "--depth x",
    ],
)
def test_load_refuses_what_is_invalid(words: str) -> None:
    program = harness.build("tenants/load.c", output="load-test")
    done = subprocess.run([str(program), *words.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("load: ") and done.stderr.count("\n") == 1
