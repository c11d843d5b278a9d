"""A node for the benchmarks of Kubernetes: a real vgpud on simulated devices, the driver as a process, an API server.

The API server is a real one (kube-apiserver and etcd of the folder KUBEBUILDER_ASSETS), or the tests' fake where there
is none. No scheduler runs: claims are written as kube-scheduler leaves them.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import httpx2
from lightkube import ApiError, Client, KubeConfig
from lightkube.types import PatchType

from benchmarks import harness
from tests.k8s import control_plane as plane
from tests.k8s.fake_api import FakeApi
from tests.k8s.parts import NODE, Cluster, allocated, kubeconfig
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.k8s.kubelet_api import dra_v1_pb2 as dra
from vgpud.k8s.kubelet_api import dra_v1_pb2_grpc

NAMESPACE = "team"
REAL, FAKE = "kube-apiserver", "the tests' fake API server"
Claim = dict[str, Any]


class Api(ABC):
    """What a benchmark does with an API server."""

    name: str
    kubeconfig: Path

    @abstractmethod
    def add_node(self, name: str) -> None: ...

    @abstractmethod
    def add(self, claim: Claim) -> Claim:
        """Stores an allocated claim and returns it with its uid."""

    @abstractmethod
    def remove(self, claim: Claim) -> None: ...

    @abstractmethod
    def slices(self) -> list[dict[str, Any]]:
        """All ResourceSlices."""

    @abstractmethod
    def remove_slice(self, name: str) -> None: ...

    @abstractmethod
    def memory_bytes(self) -> dict[str, int]:
        """Resident memory of its processes, by name."""

    def pids(self) -> list[int]:
        """Its processes, where it has any of its own."""
        return []

    def pool_is_complete(self) -> bool:
        """Whether all of one node's ResourceSlices of one generation are there, as a scheduler asks."""
        pools = [one["spec"]["pool"] for one in self.slices()]
        return bool(pools) and all(pool == pools[0] for pool in pools) and len(pools) == pools[0]["resourceSliceCount"]


class Fake(Api):
    """The tests' API server, in a thread of this process."""

    name = FAKE

    def __init__(self, folder: Path, server: FakeApi) -> None:
        self.server = server
        self.kubeconfig = kubeconfig(folder, server.url)

    def add_node(self, name: str) -> None:
        self.server.add_node(name)

    def add(self, claim: Claim) -> Claim:
        self.server.put(self._path(claim), claim)
        return claim

    def remove(self, claim: Claim) -> None:
        self.server.remove(self._path(claim))

    def slices(self) -> list[dict[str, Any]]:
        return self.server.slices()

    def remove_slice(self, name: str) -> None:
        self.server.remove(f"/apis/resource.k8s.io/v1/resourceslices/{name}")

    def memory_bytes(self) -> dict[str, int]:
        return {}

    def _path(self, claim: Claim) -> str:
        return self.server.claim_path(claim["metadata"]["namespace"], claim["metadata"]["name"])


class Server(plane.ControlPlane):
    """etcd and kube-apiserver alone."""

    def start(self) -> None:
        self._start_storage()
        self._start_server()
        self._wait_for_server()


class Real(Api):
    """kube-apiserver, as its administrator."""

    name = REAL

    def __init__(self, server: Server) -> None:
        self.server = server
        self.kubeconfig = server.kubeconfig
        config = KubeConfig.from_file(server.kubeconfig)
        self.client = Client(config, trust_env=False, timeout=httpx2.Timeout(30))
        self.lister = Client(config, trust_env=False, timeout=httpx2.Timeout(2))
        self.server.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})

    def add_node(self, name: str) -> None:
        self.client.create(plane.Node.from_dict({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}))

    def add(self, claim: Claim) -> Claim:
        names = [one["request"] for one in claim["status"]["allocation"]["devices"]["results"]]
        requests = [{"name": name, "exactly": {"deviceClassName": "vgpu", "count": 1}} for name in names]
        metadata = {"name": claim["metadata"]["name"], "namespace": NAMESPACE}
        given = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}
        self.client.create(plane.ResourceClaim.from_dict(given | {"spec": {"devices": {"requests": requests}}}))
        status = {"status": claim["status"]}
        kind = plane.ResourceClaim.Status
        return dict(self.client.patch(kind, metadata["name"], status, namespace=NAMESPACE, patch_type=PatchType.MERGE))

    def remove(self, claim: Claim) -> None:
        name = claim["metadata"]["name"]
        status: dict[str, Any] = {"status": {"reservedFor": None, "allocation": None, "devices": None}}
        kind = plane.ResourceClaim.Status
        self.client.patch(kind, name, status, namespace=NAMESPACE, patch_type=PatchType.MERGE)
        self.client.delete(plane.ResourceClaim, name, namespace=NAMESPACE)

    def slices(self) -> list[dict[str, Any]]:
        return [dict(one) for one in self.lister.list(plane.ResourceSlice)]

    def remove_slice(self, name: str) -> None:
        try:
            self.client.delete(plane.ResourceSlice, name)
        except ApiError as error:
            if error.response.status_code != 404:
                raise

    def memory_bytes(self) -> dict[str, int]:
        names = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in self.pids()}
        return {name: resident_bytes(pid) for pid, name in names.items()}

    def pids(self) -> list[int]:
        return [one.pid for one in self.server._running]


@contextmanager
def api_server(folder: Path) -> Iterator[Api]:
    """A real one where its programs are, else the fake."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # what was started is stopped
    if plane.missing():
        with FakeApi() as fake:
            yield Fake(folder, fake)
        return
    server = Server(folder)
    try:
        server.start()
        yield Real(server)
    finally:
        server.stop()


def resident_bytes(pid: int, what: str = "Rss") -> int:
    """Memory of a process: Rss, or Pss, in which a page shared by n processes counts as 1/n."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{what}:"):
            return int(line.split()[1]) << 10
    raise ValueError(f"no {what} in /proc/{pid}/smaps_rollup")


class Kubelet:
    """The calls of kubelet, over one connection, as it keeps it."""

    def __init__(self, endpoint: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{endpoint}")
        self._stub = dra_v1_pb2_grpc.DRAPluginStub(self._channel)

    def prepare(self, *claims: Claim) -> str:
        """Returns the first error, or ""."""
        request = dra.NodePrepareResourcesRequest(claims=[to_kubelet(claim) for claim in claims])
        answers = self._stub.NodePrepareResources(request, timeout=45, wait_for_ready=True).claims.values()
        return next((answer.error for answer in answers if answer.error), "")

    def unprepare(self, *claims: Claim) -> str:
        """Returns the first error, or ""."""
        request = dra.NodeUnprepareResourcesRequest(claims=[to_kubelet(claim) for claim in claims])
        answers = self._stub.NodeUnprepareResources(request, timeout=45, wait_for_ready=True).claims.values()
        return next((answer.error for answer in answers if answer.error), "")

    def close(self) -> None:
        self._channel.close()


def to_kubelet(claim: Claim) -> dra.Claim:
    """The claim as kubelet names it."""
    metadata = claim["metadata"]
    return dra.Claim(namespace=metadata["namespace"], uid=metadata["uid"], name=metadata["name"])


def part(name: str, device: int, milli: int, memory_mib: int, pod: str = "", max_milli: int = 0) -> Claim:
    """A claim for a part of one GPU."""
    amounts = {"sm": str(milli), "memory": f"{memory_mib}Mi", "smMax": str(max_milli)}
    return allocated(name, (f"gpu-{device}", amounts), pods=(pod or str(uuid.uuid4()),))


@contextmanager
def node(
    sim_config: Mapping[str, str],
    lengths_us: Sequence[int] = (200,),
    start: bool = True,
    python: str = sys.executable,
) -> Iterator[tuple[Cluster, Api]]:
    """A node whose devices are all Kubernetes', with the driver started and registered, or (start=False) not yet.
    python: the driver's interpreter."""
    with tempfile.TemporaryDirectory(prefix="vgk-") as name:
        folder = Path(name)
        config = [f'cdi_dir = "{folder / "cdi"}"', "[devices]", 'kubernetes = ["all"]']
        own = OwnSystem(folder / "s", sim_config, config)
        own.env["VGPU_SIM_KERNELS"] = str(harness.spin_model(folder, lengths_us))
        with own, api_server(folder) as api:
            api.add_node(NODE)
            made = Cluster(folder, own, api.kubeconfig, python)
            try:
                if start:
                    made.start()
                    made.kubelet.register()
                yield made, api
            finally:
                made.close()
