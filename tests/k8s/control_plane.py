"""A real control plane (etcd, kube-apiserver, kube-scheduler, kube-controller-manager) of a folder of binaries, on
loopback.

The folder is named by KUBEBUILDER_ASSETS, the convention of Kubernetes' own envtest. Its programs are started in a
directory of the test's and ended by pid. Clients are known by tokens of a file.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import signal
import ssl
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from lightkube import ApiError, Client, KubeConfig
from lightkube.generic_resource import (
    GenericNamespacedResource,
    create_global_resource,
    create_namespaced_resource,
)
from lightkube.types import PatchType

from tests.ports import find_free_ports
from vgpud.k8s.shell import api_server

ROOT = Path(__file__).resolve().parents[2]
VARIABLE = "KUBEBUILDER_ASSETS"
PROGRAMS = ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager")
#: a control plane on a busy machine
START_S = 120.0
ADMIN = "admin-token"
#: kubelet's, which may speak for the node of that name
KUBELET, KUBELET_NODE = "kubelet-token", "n1"

_NAMESPACED = {"Pod", "ResourceClaim", "ResourceClaimTemplate", "ServiceAccount", "ConfigMap", "DaemonSet", "Service"}
_NAMESPACED |= {"Deployment", "Job", "Event", "ResourceQuota"}
_PLURALS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "DeviceClass": "deviceclasses",
}


@functools.cache
def kind_of(version: str, kind: str) -> Any:
    """lightkube's class for a kind: one in a process, so that the driver's own are used for those that it has."""
    group, _, number = version.rpartition("/")
    for known in (api_server.Claim, api_server.Event, api_server.Node, api_server.Slice):
        if (known._api_info.resource.group, known._api_info.resource.kind) == (group, kind):
            return known
    make = create_namespaced_resource if kind in _NAMESPACED else create_global_resource
    return make(group, number, kind, _PLURALS.get(kind, f"{kind.lower()}s"))


_DRA = "resource.k8s.io/v1"
ResourceSlice, ResourceClaim = kind_of(_DRA, "ResourceSlice"), kind_of(_DRA, "ResourceClaim")
Pod, Node, Namespace, Event = (kind_of("v1", kind) for kind in ("Pod", "Node", "Namespace", "Event"))


def missing(*programs: str) -> str:
    """Why no control plane can be started here, "" when one can."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return f"{VARIABLE} names no folder with {', '.join((*PROGRAMS, *programs))}"
    absent = [name for name in (*PROGRAMS, *programs) if not os.access(Path(folder) / name, os.X_OK)]
    return f"{folder} has no {', '.join(absent)}" if absent else ""


def find_kubectl() -> str:
    """Beside the other programs, or the machine's; "" where there is none."""
    return shutil.which("kubectl", path=f"{os.environ.get(VARIABLE, '')}:{os.environ.get('PATH', os.defpath)}") or ""


class ControlPlane:
    """Use control_plane()."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._programs = Path(os.environ[VARIABLE])
        self._running: list[subprocess.Popen[bytes]] = []
        self.port = find_free_ports(1)[0]
        self.url = f"https://127.0.0.1:{self.port}"
        self.kubeconfig = self.kubeconfig_for("admin", ADMIN)

    def kubeconfig_for(self, user: str, token: str) -> Path:
        path = self.directory / f"{user}.kubeconfig"
        cluster = {"server": self.url, "insecure-skip-tls-verify": True}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "x",
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        path.write_text(yaml.safe_dump(content))
        return path

    def client(self, token: str = ADMIN) -> Client:
        path = self.kubeconfig if token == ADMIN else self.kubeconfig_for("other", token)
        return Client(KubeConfig.from_file(path), trust_env=False)

    def start(self) -> None:
        self._start_storage()
        self._start_server()
        self._wait_for_server()
        common = (
            "--kubeconfig",
            str(self.kubeconfig),
            "--leader-elect=false",
            f"--cert-dir={self.directory / 'certs'}",
        )
        self.run("kube-scheduler", *common, f"--secure-port={find_free_ports(1)[0]}")
        keys = f"--service-account-private-key-file={self.directory / 'sa.key'}"
        root = f"--root-ca-file={self.directory / 'certs' / 'apiserver.crt'}"  # that pods are given
        self.run("kube-controller-manager", *common, f"--secure-port={find_free_ports(1)[0]}", keys, root)

    def _start_storage(self) -> None:
        client, peer = find_free_ports(2)
        self._etcd = f"http://127.0.0.1:{client}"
        own = ["--data-dir", str(self.directory / "etcd"), "--listen-client-urls", self._etcd]
        own += ["--advertise-client-urls", self._etcd, "--listen-peer-urls", f"http://127.0.0.1:{peer}"]
        self.run("etcd", *own, "--unsafe-no-fsync")

    def _start_server(self) -> None:
        key, tokens = self.directory / "sa.key", self.directory / "tokens.csv"
        subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
        users = [f'{ADMIN},admin,1,"system:masters"', f'{KUBELET},system:node:{KUBELET_NODE},2,"system:nodes"']
        tokens.write_text("\n".join(users) + "\n")
        self.run(
            "kube-apiserver",
            f"--etcd-servers={self._etcd}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            f"--cert-dir={self.directory / 'certs'}",
            f"--token-auth-file={tokens}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--allow-privileged=true",
        )

    def run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        """Starts one of the programs; its log lies in the directory."""
        with (self.directory / f"{program}.log").open("ab") as log:
            process = subprocess.Popen([self._programs / program, *arguments], stdout=log, stderr=log)
        self._running.append(process)
        return process

    def _wait_for_server(self) -> None:
        server, until_s = self._running[-1], time.monotonic() + START_S
        while True:
            try:
                self.client().get(Namespace, "default")
                return
            except Exception:  # refused, not ready, forbidden: whatever a server that starts says
                assert server.poll() is None and time.monotonic() < until_s, self.log("kube-apiserver")
                time.sleep(0.5)

    def log(self, program: str) -> str:
        return (self.directory / f"{program}.log").read_text()[-3000:]

    def stop(self) -> None:
        for process in reversed(self._running):
            process.send_signal(signal.SIGKILL)
            process.wait()

    # ---- what tests make ----

    def apply(self, text: str) -> None:
        """Creates the objects of a YAML text."""
        for given in yaml.safe_load_all(text):
            if given:
                self.create(given)

    def create(self, manifest: dict[str, Any], token: str = ADMIN) -> dict[str, Any]:
        kind = kind_of(manifest["apiVersion"], manifest["kind"])
        made = kind.from_dict(manifest)
        namespace = manifest["metadata"].get("namespace", "default")
        where = {"namespace": namespace} if issubclass(kind, GenericNamespacedResource) else {}
        return dict(self.client(token).create(made, **where))

    def remove(self, kind: Any, name: str) -> None:
        """At once, whatever still uses it."""
        where: dict[str, Any] = {"namespace": "default"} if issubclass(kind, GenericNamespacedResource) else {}
        with contextlib.suppress(ApiError):
            finalizers: dict[str, Any] = {"metadata": {"finalizers": None}}
            if kind is ResourceClaim:
                self.client().patch(kind, name, finalizers, patch_type=PatchType.MERGE, **where)
            self.client().delete(kind, name, grace_period=0, **where)

    def driver_token(self, account: str, node: str, namespace: str = "default", image: str = "none") -> str:
        """A token of a pod of this service account on a node, as kubelet gets it for the driver's pod."""
        name = f"driver-{time.monotonic_ns()}"
        spec: dict[str, Any] = {"serviceAccountName": account, "nodeName": node, "hostNetwork": True}
        spec["automountServiceAccountToken"] = False
        spec["containers"] = [{"name": "c", "image": image, "imagePullPolicy": "Never"}]
        metadata = {"name": name, "namespace": namespace}
        made = self.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        bound = {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": made["metadata"]["uid"]}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self._post(path, {"spec": {"audiences": [], "boundObjectRef": bound}})["status"]["token"])

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """As the administrator, for what is no object: lightkube has typed classes only."""
        headers = {"Authorization": f"Bearer {ADMIN}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), headers)  # noqa: S310 (https)
        context = ssl._create_unverified_context()  # noqa: S323 (a certificate of this test's)
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:  # noqa: S310
            return dict(json.load(answer))

    def add_node(self, name: str) -> None:
        """A node that is ready as far as the scheduler sees."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self.create(node)
        capacity = {"cpu": "64", "memory": "256Gi", "pods": "1000"}
        conditions = [{"type": "Ready", "status": "True", "reason": "Test", "message": "x"}]
        status = {"status": {"capacity": capacity, "allocatable": capacity, "conditions": conditions}}
        self.client().patch(Node.Status, name, status, patch_type=PatchType.MERGE)
        taints = {"spec": {"taints": None}}
        self.client().patch(Node, name, taints, patch_type=PatchType.MERGE)

    def claim(self, name: str) -> dict[str, Any]:
        return dict(self.client().get(ResourceClaim, name, namespace="default"))

    def allocated(self, name: str) -> list[dict[str, Any]]:
        """The results of a claim's allocation, [] before."""
        allocation = self.claim(name).get("status", {}).get("allocation") or {}
        return list(allocation.get("devices", {}).get("results", []))


@contextlib.contextmanager
def control_plane(directory: Path) -> Iterator[ControlPlane]:
    made = ControlPlane(directory)
    try:
        made.start()
        yield made
    finally:
        made.stop()
