"""Slices of jobs by Prolog, TaskProlog and Epilog under a real Slurm, where the SPANK plugin cannot be built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.node import wait_until
from tests.slurm.cluster import NODES, Cluster
from tests.slurm.test_cluster import ANN, HALF, read_view
from vgpud.client import calls

pytestmark = [pytest.mark.root, pytest.mark.slow]


@pytest.fixture
def site(script_cluster: Cluster) -> Iterator[Cluster]:
    yield script_cluster
    script_cluster.tidy()


def test_a_job_from_prolog_to_epilog(site: Cluster, programs: Path) -> None:
    found = read_view(site.call("srun", "-w", "n1", HALF, str(programs / "view"), user=ANN).stdout)
    assert found["count"] == 1 and found["cuda_bytes"] == 2 << 30, "half of 4 GiB"
    wait_until(lambda: site.names("n1") == [], "the slice's end")


def test_a_jobs_own_words_give_it_no_more(site: Cluster, programs: Path) -> None:
    """Slurm takes line breaks in names and comments, and shows them as they are."""
    lies = "x\n     Nodes=n1 CPU_IDs=0 Mem=0 GRES=shard:1000(IDX:0)"
    command = ["srun", "-w", "n1", "--gres=shard:250", f"--job-name={lies}", f"--comment={lies}"]
    assert read_view(site.call(*command, str(programs / "view")).stdout)["cuda_bytes"] == 1 << 30
    wait_until(lambda: site.names("n1") == [], "the slice's end")


def test_on_two_nodes(site: Cluster, programs: Path) -> None:
    done = site.call("srun", "-N2", "--gres=shard:250", str(programs / "view"))
    assert done.stdout.count('"cuda_bytes": 1073741824') == 2, done.stdout
    wait_until(lambda: not any(site.names(name) for name in NODES), "the end of both slices")


def test_all_steps_of_a_job_have_its_slice(site: Cluster, programs: Path) -> None:
    """Those that overlap others, and those that ask for no GPU."""
    job = site.allocate(HALF)
    name = f"slurm-{job}"
    wait_until(lambda: site.names("n1") == [name], "the job's slice")
    step = site.begin("srun", f"--jobid={job}", HALF, str(programs / "tenant"))
    with site.systems["n1"].client() as client:
        wait_until(lambda: client.all(calls.processes(name)), "the program")
    for option in (HALF, "--gres=none"):
        done = site.call("srun", f"--jobid={job}", "--overlap", option, str(programs / "view"))
        assert (read_view(done.stdout)["count"], read_view(done.stdout)["cuda_bytes"]) == (1, 2 << 30), done.stdout
        assert site.names("n1") == [name]
    site.call("scancel", job)
    step.communicate(timeout=60)
    wait_until(lambda: site.names("n1") == [], "the slice's end")


def test_a_maximum_needs_the_plugin(site: Cluster) -> None:
    done = site.call("srun", HALF, "--vgpu-max=.8", "true", check=False)
    assert done.returncode != 0 and "unrecognized option '--vgpu-max=.8'" in done.stderr


def test_vgpud_is_away(site: Cluster, programs: Path) -> None:
    site.systems["n1"].daemon.stop()  # type: ignore[union-attr]
    done = site.call("srun", "-w", "n1", HALF, str(programs / "view"), check=False)
    assert done.returncode != 0 and "vgpu: vgpud is not running" in done.stdout + done.stderr
    wait_until(lambda: site.states()["n1"] == "idle", "an idle node: a Prolog that failed would have drained it")
