"""The GPUs whose times the simulated device's libraries know, against those that vgpu predict knows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vgpud.predict import dry_device, hardware

TABLE = Path(__file__).resolve().parents[2] / "shim/simcuda/common/devices.c"
ROW = re.compile(r'\{"([^"]+)", (\d+), ([\d.]+), \{([^}]+)\}\}')
ROWS = ROW.findall(TABLE.read_text())


def test_every_device_of_a_dry_run_is_in_the_table() -> None:
    for device in dry_device.DEVICES.values():
        assert any(re.search(rf"\b{re.escape(name)}\b", device.title) for name, *_ in ROWS), device


@pytest.mark.parametrize(("name", "sm_count", "bandwidth", "flops"), ROWS, ids=[name for name, *_ in ROWS])
def test_both_tables_have_the_same_figures(name: str, sm_count: str, bandwidth: str, flops: str) -> None:
    gpu = hardware.find_gpu(f"NVIDIA {name}")
    _fp64, fp32, _tf32, half, *_ = (float(value) for value in flops.split(","))
    assert gpu.sm_count == int(sm_count)
    assert gpu.bandwidth_gb == pytest.approx(float(bandwidth), rel=0.06)  # of one with PCIe it may be that with SXM
    assert (gpu.fp32_tera, gpu.half_tera) == pytest.approx((fp32 / 1e3, half / 1e3), rel=0.01)
