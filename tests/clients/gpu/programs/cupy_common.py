"""CuPy with a device, and the memory that it sees."""

from __future__ import annotations

from typing import Any

from common import load, missing


def load_cupy() -> Any:
    """CuPy, or the program ends."""
    cupy = load("cupy")
    try:
        cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        missing(f"CuPy finds no CUDA device: {error}")
    return cupy


def total(cupy: Any) -> int:
    """The device's memory as CuPy says it, by both of its ways."""
    seen = int(cupy.cuda.runtime.memGetInfo()[1])
    assert seen == cupy.cuda.runtime.getDeviceProperties(0)["totalGlobalMem"], "CuPy's two totals differ"
    return seen
