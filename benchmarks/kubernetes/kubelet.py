"""A kubelet that can be killed: `python -m benchmarks.kubernetes.kubelet FOLDER KUBECONFIG`.

It does with the driver what kubelet does. When it starts, it deletes its node's ResourceSlices; it registers a driver
whose socket appears, or appears again; it prepares the claims of its pods, after its own start all of them again, and
tries again what failed; it releases those of pods that are gone. Its checkpoint is the folder `prepared`: a file, named
by the claim's uid, for each that it has prepared. The pods are the files of the folder `wanted`, with their claims.
`deleted` has the time (CLOCK_MONOTONIC, ns) at which it had last deleted the ResourceSlices.
"""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import grpc
from lightkube import ApiError, Client, KubeConfig

from benchmarks.kubernetes.node import Claim, Kubelet
from tests.k8s import control_plane as plane
from tests.k8s.parts import NODE
from vgpud.k8s.core.names import DRIVER
from vgpud.k8s.kubelet_api import registration_pb2, registration_pb2_grpc

LOOP_S = 0.02
#: kubelet waits longer; a benchmark would measure its patience
AGAIN_S = 0.5


class Pods:
    """The claims of the node's pods. folder: with `wanted` and `prepared`."""

    def __init__(self, folder: Path, kubelet: Kubelet) -> None:
        self._wanted, self._prepared = folder / "wanted", folder / "prepared"
        self._kubelet = kubelet
        self._known: set[str] = set()  # prepared since this kubelet started
        self._running: dict[str, Future[None]] = {}
        self._not_before_s: dict[str, float] = {}
        self._threads = ThreadPoolExecutor(16)

    def step(self) -> None:
        """Begins what is to be done."""
        self._running = {uid: work for uid, work in self._running.items() if not work.done()}
        wanted = {path.name: path for path in self._wanted.iterdir()}
        old = {path.name: path for path in self._prepared.iterdir()}
        for uid in wanted.keys() | old.keys():
            if uid in self._running or time.monotonic() < self._not_before_s.get(uid, 0.0):
                continue
            if uid in wanted and uid not in self._known:
                self._running[uid] = self._threads.submit(self._prepare, uid, wanted[uid].read_text())
            elif uid not in wanted:
                self._running[uid] = self._threads.submit(self._unprepare, uid, old[uid].read_text())

    def _prepare(self, uid: str, text: str) -> None:
        (self._prepared / uid).write_text(text)  # before the call, as kubelet's checkpoint
        if not self._failed(uid, self._ask(self._kubelet.prepare, json.loads(text))):
            self._known.add(uid)
            (self._prepared.parent / "ready" / uid).touch()

    def _unprepare(self, uid: str, text: str) -> None:
        if not self._failed(uid, self._ask(self._kubelet.unprepare, json.loads(text))):
            self._known.discard(uid)
            (self._prepared.parent / "ready" / uid).unlink(missing_ok=True)
            (self._prepared / uid).unlink()

    @staticmethod
    def _ask(call: object, claim: Claim) -> str:
        try:
            return str(call(claim))  # type: ignore[operator]
        except grpc.RpcError as error:
            return str(error)

    def _failed(self, uid: str, error: str) -> bool:
        if error:
            print(f"{uid}: {error}", flush=True)
            self._not_before_s[uid] = time.monotonic() + AGAIN_S
        return bool(error)


def delete_slices(client: Client) -> None:
    """Those of this node."""
    for one in client.list(plane.ResourceSlice, fields={"spec.nodeName": NODE}):
        try:
            client.delete(plane.ResourceSlice, one["metadata"]["name"])
        except ApiError as error:
            if error.response.status_code != 404:
                raise


def register(socket: Path) -> bool:
    """Whether the driver behind a registration's socket has answered."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        stub = registration_pb2_grpc.RegistrationStub(channel)
        try:
            stub.GetInfo(registration_pb2.InfoRequest(), timeout=1)
            stub.NotifyRegistrationStatus(registration_pb2.RegistrationStatus(plugin_registered=True), timeout=1)
        except grpc.RpcError:
            return False
    return True


def main() -> None:
    folder, config = Path(sys.argv[1]), Path(sys.argv[2])
    client = Client(KubeConfig.from_file(config), trust_env=False)
    delete_slices(client)
    (folder / "deleted.new").write_text(str(time.monotonic_ns()))
    (folder / "deleted.new").replace(folder / "deleted")
    pods = Pods(folder, Kubelet(folder / "plugins" / DRIVER / "dra.sock"))
    socket = folder / "plugins_registry" / f"{DRIVER}-reg.sock"
    registered = 0
    while True:
        inode = socket.stat().st_ino if socket.exists() else 0
        if inode != registered:
            registered = inode if inode and register(socket) else 0
        if registered:
            pods.step()
        time.sleep(LOOP_S)


if __name__ == "__main__":
    main()
