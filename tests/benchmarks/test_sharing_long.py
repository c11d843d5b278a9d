"""W3's tenants that hold the device for long: they fit on it, and the load program feeds it graphs and deep queues."""

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks import harness
from benchmarks.sharing import rows_long
from benchmarks.sharing.bench import Observed, Tenant
from benchmarks.sharing.rows_shares import worst_error_pp
from vgpud.simdevice.busy_log import SECOND_NS, Span
from vgpud.simdevice.process import SimulatedDevice

CASES = {**rows_long.DEFAULT, **rows_long.MORE}


@pytest.mark.parametrize("case", list(CASES))
def test_every_case_says_what_it_is(case: str) -> None:
    tenant, bound_pp = CASES[case]
    assert case.startswith(f"{tenant.minimum:g} (".removeprefix("0"))
    assert case.endswith(f"/{1 - tenant.minimum:g}".replace("/0", "/"))
    assert tenant.kernel_us in rows_long.KERNELS_US
    assert bound_pp == (6 if tenant.kernel_us == rows_long.SECOND_US and tenant.minimum != 0.5 else 1)


def test_deep_queues_and_graphs_are_as_deep_and_long_as_they_say() -> None:
    (deep, _), (graphs, _) = CASES[".5 (deep queues)/.5"], CASES[".5 (graphs of 50 ms)/.5"]
    assert (deep.streams, deep.burst * deep.depth / deep.streams) == (8, 1000)
    assert graphs.graph and graphs.burst * graphs.kernel_us == 50_000


def test_a_long_window_forgives_what_a_short_one_shows() -> None:
    """One tenant has all of every other second: 50 pp over one second, 10 pp over five, nothing over the whole."""
    spans = [Span(s * SECOND_NS, (s + 1) * SECOND_NS, 1) for s in range(0, 10, 2)]
    run = Observed(0, 10 * SECOND_NS, {"a": spans}, {}, {}, {})
    tenant = Tenant("a", 0.5, 0.5)
    assert worst_error_pp(run, [tenant]) == pytest.approx(50)
    assert worst_error_pp(run, [tenant], rows_long.WINDOW_NS) == pytest.approx(10)
    assert run.share("a") == pytest.approx(0.5)


@pytest.mark.parametrize(
    "words", ["--graph 1 --burst 20 --depth 2", "--burst 25 --depth 16 --streams 4"], ids=["graphs", "deep queues"]
)
def test_load_completes_on_the_device_what_it_says(words: str, tmp_path: Path) -> None:
    program = harness.build("tenants/load.c", output="load-test")
    with SimulatedDevice(tmp_path / "sim", {"devices": 1}) as device:
        env = {**device.environment(), "VGPU_SIM_KERNELS": str(harness.spin_model(tmp_path, [1000]))}
        command = [str(program), "--kernel-us", "1000", "--seconds", "1", *words.split()]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    last = json.loads(done.stdout.splitlines()[-1])
    busy_ns = sum(span.end_ns - span.begin_ns for span in device.busy_log())
    assert last["issued"] == last["completed"] > 0
    warm_up = 2  # the program measures its kernel's length on two launches
    assert busy_ns == pytest.approx((last["completed"] + warm_up) * 1e6, rel=0.02)
