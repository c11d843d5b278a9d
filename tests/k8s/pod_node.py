"""A real node whose daemon and driver are the chart's DaemonSets (`daemon.mode: pod`): kubelet runs them from an image.

The node's folders that the chart names are this node's alone: containerd and kubelet see them in mounts of their own.
Pods have no network of their own here, so the driver's has the node's, and is given the API server's address.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from lightkube.types import PatchType

from tests.k8s import control_plane as plane
from tests.k8s.chart_image import chart_image
from tests.k8s.charts import template
from tests.k8s.control_plane import control_plane
from tests.k8s.node import READY_S, SYSTEM, RealNode
from tests.k8s.pods import build_programs
from tests.ports import find_free_ports
from vgpud import __version__
from vgpud.cli.demo.private_system import Part, wait_for

SETS = ("x-vgpud-daemon", "x-vgpud-driver")
DaemonSet = plane.kind_of("apps/v1", "DaemonSet")
#: overlays keep what the machine has there, and take what the pods' folders add
_MOUNTS = """
for folder in usr/lib etc var/cache; do
  mkdir -p $0/$folder.upper $0/$folder.work
  mount -t overlay overlay -o lowerdir=/$folder,upperdir=$0/$folder.upper,workdir=$0/$folder.work /$folder || exit 1
done
mkdir -p $1 $2
mount --bind $1 $2 || exit 1
touch $0/made
exec sleep infinity
"""


class PodNode(RealNode):
    """Use pod_node()."""

    _mounts: Part | None = None

    def start(self) -> None:
        """A clean node: nothing of vgpud is on it before the chart."""
        build_programs(self.pod_programs)
        (self.system.folder / "run").mkdir(parents=True)
        self.system.sim_dir = self.system.folder / "run" / "sim"
        self.system._start_device()
        self._start_world()
        self.start_containerd()
        image = chart_image(self.directory, __version__)
        self.ctr("image", "import", str(image))
        image.unlink()
        self.start_kubelet()
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        for one in yaml.safe_load_all(template(*self._settings(), namespace=SYSTEM)):
            if one:
                self.api.create(self._with_network(one))
        wait_for("the node", self._ready, READY_S)

    def _with_network(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if manifest["metadata"]["name"] == "x-vgpud-driver" and manifest["kind"] == "DaemonSet":
            spec = manifest["spec"]["template"]["spec"]
            spec["hostNetwork"] = True
            server = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(self.api.port)}
            spec["containers"][0]["env"] += [{"name": name, "value": value} for name, value in server.items()]
        return manifest

    def _settings(self) -> list[str]:
        folder = self.system.folder
        return [
            "daemon.mode=pod",
            f"daemon.runtimeDir={folder / 'run'}",
            f"daemon.stateDir={folder / 'state'}",
            f"daemon.metricsPort={find_free_ports(1)[0]}",
            "daemon.runtimeClassName=",
            'daemon.config=device = "sim"',
            f"cdiDir={self.cdi}",
            f"kubeletDir={self.directory / 'kubelet'}",
        ]

    def _start_world(self) -> None:
        folder = self.directory / "world"
        folder.mkdir()
        command = ["unshare", "-m", "--propagation", "slave", "sh", "-c", _MOUNTS, str(folder)]
        command += [str(self.directory / "kubelet"), "/var/lib/kubelet"]
        self._mounts = Part("world", command, self.env, self.directory)
        made = self._mounts
        wait_for("the node's mounts", lambda: self._alive(made) and (folder / "made").exists())
        self.world = ["nsenter", "-m", "-t", str(made.process.pid)]

    def _kubelet_world(self, root: Path) -> list[str]:
        return self.world

    def system_pods(self) -> dict[str, list[str]]:
        """DaemonSet -> names of its pods that are ready and not being deleted."""
        found: dict[str, list[str]] = {name: [] for name in SETS}
        for one in self.api.client().list(plane.Pod, namespace=SYSTEM):
            conditions = {c["type"]: c["status"] for c in one["status"].get("conditions", [])}
            if conditions.get("Ready") == "True" and not one["metadata"].get("deletionTimestamp"):
                found[one["metadata"]["ownerReferences"][0]["name"]].append(one["metadata"]["name"])
        return found

    def upgrade(self) -> None:
        """What `helm upgrade` does to the DaemonSets: another template of their pods."""
        patch = {"spec": {"template": {"metadata": {"annotations": {"upgraded": "yes"}}}}}
        for name in SETS:
            self.api.client().patch(DaemonSet, name, patch, namespace=SYSTEM, patch_type=PatchType.MERGE)

    def close(self) -> None:
        super().close()
        if self._mounts:
            self._mounts.stop()


@contextlib.contextmanager
def pod_node(sim: Mapping[str, str]) -> Iterator[PodNode]:
    """A control plane of its own with one such node."""
    directory = Path(tempfile.mkdtemp(prefix="vgn-"))
    with tempfile.TemporaryDirectory(prefix="vgp-") as name, control_plane(Path(name)) as api:
        made = PodNode(directory, api, sim)
        try:
            made.start()
            yield made
        finally:
            made.close()
            shutil.rmtree(directory, ignore_errors=True)
