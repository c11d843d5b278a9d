"""Shards on several GPUs, and whole GPUs beside shards: what Slurm 22.05 cannot do or does not keep to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.node import wait_until
from tests.slurm import cluster as slurm
from tests.slurm.cluster import Cluster, cluster
from tests.slurm.test_cluster import end, running, slice_of

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(slurm.missing() != "" or slurm.version() < (23, 11), reason="needs Slurm 23.11 or newer"),
]


@pytest.fixture(scope="module")
def several_cluster() -> Iterator[Cluster]:
    with cluster(["SelectTypeParameters=CR_CPU,MULTIPLE_SHARING_GRES_PJ"]) as made:
        yield made


@pytest.fixture
def site(several_cluster: Cluster) -> Iterator[Cluster]:
    yield several_cluster
    several_cluster.tidy()


def minima(site: Cluster, name: str) -> dict[int, int]:
    """Of a slice, by number of the device."""
    return {device.device_index: device.min_milli for device in slice_of(site, "n1", name).devices}


def test_two_gpus_and_a_part(site: Cluster, programs: Path) -> None:
    """On GPUs that were empty; another job has what is left."""
    big, one = running(site, "--gres=shard:1500", str(programs / "tenant"))
    small, two = running(site, "--gres=shard:500", str(programs / "tenant"))
    assert minima(site, one) == {0: 1000, 1: 500} and minima(site, two) == {1: 500}
    end(site, big, one)
    end(site, small, two)


def test_a_part_that_is_spread(site: Cluster, programs: Path) -> None:
    """Where no GPU has it free, Slurm takes some of each."""
    first, one = running(site, "--gres=shard:400", str(programs / "tenant"))
    second, two = running(site, "--gres=shard:700", str(programs / "tenant"))
    done = site.call("srun", "-w", "n1", "--gres=shard:800", "true", check=False)
    assert done.returncode != 0 and "Slurm has spread shard:800 over 2 GPUs" in done.stderr, done.stderr
    end(site, first, one)
    end(site, second, two)


def test_a_whole_gpu_is_none_with_shards_in_use(site: Cluster, programs: Path) -> None:
    """Without job_submit.lua, and after one of two jobs on it has ended."""
    first, one = running(site, "--gres=shard:250", str(programs / "tenant"))
    second, two = running(site, "--gres=shard:250", str(programs / "tenant"))
    end(site, first, one)
    whole, three = running(site, "--gres=gpu:1", str(programs / "tenant"))
    assert minima(site, two) == {0: 250} and minima(site, three) == {1: 1000}
    both = site.begin("srun", "-w", "n1", "--gres=gpu:1", "true")
    wait_until(lambda: site.call("squeue", "-h", "--states=PENDING", "-o", "%r").stdout == "Resources\n", "its wait")
    end(site, second, two)
    assert both.wait(timeout=60) == 0
    end(site, whole, three)
