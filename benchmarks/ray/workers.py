"""What the benchmark and the demo start in Ray: saturating actors in slices, or without one beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import vgpud.ray
from tests.ray import programs
from tests.ray.ray_cluster import PATIENCE_S, RayCluster
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem


def unfenced_options(gpus: float, system: OwnSystem) -> dict[str, Any]:
    """Options of a worker that Ray counts alike and nothing limits, on a node's simulated devices."""
    found = {"LD_LIBRARY_PATH": str(paths.sim_lib_dir()), "VGPU_SIM_DIR": str(system.sim_dir)}
    return {"num_gpus": gpus, "runtime_env": {"env_vars": found}}


def fenced_options(gpus: float, **size: Any) -> dict[str, Any]:
    return vgpud.ray.options(gpus, **size)


def start(nodes: RayCluster, number: int, options: dict[str, Any]) -> Any:
    """An actor on a node, with its program on its device; it computes from begin() on."""
    words = {**options, "resources": {f"node{number}": 0.001}, "num_cpus": 0.1}
    return nodes.ray.remote(programs.Tenant).options(**words).remote()


def get(nodes: RayCluster, refs: Sequence[Any]) -> list[Any]:
    return list(nodes.ray.get(list(refs), timeout=PATIENCE_S))
