"""Each program of the benchmark ends without a hook and computes what it was given."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import measured
from benchmarks.dependent_streams import BENCH, PROGRAMS, SHORT_KERNEL_US, Program
from vgpud.simdevice.process import SimulatedDevice

EVERY = [program for _what, programs in PROGRAMS.values() for program in programs]


def test_names_of_cases_are_different() -> None:
    assert len({program.name for program in EVERY}) == len(EVERY)
    assert list(BENCH.rows) == list(PROGRAMS)


@pytest.mark.slow
def test_programs_end_without_a_hook_and_compute_what_they_say(tmp_path: Path) -> None:
    model = measured.write_model(tmp_path / "kernels.model", [1000, SHORT_KERNEL_US])
    with SimulatedDevice(tmp_path / "sim", {"devices": 2}) as device:
        env = {**device.environment(), "VGPU_SIM_KERNELS": str(model)}
        for program in EVERY:
            line, said = measured.execute([*program.command, "--stay", "50"], env, tmp_path, 60)
            assert line, (program.name, said)
            assert len(line["pids"]) == program.processes
            assert len(line["kernels_ns"]) == program.devices
            for index, kernels_ns in enumerate(line["kernels_ns"]):
                busy_ns = sum(s.end_ns - s.begin_ns for s in device.busy_log(index) if s.begin_ns >= line["begin_ns"])
                assert kernels_ns <= busy_ns + 1000 <= kernels_ns + 1_000_000, (program.name, index)


def test_an_unknown_case_is_refused(tmp_path: Path) -> None:
    with SimulatedDevice(tmp_path / "sim") as device:
        done = subprocess.run(
            Program("nonsense").command, env=device.environment(), capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    assert "no case nonsense" in done.stderr
