"""The adversaries of W10: each does what it says on a simulated device, ends when asked, and leaves nothing behind."""

import json
import math
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import harness
from benchmarks.sharing import rows_adversaries
from benchmarks.sharing.bench import Observed
from vgpud.simdevice.busy_log import SECOND_NS, Span
from vgpud.simdevice.process import SimulatedDevice


def run(honest_share: float, misdeeds: float) -> Observed:
    spans = {"honest": [Span(0, int(honest_share * SECOND_NS), 1)], "adversary": []}
    return Observed(0, SECOND_NS, spans, {"honest": 1000, "adversary": misdeeds}, {}, {})


def test_what_is_short_of_the_guarantee_counts_and_a_surplus_does_not() -> None:
    assert rows_adversaries.shortfall_pp(run(0.70, 5)) == pytest.approx(5)
    assert rows_adversaries.shortfall_pp(run(0.90, 5)) == 0


def test_a_stall_that_is_made_up_for_shows_in_a_second() -> None:
    spans = {"honest": [Span(0, SECOND_NS, 1), Span(2 * SECOND_NS, 4 * SECOND_NS, 1)]}
    stalled = Observed(0, 4 * SECOND_NS, spans, {"adversary": 1}, {}, {})
    assert rows_adversaries.shortfall_pp(stalled) == 0
    assert rows_adversaries.second_shortfall_pp(stalled) == pytest.approx(75)


def test_one_that_resumes_is_judged_by_its_worst_first_second() -> None:
    spans = {"honest": [Span(SECOND_NS, 2 * SECOND_NS, 1), Span(3 * SECOND_NS, 7 * SECOND_NS // 2, 1)]}
    phases = [(SECOND_NS, "active"), (2 * SECOND_NS, "idle"), (3 * SECOND_NS, "active"), (4 * SECOND_NS, "active")]
    found = Observed(0, 9 * SECOND_NS // 2, spans, {"adversary": 1}, {}, {"honest": phases})
    assert rows_adversaries.resume_shortfall_pp(found) == pytest.approx(25)  # the last second is not over
    never = Observed(0, SECOND_NS, spans, {"adversary": 1}, {}, {"honest": []})
    assert rows_adversaries.resume_shortfall_pp(never) == math.inf


def test_an_adversary_that_did_no_harm_proves_nothing() -> None:
    assert rows_adversaries.shortfall_pp(run(0.90, 0)) == math.inf


#: ring has a doorbell under the hook only
MODES = {adversary.mode for adversary in rows_adversaries.CASES.values()} - {*rows_adversaries.HOOKED_ONLY}


@pytest.mark.parametrize("mode", sorted(MODES))
def test_an_adversary_does_harm_and_ends(mode: str, tmp_path: Path) -> None:
    program = harness.build("tenants/adversary.c", output="adversary-test")
    with SimulatedDevice(tmp_path / "sim", {"devices": 1}) as device:
        env = {**device.environment(), "VGPU_SIM_KERNELS": str(harness.spin_model(tmp_path, [200]))}
        with subprocess.Popen([str(program), mode], env=env, stdout=subprocess.PIPE, text=True) as started:
            assert started.stdout
            deadline = time.monotonic() + 20
            for text in started.stdout:
                assert time.monotonic() < deadline, "no misdeed"
                line = json.loads(text)
                if line["completed"] and device.busy_log():
                    break
            children = psutil.Process(started.pid).children()
            started.terminate()
            assert started.wait(20) == 0
        assert line["issued"] == line["completed"] > 0
        deadline = time.monotonic() + 20
        while any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children):
            assert time.monotonic() < deadline, f"left behind: {children}"
            time.sleep(0.01)


@pytest.mark.parametrize("words", ["", "mischief", "endless 0", "endless 200 1 more"])
def test_an_adversary_gets_orders(words: str) -> None:
    program = harness.build("tenants/adversary.c", output="adversary-test")
    done = subprocess.run([str(program), *words.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("adversary: ")
