"""A Ray cluster on this machine: a head without devices, and nodes that each have a vgpud and simulated devices.

Whatever Ray starts has a mark in its environment, by which all of it is found and ended at the end.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

from vgpud.cli.demo.private_system import ROOT, OwnSystem
from vgpud.client import calls

PLUGINS = json.dumps([{"class": "vgpud.ray.plugin.VgpuPlugin"}])
#: of each node; a process of Ray is for one of them
CPUS = 4
OBJECT_STORE_BYTES = 80 << 20
#: for an answer of Ray, which starts some processes for each node and for each worker, on two slow processors
PATIENCE_S = 180.0
#: for processes of Ray to end by themselves when their node has gone
GRACE_S = 10.0
#: Ray gives a node 30 s to start, which no setting changes
TRIES = 3
MARK = "TEST_OF_RAY"
SETTINGS = {
    "RAY_DEDUP_LOGS": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    # an unused worker that Ray would start in advance only takes time from those that are wanted
    "RAY_enable_worker_prestart": "0",
    "RAY_prestart_worker_first_driver": "0",
    # workers compete with all else on the machine: by default they get what that leaves (15)
    "RAY_worker_niceness": "0",
    # a busy machine takes its time ...
    "RAY_worker_register_timeout_seconds": "300",
    "RAY_agent_register_timeout_ms": "300000",
    # ... and Ray is to end no worker because other programs fill the memory
    "RAY_memory_monitor_refresh_ms": "0",
}


def missing() -> str:
    """Why no cluster can run here, "" when one can."""
    return "" if importlib.util.find_spec("ray") else "needs the package ray: pip install 'vgpud[ray]'"


def processes(mark: str) -> list[int]:
    """The pids of all that Ray has started under this mark."""
    wanted, found = f"{MARK}={mark}".encode(), []
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            if process.name.isdigit() and wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
    return found


@dataclass
class RayCluster:
    """Nodes by number: nodes[i] runs beside systems[i], and Ray's resource node<i> is there alone."""

    ray: Any
    systems: list[OwnSystem]
    mark: str
    cluster: Any = None
    nodes: list[Any] = field(default_factory=list)

    def start(self, gpus: int, env: Mapping[str, str]) -> None:
        """The calling process is connected as the driver."""
        for left in reversed(range(TRIES)):
            try:
                self._add_nodes(gpus, env)
                break
            except Exception:  # Ray has no class for it
                self.stop()
                if not left:
                    raise
        self.ray.init(address=self.cluster.address, log_to_driver=False, logging_level="ERROR")

    def _add_nodes(self, gpus: int, env: Mapping[str, str]) -> None:
        from ray.cluster_utils import Cluster

        self.cluster, self.nodes = Cluster(), []
        common = {"num_cpus": CPUS, "object_store_memory": OBJECT_STORE_BYTES, "include_log_monitor": False}
        where = {"PYTHONPATH": str(ROOT), **env}
        self.cluster.add_node(**common, num_gpus=0, include_dashboard=False, no_monitor=True, env_vars=where)
        for number, system in enumerate(self.systems):
            own = {**where, "RAY_RUNTIME_ENV_PLUGINS": PLUGINS, "VGPU_HOST": system.host}
            place = {f"node{number}": 1.0}
            self.nodes.append(self.cluster.add_node(**common, num_gpus=gpus, resources=place, env_vars=own, wait=False))
        self.cluster.wait_for_nodes(PATIENCE_S)

    def slices(self, number: int) -> list[Any]:
        """The slices of a node's workers that have a device. Ray may keep a worker that had nothing to do: its slice is
        pending and reserves nothing."""
        with self.systems[number].client() as client:
            return [made for made in client.all(calls.slices()) if made.name.startswith("ray-") and made.devices]

    def wait_for_end_of_slices(self) -> None:
        """Of those with a device, on all nodes."""
        until_s = time.monotonic() + PATIENCE_S
        while left := [made.name for number in range(len(self.systems)) for made in self.slices(number)]:
            assert time.monotonic() < until_s, f"slices that do not end: {left}"
            time.sleep(0.2)

    def uuids(self, number: int) -> list[str]:
        with self.systems[number].client() as client:
            return [device.uuid for device in client.all(calls.devices())]

    def remove(self, number: int) -> None:
        """Kills a node's raylet, and what Ray kills with it. Its vgpud stays."""
        self.cluster.remove_node(self.nodes[number], allow_graceful=False)

    def stop(self) -> None:
        """Ends all of Ray: what has not ended by itself then, by pid. vgpud and the devices stay."""
        self.ray.shutdown()
        with contextlib.suppress(Exception):  # what it has not ended is ended below
            self.cluster.shutdown()
        until_s = time.monotonic() + GRACE_S
        while processes(self.mark) and time.monotonic() < until_s:
            time.sleep(0.2)
        for pid in processes(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def ray_cluster(
    folder: Path,
    count: int = 2,
    sim: Mapping[str, str] | None = None,
    config: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> Iterator[RayCluster]:
    """A head and so many nodes; the calling process is connected as the driver. folder: with a short name, since Ray's
    sockets are in there, too. env: more for the nodes' processes."""
    devices = dict(sim or {"devices": "2", "memory_bytes": "4G"})
    with contextlib.ExitStack() as stack:
        systems = [stack.enter_context(OwnSystem(folder / f"n{number}", devices, config)) for number in range(count)]
        variables = {**SETTINGS, "RAY_TMPDIR": str(folder), MARK: str(folder)}
        stack.enter_context(mock.patch.dict(os.environ, variables))
        import ray

        made = RayCluster(ray, systems, str(folder))
        stack.callback(made.stop)
        made.start(int(devices["devices"]), env or {})
        yield made
