"""`vgpu sim load`: its shapes on the simulated device, alone and in slices, and what it says where it cannot run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.simdevice.load import SHAPES
from vgpud.simdevice.process import SimulatedDevice, environment

BUILT = (paths.sim_lib_dir() / "vgpu-simd").exists()
pytestmark = pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py")
ROOT = Path(__file__).resolve().parents[3]
VGPU = [sys.executable, "-m", "vgpud.cli.main"]
LOAD = [*VGPU, "sim", "load"]


@pytest.fixture(scope="module")
def device() -> Iterator[dict[str, str]]:
    """The environment of programs on a simulated device."""
    folder = Path(tempfile.mkdtemp(prefix="vgl-", dir="/tmp"))
    with SimulatedDevice(folder, {"memory_bytes": "2G"}) as made:
        yield environment(made.directory)
    shutil.rmtree(folder)


def lines_of(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("shape", list(SHAPES))
def test_each_shape_runs_for_its_time_and_reports(shape: str, device: dict[str, str]) -> None:
    command = [*LOAD, shape, "--seconds", "1.2", "--report", "0.25", "-o", "json"]
    done = subprocess.run(command, env=device, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    start, training, *progress, end = lines_of(done.stdout)
    assert (start["event"], training["event"], end["event"]) == ("start", "training", "end")
    assert start["simulated"] and "SIMULATED" in start["device"] and start["shape"] == shape
    assert progress and all(line["event"] == "progress" for line in progress)
    assert end["samples"] == end["step"] * SHAPES[shape].samples > 0
    shares = [line["device_time_ratio"] for line in progress]
    assert all(0 < share <= 1.1 for share in shares), shares
    assert ("latency_p99_ms" in progress[0]) == (shape == "inference")
    if shape == "inference":
        assert max(shares) < 0.5, "it leaves most of the device idle"


def test_a_signal_ends_it_in_order(device: dict[str, str]) -> None:
    running = subprocess.Popen([*LOAD, "-o", "json"], env=device, stdout=subprocess.PIPE, text=True)
    assert running.stdout and json.loads(running.stdout.readline())["event"] == "start"
    running.send_signal(signal.SIGTERM)
    out, _ = running.communicate(timeout=60)
    assert running.returncode == 0
    assert lines_of(out)[-1]["event"] == "end"


def test_a_line_says_what_a_person_wants_to_know(device: dict[str, str]) -> None:
    command = [*LOAD, "inference", "--seconds", "0.6", "--report", "0.25"]
    done = subprocess.run(command, env=device, capture_output=True, text=True, timeout=60)
    first, second, *_ = done.stdout.splitlines()
    assert first.startswith("inference on SIMULATED")
    for word in ("requests/s", "of the device's time", "latency p50"):
        assert word in second


def test_more_memory_than_there_is_names_the_option(device: dict[str, str]) -> None:
    done = subprocess.run([*LOAD, "--memory", "3G"], env=device, capture_output=True, text=True, timeout=60)
    assert done.returncode == 6
    assert "3072 MiB" in done.stderr and "--memory" in done.stderr and done.stderr.count("\n") == 1


def test_without_a_device_it_says_where_to_run_it() -> None:
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    done = subprocess.run(LOAD, env=env, capture_output=True, text=True, timeout=60)
    if done.returncode == 0:
        pytest.skip("there is a driver here")
    assert done.returncode == 3
    assert "vgpu run --gpus 0.5 -- vgpu sim load" in done.stderr and "Traceback" not in done.stderr


def test_two_slices_get_their_parts(short_dir: Path) -> None:
    with OwnSystem(short_dir / "own", {"devices": "1"}) as system:
        amounts = {"small": "0.25", "large": "0.75"}
        parts = {
            name: system.run(name, ["--gpus", gpus], [*LOAD, "trainer", "-o", "json", "--report", "0.2"])
            for name, gpus in amounts.items()
        }
        done: dict[str, list[dict[str, Any]]] = {name: [] for name in parts}
        until = time.monotonic() + 30
        while min(len(lines) for lines in done.values()) < 20 and time.monotonic() < until:
            time.sleep(0.1)
            for name, part in parts.items():
                part.check()
                done[name] += [line for line in part.lines() if line["event"] == "progress"]
    begin_ns = max(lines[2]["time_ns"] for lines in done.values())  # both run from here on
    rates = {}
    for name, lines in done.items():
        both = [line for line in lines if line["time_ns"] >= begin_ns]
        first, last = both[0], both[-1]
        rates[name] = (last["samples"] - first["samples"]) / (last["time_ns"] - first["time_ns"])
    assert 2 < rates["large"] / rates["small"] < 4.5, rates
