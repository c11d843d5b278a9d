"""VGPU_SIM_STRICT reports what a program does wrong and what it does not give back, and nothing else."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable

import pytest

from .conftest import MakeDevice, MakeProgram

Strict = Callable[..., tuple[int, list[str]]]


@pytest.fixture
def strict(device: MakeDevice, program: MakeProgram) -> Strict:
    """Runs strict.c; its exit code, and what was reported, without addresses."""

    def do(case: str, setting: str) -> tuple[int, list[str]]:
        env = {**device().environment(), "VGPU_SIM_STRICT": setting}
        done = subprocess.run([program("strict"), case], env=env, capture_output=True, text=True, check=False)
        return done.returncode, [re.sub("0x[0-9a-f]+", "0x", line) for line in done.stderr.splitlines()]

    return do


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ("memset", "cuMemsetD8_v2: device memory 0x: used after it was freed"),
        ("copy", "cuMemcpyAsync: device memory 0x: used after it was freed"),
        ("pool", "cuMemcpyDtoDAsync_v2: device memory 0x: used after it was freed"),
        ("launch", "cuLaunchKernel: device memory 0x: an argument of a kernel, after it was freed"),
        ("twice", "cuMemFree_v2: device memory 0x: freed twice"),
        ("middle", "cuMemFree_v2: device memory 0x: freed from its middle"),
        (
            "beyond",
            "cuMemcpyDtoH_v2: device memory 0x: "
            "1048576 bytes from there go beyond the allocation of 1048576 bytes at 0x",
        ),
        ("stream", "cuStreamSynchronize: stream 0x: used after its end"),
        ("event", "cuEventQuery: event 0x: used after its end"),
        ("graph", "cuGraphLaunch: exec 0x: used after its end"),
        ("context", "cuCtxSetCurrent: context 0x: used after its end"),
        ("wrong_event", "cuEventRecord: event 0x: of another context than the stream"),
        ("wrong_function", "cuLaunchKernel: function 0x: of another context than the stream"),
    ],
)
def test_what_is_wrong_is_reported(strict: Strict, case: str, message: str) -> None:
    assert strict(case, "1") == (0, [f"vgpu-sim strict: {message}"])
    assert strict(case, "fail")[0] == 1


def test_a_program_that_does_nothing_wrong_hears_nothing(strict: Strict) -> None:
    assert strict("clean", "fail") == (0, [])


def test_what_is_not_given_back_is_reported_at_exit(strict: Strict) -> None:
    code, lines = strict("leak", "1")
    assert code == 0
    assert sorted(lines) == [
        f"vgpu-sim strict: at exit: {what}"
        for what in (
            "1 of context not given back: 0x",
            "1 of device memory not given back, 1048576 bytes: 0x",
            "1 of event not given back: 0x",
            "1 of exec not given back: 0x",
            "1 of memory of pools not given back, 1048576 bytes: 0x",
            "1 of module not given back: 0x",
            "1 of stream not given back: 0x",
            "2 of graph not given back: 0x and others",
        )
    ]
    assert strict("leak", "fail") == (1, lines)


def test_nothing_is_reported_unless_asked_for(strict: Strict) -> None:
    assert strict("leak", "") == (0, [])
    assert strict("stream", "0") == (0, [])
