"""PyTorch as PyPI has it, on the simulated device: operators, networks, features, cuDNN and linear algebra run without
an error, a slice sees the same outputs and memory to the byte, and memory ends at the slice's last granule.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud.simdevice.process import SimulatedDevice

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
SECONDS = 280
MEMORY = "8G"
#: the first needs a process in which nothing was allocated yet
COMPARED = ("last_granule", "operators", "networks", "features", "cudnn")
#: half of a device; all of one, since what is timed there does not wait for its turn
SLICES = {
    "half": (("--gpus", "0.5", "--mem", MEMORY), COMPARED),
    "whole": (("--gpus", "1", "--mem", "16G"), ("linear",)),
}
CUDNN_PARTS = ("convolutions", "settings", "times", "normalization", "recurrent", "losses", "attention", "networks")
#: how long an H200 takes for 2 x 4096^3 operations at 70 % of its data sheet, for three arrays of 4096^2 numbers at
#: 80 % of its bandwidth, and for one
EXPECTED_US = {"float32": 2930.5, "bfloat16": 198.4, "add": 52.4, "sum": 17.5}
#: the first test waits for the download as well
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Run:
    """A process of programs by `vgpu sim run`. Its output goes to files: nothing reads it while it runs."""

    def __init__(self, folder: Path, python: str, where: tuple[str, ...], programs: tuple[str, ...]) -> None:
        command = [sys.executable, "-m", "vgpud.cli.main", "sim", "run", *where, "--", python, HERE / "together.py"]
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        self.output, self.errors = folder / "output", folder / "errors"
        folder.mkdir()
        with self.output.open("w") as output, self.errors.open("w") as errors:
            self.process = subprocess.Popen([*command, *programs], env=env, stdout=output, stderr=errors)

    def lines(self, program: str) -> list[Any]:
        """What the program has printed. All programs of the process must have ended without an error."""
        code, text = self.process.wait(SECONDS), self.output.read_text()
        assert code == 0, (code, text[-1000:], self.errors.read_text()[-2000:])
        found: dict[str, list[Any]] = {}
        for line in map(json.loads, text.splitlines()):
            if isinstance(line, dict) and "program" in line:
                found[line["program"]] = []
            else:
                list(found.values())[-1].append(line)
        return found[program]


@pytest.fixture(scope="module")
def runs(torch_python: str) -> Iterator[dict[str, Run]]:
    """The programs in slices, and alone on a device of the slice's size without a hook: at the same time."""
    with tempfile.TemporaryDirectory(prefix="vgpu-") as name:
        folder = Path(name)
        with SimulatedDevice(folder / "sim", {"memory_bytes": MEMORY}) as device:
            made = {
                "alone": Run(folder / "alone", torch_python, ("--dir", str(device.directory)), (*COMPARED, "linear"))
            }
            made |= {way: Run(folder / way, torch_python, *given) for way, given in SLICES.items()}
            yield made
            for run in made.values():
                run.process.kill()
                run.process.wait()


@pytest.mark.parametrize(
    ("program", "count_min"), [("operators", 150), ("networks", 2 * 12), ("features", 20), ("cudnn", len(CUDNN_PARTS))]
)
def test_a_slice_sees_the_same_outputs_and_memory(runs: dict[str, Run], program: str, count_min: int) -> None:
    """To the byte: peaks of what PyTorch allocates and reserves, and what the driver has left."""
    lines = runs["half"].lines(program)
    assert len(lines) >= count_min
    assert runs["alone"].lines(program) == lines


def test_each_part_of_cudnn_was_run(runs: dict[str, Run]) -> None:
    assert tuple(name for name, *_ in runs["half"].lines("cudnn")) == CUDNN_PARTS


def test_memory_ends_at_the_slices_last_granule(runs: dict[str, Run]) -> None:
    (found,) = runs["half"].lines("last_granule")
    assert (found["total"], found["rest"], found["retries"]) == (8 << 30, 0, 1)
    for message in found["messages"]:
        assert message.startswith("CUDA out of memory. Tried to allocate")
        for part in ("total capacity of 8.00 GiB", "is free", "allocated by PyTorch", "reserved by PyTorch"):
            assert part in message
    assert runs["alone"].lines("last_granule") == [found]


@pytest.mark.parametrize("way", ["alone", "whole"])
def test_pytorch_multiplies_solves_and_transforms(runs: dict[str, Run], way: str) -> None:
    (result,) = runs[way].lines("linear")
    assert result["failures"] == {}
    for name, expected_us in EXPECTED_US.items():
        assert expected_us <= result["times_us"][name] <= 1.5 * expected_us + 20, name
