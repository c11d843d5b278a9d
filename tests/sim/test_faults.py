"""Faults that a test asks the simulated driver for, and its counts of calls (shim/simgpu/entries/fault.h)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import MakeDevice, MakeProgram, run

Said = dict[str, list[int]]
Faulty = Callable[..., Said]


@pytest.fixture
def faulty(device: MakeDevice, program: MakeProgram) -> Faulty:
    """Runs faulty.c with requests; the codes that it got, by call."""

    def do(**environment: str) -> Said:
        said: Said = {}
        for line in run(program("faulty"), device(), **environment).splitlines():
            name, code = line.split()
            said.setdefault(name, []).append(int(code))
        return said

    return do


@pytest.mark.parametrize(
    ("request_text", "changes"),
    [
        ("cuMemAlloc:2=2", {"alloc": [0, 2, 0], "free": [0, 1, 0]}),
        ("cuMemAlloc_v2:3=CUDA_ERROR_UNKNOWN", {"alloc": [0, 0, 999], "free": [0, 0, 1]}),
        ("cuMemFree:3=700", {"free": [0, 700, 0], "again": [1, 0, 1]}),  # it did nothing: the next one frees
        ("cuMemFree:*=700", {"free": [700, 700, 700], "again": [700, 700, 700]}),
        ("cuMemFree:2=4,cuMemAlloc:3=3", {"alloc": [0, 0, 3], "free": [0, 0, 1], "again": [4, 1, 1]}),
        ("cuMemAllocAsync:1=801", {"async": [801]}),
        ("*:5=999", {"alloc": [999, 0, 0], "again": [0, 1, 1]}),
        ("cuInit:2=999", {}),
    ],
)
def test_the_call_that_was_asked_for_fails(faulty: Faulty, request_text: str, changes: Said) -> None:
    usual = {"init": [0], "alloc": [0, 0, 0], "free": [0, 0, 0], "again": [1, 1, 1], "async": [0]}
    assert faulty(VGPU_SIM_FAIL=request_text) == {**usual, **changes}


def test_calls_are_counted_by_entry_point(faulty: Faulty, tmp_path: Path) -> None:
    faulty(VGPU_SIM_COUNT_CALLS=str(tmp_path / "calls"))
    counts = dict(line.split() for line in (tmp_path / "calls").read_text().splitlines())
    assert counts == {
        "cuInit": "1",
        "cuDeviceGet": "1",
        "cuDevicePrimaryCtxRetain": "1",
        "cuCtxSetCurrent": "1",
        "cuMemAlloc_v2": "3",
        "cuMemFree_v2": "6",
        "cuMemAllocAsync_ptsz": "1",
    }


@pytest.mark.parametrize("request_text", ["cuMemAlloc", "cuMemAlloc:0=2", "cuMemAlloc:1=NONSENSE", "cuNothing:1=2"])
def test_a_request_that_is_not_understood_ends_the_program(
    device: MakeDevice, program: MakeProgram, request_text: str
) -> None:
    environment = {**device().environment(), "VGPU_SIM_FAIL": request_text}
    done = subprocess.run([program("faulty")], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "VGPU_SIM_FAIL" in done.stderr
