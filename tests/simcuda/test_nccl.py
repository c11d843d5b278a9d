"""NCCL of the simulated device, without PyTorch: two ranks of tests/simcuda/nccl.c, one process a device."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vgpud import paths
from vgpud.simdevice.process import SimulatedDevice

ROOT = Path(__file__).resolve().parent.parent.parent
LIB = paths.sim_lib_dir()
SECONDS = 60

Run = Callable[..., str]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("nccl") / "nccl"
    flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-iquote", str(ROOT / "shim")]
    linked = [f"-L{LIB}", "-l:libcuda.so.1", f"-L{LIB / 'SIMULATED'}", "-l:libnccl.so.2"]
    subprocess.run(["gcc", *flags, "-o", str(path), str(ROOT / "tests/simcuda/nccl.c"), *linked], check=True)
    return path


@pytest.fixture
def run(program: Path, short_dir: Path) -> Iterator[Run]:
    """Runs a case to its end on two devices; returns what it said. The ranks end with the first, however."""
    with SimulatedDevice(short_dir / "d", {"devices": 2}) as device:

        def start(case: str, **environment: str) -> str:
            env = {**device.environment(), **environment}
            env["LD_LIBRARY_PATH"] += f":{LIB / 'SIMULATED'}"
            command = [str(program), case]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS)
            assert done.returncode == 0, done.stderr
            return done.stdout

        yield start


@pytest.mark.parametrize("case", ["values", "misuse", "graph", "split", "one_process"])
def test_ranks_exchange(run: Run, case: str) -> None:
    run(case)


def test_large_operations_move_nothing(run: Run) -> None:
    run("bound", VGPU_SIM_NCCL_COMPUTE_BYTES="4000")


def test_a_model_without_its_kernels_moves_nothing(run: Run, tmp_path: Path) -> None:
    (tmp_path / "model").write_text("default us=2 wave_us=2\n")
    run("model", VGPU_SIM_KERNELS=str(tmp_path / "model"))


def test_a_collective_ends_when_the_last_device_has_come(run: Run) -> None:
    """Rank 0's device is 20 ms late; and two communicators in opposite orders on two devices do not stop each other."""
    said = [json.loads(line) for line in run("time").splitlines()]
    assert sorted(line["rank"] for line in said) == [0, 1]
    assert all(line["took_ms"] >= 19.5 for line in said)


def test_two_ranks_on_one_device_are_refused(run: Run) -> None:
    run("duplicate")


def test_a_rank_that_does_not_come_is_named(run: Run) -> None:
    run("late", VGPU_SIM_NCCL_WAIT_SECONDS="1")


@pytest.mark.parametrize("case", ["killed", "killed_later", "aborted", "abort_of_a_wait"])
def test_a_rank_that_is_gone_ends_what_others_do(run: Run, case: str) -> None:
    run(case)
