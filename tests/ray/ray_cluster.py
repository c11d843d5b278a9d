"""A Ray cluster on this machine: a head without devices, and nodes that each have a vgpud and simulated devices."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpud.cli.demo.private_system import ROOT, OwnSystem

PLUGINS = json.dumps([{"class": "vgpud.ray.plugin.VgpuPlugin"}])
#: of each node; a process of Ray is for one of them
CPUS = 16
OBJECT_STORE_BYTES = 80 << 20
#: Ray starts some processes for each node and for each worker, on two slow processors
PATIENCE_S = 180.0
QUIET = {"RAY_DEDUP_LOGS": "1", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}
#: an unused worker that Ray would start in advance only takes time from those that are wanted
PLAIN = {"RAY_enable_worker_prestart": "0", "RAY_prestart_worker_first_driver": "0"}


def missing() -> str:
    """Why no cluster can run here, "" when one can."""
    return "" if importlib.util.find_spec("ray") else "needs the package ray: pip install 'vgpud[ray]'"


@dataclass
class RayCluster:
    """Nodes by number: nodes[i] runs beside systems[i], and Ray's resource node<i> is there alone."""

    ray: Any
    cluster: Any
    systems: list[OwnSystem]
    nodes: list[Any]

    def slices(self, number: int) -> list[Any]:
        """The slices of a node's workers that have a device. Ray may keep a worker that had nothing to do: its slice is
        pending and reserves nothing."""
        with self.systems[number].client() as client:
            return [made for made in client.slices() if made.name.startswith("ray-") and made.devices]

    def uuids(self, number: int) -> list[str]:
        with self.systems[number].client() as client:
            return [device.uuid for device in client.devices()]

    def remove(self, number: int) -> None:
        """Kills a node's raylet, and what Ray kills with it. Its vgpud stays."""
        self.cluster.remove_node(self.nodes[number], allow_graceful=False)


@contextlib.contextmanager
def ray_cluster(
    folder: Path,
    count: int = 2,
    sim: Mapping[str, str] | None = None,
    config: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[RayCluster]:
    """A head and so many nodes; the calling process is connected as the driver. env: more for the nodes' processes."""
    devices = dict(sim or {"devices": "2", "memory_bytes": "4G"})
    import ray
    from ray.cluster_utils import Cluster

    with contextlib.ExitStack() as stack:
        for name, value in {**QUIET, **PLAIN}.items():
            os.environ.setdefault(name, value)
        systems = [stack.enter_context(OwnSystem(folder / f"n{number}", devices, config)) for number in range(count)]
        cluster = Cluster()
        stack.callback(cluster.shutdown)
        common = {"num_cpus": CPUS, "object_store_memory": OBJECT_STORE_BYTES}
        where = {"PYTHONPATH": str(ROOT), **QUIET, **PLAIN, **(env or {})}
        cluster.add_node(**common, num_gpus=0, include_dashboard=False, env_vars=where)
        nodes = []
        for number, system in enumerate(systems):
            own = {**where, "RAY_RUNTIME_ENV_PLUGINS": PLUGINS, "VGPU_HOST": system.host}
            place = {f"node{number}": 1.0}
            nodes.append(cluster.add_node(**common, num_gpus=int(devices["devices"]), resources=place, env_vars=own))
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        stack.callback(ray.shutdown)
        yield RayCluster(ray, cluster, systems, nodes)
