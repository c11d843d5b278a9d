"""The nodes of a Slurm cluster, as `vgpu cluster run` publishes them on the console's machine for every user."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpud.cluster.shell import published

#: how long what was read is shown
KNOWN_S = 3.0
#: nodes on a page
NODES_MAX = 1024


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """`why`: it takes no jobs, "" = it does."""

    name: str
    devices: int
    free_milli: int
    jobs: int  # that run on it
    why: str


@dataclass(frozen=True, slots=True)
class ClusterView:
    """`is_fresh`: its controller decides at present."""

    partition: str
    nodes: list[ClusterNode]
    left_out: int  # nodes beyond NODES_MAX
    running: int
    waiting: int
    is_fresh: bool


class ClusterStatus:
    """Read now and then, whoever looks. `directory`: of the controller's heartbeat and status; None: there is none."""

    def __init__(self, directory: Path | None) -> None:
        self._directory = directory
        self._at_s = -KNOWN_S
        self._known: ClusterView | None = None
        self._lock = asyncio.Lock()

    async def look(self) -> ClusterView | None:
        """None: no controller has published anything here, or not for this version."""
        async with self._lock:
            if self._directory and time.monotonic() - self._at_s >= KNOWN_S:
                self._known = await asyncio.to_thread(_read, self._directory)
                self._at_s = time.monotonic()
            return self._known


def _read(directory: Path) -> ClusterView | None:
    try:
        return make_view(published.read(directory), is_fresh=published.fresh(directory, published.now_s()))
    except (published.NoControllerError, KeyError, TypeError, ValueError, AttributeError):
        return None


def make_view(status: dict[str, Any], *, is_fresh: bool) -> ClusterView:
    """Raises KeyError, TypeError, ValueError, AttributeError: it is another version's."""
    jobs = Counter(name for job in status["jobs"] if job["state"] in ("running", "stopping") for name in job["nodes"])
    unusable = status["unusable_nodes"]
    nodes = [
        ClusterNode(
            str(one["name"]),
            int(one["devices"]),
            int(one["free_milli"]),
            jobs[one["name"]],
            "" if one["devices_offered"] else "drained, down, or without devices for the queue",
        )
        for one in status["nodes"]
        if one["name"] not in unusable
    ]
    nodes += [ClusterNode(str(name), 0, 0, jobs[name], str(why)) for name, why in unusable.items()]
    nodes.sort(key=lambda node: node.name)
    queues = status["queues"]
    running, waiting = (sum(int(queue[name]) for queue in queues) for name in ("running", "waiting"))
    left_out = max(0, len(nodes) - NODES_MAX)
    return ClusterView(str(status["partition"]), nodes[:NODES_MAX], left_out, running, waiting, is_fresh)
