"""Whole devices are interchangeable: their places change nothing of which job runs when."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgpud.simulate import clusters, readers, results
from vgpud.simulate.scenario import Scenario, run

TRACE = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "muri" / "muri_cluster400_job.csv"


@pytest.mark.parametrize("policy", ["2d-las(3250,7200)", "srtf", "fifo"])
def test_a_cluster_of_whole_devices_decides_as_if_they_were_only_counted(policy: str) -> None:
    """So no job stops whose device was not the one that was missing."""
    jobs, nodes = readers.read(TRACE), clusters.parse("8x8")
    counted, placed = (
        results.rows(run(jobs, nodes, Scenario(policy, placement=rule))) for rule in ("count", "best-fit")
    )
    assert placed == counted
