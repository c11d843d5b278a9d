"""What the sharing benchmark compares with, keeps and draws; the rows have tests of their own."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from benchmarks import harness
from benchmarks.sharing import report, rows_solo
from benchmarks.sharing.bench import Tenant, open_bench
from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.measure import spans_of_work
from benchmarks.sharing.plain import WAYS, Plain, options
from benchmarks.sharing.rows import ROWS
from benchmarks.table import at_most
from vgpud.simdevice.busy_log import Span, mean_share, read_busy_log
from vgpud.simdevice.process import SimulatedDevice

TENANTS = [Tenant("a", 0.25, 0.25), Tenant("b", 0.5, 1, processes=2)]


# ---- the plain ways ----


def test_fixed_slots_lie_one_behind_the_other_and_are_as_long_as_the_minimum() -> None:
    assert options(Plain.FIXED, TENANTS) == {
        "a": ["--baseline", "fixed:0:25000:100000"],
        "b": ["--baseline", "fixed:25000:75000:100000"],
    }


def test_each_process_has_its_part_of_the_maximum_as_its_rate() -> None:
    assert options(Plain.RATE, TENANTS) == {"a": ["--baseline", "rate:250"], "b": ["--baseline", "rate:500"]}
    assert options(None, TENANTS) == {"a": [], "b": []}


@pytest.mark.parametrize("baseline", ["fixed:0:20000:100000", "rate:200"])
def test_a_plain_way_keeps_a_load_from_taking_the_whole_device(tmp_path: Path, baseline: str) -> None:
    program = harness.build("tenants/load.c", output="load-test")
    with SimulatedDevice(tmp_path / "sim", {"devices": 1}) as device:
        env = {**device.environment(), "VGPU_SIM_KERNELS": str(harness.spin_model(tmp_path, [1000]))}
        words = ["--kernel-us", "1000", "--burst", "1", "--depth", "2", "--seconds", "3", "--baseline", baseline]
        done = subprocess.run([str(program), *words], env=env, capture_output=True, text=True, timeout=60, check=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        spans = read_busy_log(tmp_path / "sim" / "busy-0.log")
    begin_ns, end_ns = lines[0]["time_ns"] + 1_000_000_000, lines[-1]["time_ns"]
    assert 0 < mean_share(spans, lines[0]["pid"], begin_ns, end_ns) < 0.5


def test_a_load_that_waits_for_its_slot_can_be_ended(tmp_path: Path) -> None:
    program = harness.build("tenants/load.c", output="load-test")
    with SimulatedDevice(tmp_path / "sim", {"devices": 1}) as device:
        env = {**device.environment(), "VGPU_SIM_KERNELS": str(harness.spin_model(tmp_path, [200]))}
        words = ["--seconds", "600", "--baseline", "fixed:0:1:600000000"]
        with subprocess.Popen([str(program), *words], env=env, stdout=subprocess.PIPE, text=True) as load:
            assert load.stdout and "ready" in load.stdout.readline()
            load.send_signal(signal.SIGTERM)
            assert load.wait(60) == 0


@pytest.mark.parametrize(
    "baseline", ["fixed:5:5:10", "fixed:0:11:10", "fixed:0:5", "rate:0", "rate:1001", "rate:x", "x"]
)
def test_a_plain_way_that_means_nothing_is_refused(baseline: str) -> None:
    program = harness.build("tenants/load.c", output="load-test")
    done = subprocess.run([str(program), "--baseline", baseline], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("load: --baseline")


# ---- a solo tenant ----


def test_the_interval_is_students() -> None:
    values = [99.0, 100.0, 101.0, 99.0, 100.0, 101.0]
    mean, lower = rows_solo.interval(values)
    assert mean == pytest.approx(100)
    assert lower == pytest.approx(100 - 2.571 * 0.894427 / 6**0.5, abs=1e-4)


# ---- shares by completed work ----


def test_work_lies_before_its_report() -> None:
    points = [(0, 0), (10, 2), (20, 2), (40, 5)]
    assert spans_of_work(points, 4.0, 7) == [Span(2, 10, 7), Span(28, 40, 7)]


@pytest.mark.alone
def test_completed_work_and_the_devices_log_tell_the_same_shares() -> None:
    """The measure of a real device on the simulated one: one run by its log and by what the programs reported."""
    tenants = [Tenant("a", 0.3, 0.3), Tenant("b", 0.7, 0.7, kernel_us=2000, burst=2)]
    with open_bench(3, (200, 2000), by_work=True) as here:
        run = here.observe(tenants, is_hooked=False, seed=1, plain=Plain.FIXED)
        log = read_busy_log(here._own.busy_log())
    logged = sorted(mean_share(log, pid, run.begin_ns, run.end_ns) for pid in {span.pid for span in log})[-2:]
    assert 0.1 < logged[0] < 0.45
    assert sorted(run.shares().values()) == pytest.approx(logged, abs=0.03)


# ---- what is left behind ----


def stored_run(case: str, way: str, parts: dict[str, float], **fields: Any) -> dict[str, Any]:
    """A run as Plan keeps it."""
    seconds = {name: [part] * 5 for name, part in parts.items()}
    return {"case": case, "way": way, "shipped": True, "part": parts, "share": parts, "seconds": seconds, **fields}


def test_a_result_is_json_a_table_and_plots_that_all_say_simulated(tmp_path: Path) -> None:
    figures = [SharingFigure("W1", "x", "error", 1.0, at_most(2)), SharingFigure("W1", "x", "sum", 3.0, at_most(2))]
    burst = {"cdf_us": {"inference": [4000.0, 5000.0]}}
    raw = {
        "W1": [stored_run(".5/.5", way, {"a": 0.5, "b": 0.5}) for way in WAYS],
        "W4": [stored_run("alone", "no hook", {"inference": 0.5}, **burst)]
        + [stored_run("beside", way, {"inference": 0.5, "training": 0.5}, **burst) for way in WAYS],
    }
    parameters = {"seconds": 5.0, "seeds": 1, "full": False}
    device = "SIMULATED H200"
    paths = report.write(figures, raw, is_simulated=True, device=device, parameters=parameters, folder=tmp_path)
    assert [path.name for path in paths] == [
        "sharing-sim.json",
        "sharing-sim.md",
        *(f"sharing-sim-{name}.png" for name in ("shares", "latency", "tenants")),
    ]
    page = paths[1].read_text()
    assert page.startswith("# Sharing on SIMULATED H200\n")
    assert "1 of 2 goals met" in page and "| W1 | x | sum | - | 3.00 | - | - | - | <= 2 | **missed** |" in page
    assert f"| W1 | {ROWS['W1'].what} | {ROWS['W1'].kernels} |" in page and ROWS["W4"].what not in page
    assert all(path.name in page and path.stat().st_size > 1000 for path in paths[2:])


def test_what_was_not_run_is_not_drawn(tmp_path: Path) -> None:
    figures = [SharingFigure("W8", "x", "ns", 1.0)]
    parameters = {"seconds": 5.0, "seeds": 1, "full": False}
    raw = {"W8": [{"case": "x", "ns": [1.0]}]}
    paths = report.write(figures, raw, is_simulated=True, device="SIMULATED X", parameters=parameters, folder=tmp_path)
    assert [path.suffix for path in paths] == [".json", ".md"]
