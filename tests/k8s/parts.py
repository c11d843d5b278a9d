"""A node in one test: vgpud on simulated devices, the driver as a process, an API server, and a kubelet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import yaml

from tests.daemon.node import wait_until
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.k8s.core.names import DRIVER
from vgpud.k8s.kubelet_api import dra_v1_pb2 as dra
from vgpud.k8s.kubelet_api import dra_v1_pb2_grpc, registration_pb2, registration_pb2_grpc
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

NODE = "n1"
MIB = 1 << 20


class Kubelet:
    """What kubelet does with a driver's sockets. instance: of the driver."""

    def __init__(self, directory: Path, instance: str = "") -> None:
        self.directory = directory
        for name in ("plugins", "plugins_registry"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        infix = f"-{instance}" if instance else ""
        self.registration = directory / "plugins_registry" / f"{DRIVER}{infix}-reg.sock"
        self.endpoint = directory / "plugins" / DRIVER / f"dra{infix}.sock"

    def register(self) -> registration_pb2.PluginInfo:
        """As when the registration's socket appears: GetInfo, then the verdict."""
        wait_until(self.registration.exists, "the registration's socket")
        with grpc.insecure_channel(f"unix:{self.registration}") as channel:
            stub = registration_pb2_grpc.RegistrationStub(channel)
            info = stub.GetInfo(registration_pb2.InfoRequest(), timeout=20, wait_for_ready=True)
            stub.NotifyRegistrationStatus(registration_pb2.RegistrationStatus(plugin_registered=True), timeout=20)
        return info

    def prepare(self, *claims: dict[str, Any]) -> dict[str, dra.NodePrepareResourceResponse]:
        with grpc.insecure_channel(f"unix:{self.endpoint}") as channel:
            stub = dra_v1_pb2_grpc.DRAPluginStub(channel)
            request = dra.NodePrepareResourcesRequest(claims=[_grpc_claim(claim) for claim in claims])
            return dict(stub.NodePrepareResources(request, timeout=60, wait_for_ready=True).claims)

    def unprepare(self, *claims: dict[str, Any]) -> dict[str, dra.NodeUnprepareResourceResponse]:
        with grpc.insecure_channel(f"unix:{self.endpoint}") as channel:
            stub = dra_v1_pb2_grpc.DRAPluginStub(channel)
            request = dra.NodeUnprepareResourcesRequest(claims=[_grpc_claim(claim) for claim in claims])
            return dict(stub.NodeUnprepareResources(request, timeout=60, wait_for_ready=True).claims)


def _grpc_claim(claim: dict[str, Any]) -> dra.Claim:
    metadata = claim["metadata"]
    return dra.Claim(namespace=metadata["namespace"], uid=metadata["uid"], name=metadata["name"])


def allocated(
    name: str,
    *devices: tuple[str, dict[str, str]],
    pods: Sequence[str] = (),
    config: Sequence[dict[str, Any]] = (),
    **fields: Any,
) -> dict[str, Any]:
    """A claim as the scheduler leaves it. devices: (device, consumed capacity); an empty one consumes nothing."""
    results = []
    for number, (device, consumed) in enumerate(devices):
        one: dict[str, Any] = {"request": f"r{number}", "driver": DRIVER, "pool": NODE, "device": device}
        if consumed:
            full = {"slices": "1", "smMax": "0", "memoryMax": "0"} | consumed
            one |= {"shareID": str(uuid.uuid4()), "consumedCapacity": full}
        results.append(one | fields)
    configs = [{"source": "FromClaim", "opaque": {"driver": DRIVER, "parameters": one}} for one in config]
    allocation = {"devices": {"results": results, "config": configs}}
    reserved = [{"resource": "pods", "name": "p", "uid": pod} for pod in pods]
    metadata = {"name": name, "namespace": "team", "uid": str(uuid.uuid4())}
    return {"metadata": metadata, "spec": {}, "status": {"allocation": allocation, "reservedFor": reserved}}


def kubeconfig(directory: Path, server: str) -> Path:
    """A file by which clients find a server that asks no client who it is."""
    path = directory / "kubeconfig"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "x",
        # else all certificates of the machine are read, which a pod's account does not do
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    }
    path.write_text(yaml.safe_dump(content))
    return path


class Cluster:
    """All of it. Start the driver with start(). python: the interpreter that the driver has."""

    def __init__(self, directory: Path, system: OwnSystem, kubeconfig: Path, python: str = sys.executable) -> None:
        self.directory, self.system, self._config, self._python = directory, system, kubeconfig, python
        self._channel = grpc.insecure_channel(system.host)
        self.nodes, self._slices = stubs.NodeServiceStub(self._channel), stubs.SliceServiceStub(self._channel)
        self._claims = stubs.ClaimServiceStub(self._channel)
        self.kubelet = Kubelet(directory / "kubelet")
        self.log = directory / "driver.log"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        command = [self._python, "-m", "vgpud.k8s", "--node", NODE, "--kubelet-dir", str(self.kubelet.directory)]
        command += ["--socket", self.system.host.removeprefix("unix://"), "--kubeconfig", str(self._config), *options]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=dict(os.environ))

    def close(self) -> None:
        if self.process:
            self.stop(signal.SIGKILL)
        self._channel.close()

    def stop(self, number: int = signal.SIGTERM) -> int:
        assert self.process
        self.process.send_signal(number)
        code = self.process.wait(30)
        self.process = None
        return code

    def slices(self) -> dict[str, pb.Slice]:
        return {one.name: one for one in self._slices.ListSlices(pb.ListSlicesRequest()).slices}

    def publication(self) -> pb.Publication:
        """What vgpud has been told."""
        return self._claims.GetPublication(pb.GetPublicationRequest(), wait_for_ready=True).publication
