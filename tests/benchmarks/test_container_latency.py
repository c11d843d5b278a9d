"""The arithmetic of the latency benchmark, and that each kind of run is measured equally often. Without an engine."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest

from benchmarks import container_latency
from vgpud.cli.demo.private_system import PartError


class FakeDocker:
    """Ends every run at once with one code and remembers what it was asked."""

    def __init__(self, returncode: int = 0) -> None:
        self.returncode = returncode
        self.requests: list[tuple[str, bool]] = []

    def run(self, *arguments: str, runtime: str) -> subprocess.CompletedProcess[str]:
        self.requests.append((runtime, "VGPU=0.5" in arguments))
        return subprocess.CompletedProcess(arguments, self.returncode, "", "no capacity")


def test_differences_are_taken_within_a_round() -> None:
    """A machine that gets slower and slower: the medians' difference would be another."""
    taken = {
        "runc": [100.0, 200.0, 900.0],
        "vgpu_without_request": [101.0, 201.0, 901.0],
        "vgpu": [120.0, 230.0, 910.0],
    }
    figures = container_latency.figures_of(taken)
    assert figures["runc_median_ms"] == 200
    assert figures["vgpu_without_request_added_median_ms"] == 1
    assert figures["vgpu_added_median_ms"] == 20
    assert figures["vgpu_added_p25_ms"] == 10
    assert figures["vgpu_added_p75_ms"] == 30


def test_each_round_runs_each_kind_once_in_changing_order() -> None:
    docker: Any = FakeDocker()
    taken = container_latency.measure(docker, rounds=8, seed=1)
    assert {name: len(values) for name, values in taken.items()} == dict.fromkeys(container_latency.VARIANTS, 8)
    rounds = [tuple(docker.requests[i : i + 3]) for i in range(0, len(docker.requests), 3)]
    assert len(rounds) == 9, "the first round is not counted"
    assert all(set(one) == {("runc", False), ("vgpu", False), ("vgpu", True)} for one in rounds)
    assert len(set(rounds)) > 1


def test_a_run_that_fails_is_no_figure() -> None:
    docker: Any = FakeDocker(returncode=125)
    with pytest.raises(PartError, match="no capacity"):
        container_latency.measure(docker, rounds=2, seed=1)
