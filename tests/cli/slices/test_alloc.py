"""`vgpu alloc`: prints the name of a one-time CDI device, and nothing else on stdout."""

from __future__ import annotations

from typing import Any

import pytest


def test_stdout_is_the_devices_name(vgpu: Any, daemon: Any) -> None:
    made = vgpu("alloc", "0.35", "--mem", "2G", host=daemon.host)
    assert made.code == 0, made
    request = daemon.requests[-1]
    assert made.stdout == f"vgpu.dev/gpu={next(iter(daemon.slices))}\n"
    assert "(device 0: SM time 0.35, memory 2GiB)" in made.stderr
    assert (request.cdi_device, request.ephemeral, request.spec.gpus_milli) == (True, True, 350)
    assert request.spec.mem_min_bytes == request.spec.mem_max_bytes == 2 << 30


def test_as_data_and_as_name(vgpu: Any, daemon: Any) -> None:
    data = vgpu("alloc", "0.5", "--name", "mine", "--max", "1", "-o", "json", host=daemon.host).json
    assert (data["schema_version"], data["device"]) == (1, "vgpu.dev/gpu=mine")
    assert data["slice"]["name"] == "mine"
    named = vgpu("alloc", "0.25", "-o", "name", host=daemon.host)
    assert named.stdout.startswith("vgpu.dev/gpu=")
    assert named.stderr == ""


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["abc"], 2, "abc"),
        (["0"], 2, "0"),
        (["0.5", "--min", "0.6", "--max", "0.55"], 2, "lower --min or raise --max"),
        (["3"], 2, "3 GPUs do not fit"),
        ([], 2, "GPUS"),
    ],
)
def test_what_is_invalid(vgpu: Any, daemon: Any, words: list[str], code: int, message: str) -> None:
    result = vgpu("alloc", *words, host=daemon.host)
    assert result.code == code, result
    assert message in result.stderr
    assert result.stdout == ""


def test_a_daemon_without_cdi_leaves_no_slice_behind(vgpu: Any, daemon: Any) -> None:
    daemon.makes_cdi = False
    result = vgpu("alloc", "0.35", host=daemon.host)
    assert result.code == 1
    assert "creates no CDI devices" in result.stderr
    assert daemon.slices == {}


def test_no_capacity_is_exit_6(vgpu: Any, daemon: Any) -> None:
    vgpu("alloc", "0.8", host=daemon.host)
    assert vgpu("alloc", "0.35", host=daemon.host).code == 6
