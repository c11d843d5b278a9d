"""A real Slurm for the tests: started once for each of its configurations, where it can run."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mandatory import unavailable
from tests.slurm import cluster as slurm
from tests.slurm.cluster import HAS_LUA, ROOT, Cluster, cluster

#: C programs of other tests, linked to libcuda.so.1 as a user's are
SOURCES = ("containers/programs/view.c", "system/programs/tenant.c")
FLAGS = ["-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", "tests/sim", "-iquote", "shim"]


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """A folder with the programs, readable by every user."""
    with tempfile.TemporaryDirectory(prefix="vgs-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for source in SOURCES:
            out = str(folder / Path(source).stem)
            libraries = ["vgpud/lib/sim/libcuda.so.1", "-ldl"]
            command = [os.environ.get("CC", "gcc"), *FLAGS, "-o", out, f"tests/{source}", *libraries]
            subprocess.run(command, cwd=ROOT, check=True)
        yield folder


@pytest.fixture(scope="session")
def plugin_cluster() -> Iterator[Cluster]:
    """With the SPANK plugin and job_submit.lua."""
    reason = slurm.missing()
    if reason:
        unavailable(f"no Slurm: {reason}")
    with cluster(["JobSubmitPlugins=lua"] if HAS_LUA else []) as made:
        yield made


@pytest.fixture
def site(plugin_cluster: Cluster) -> Iterator[Cluster]:
    """The same with nothing on it; a test may end its daemons."""
    yield plugin_cluster
    plugin_cluster.tidy()


@pytest.fixture(scope="session")
def script_cluster() -> Iterator[Cluster]:
    """With Prolog, TaskProlog and Epilog instead of the plugin."""
    reason = slurm.missing(plugin=False)
    if reason:
        unavailable(f"no Slurm: {reason}")
    with cluster(plugin=False) as made:
        yield made
