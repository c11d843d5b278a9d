"""The driver, vgpud and kubelet killed again and again under pods whose programs run, while claims come and go.

In each round all three get SIGKILL, each at random moments of a short time, and are started again at once. 20 pods
hold claims and run programs that join their slices as a container's would: in the pod's cgroup, through the hook of the
CDI device and the shared socket. Afterwards: has a program ended or stood still, is each of their slices still the same
one, are there slices without a claim or claims with two, and how long were the ResourceSlices away after kubelet had
deleted them. Needs root, for cgroups.
"""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2

from benchmarks import harness, results
from benchmarks.kubernetes.node import Api, Claim, node, part
from benchmarks.kubernetes.prepare import quantile
from benchmarks.table import at_most, equal_to, judge
from tests.k8s.parts import Cluster
from vgpud.cli.demo.private_system import Part, PartError, wait_for
from vgpud.client import calls
from vgpud.k8s.core.claim_objects import pods_of
from vgpud.libraries import environment

DEVICES, STAYING, MILLI = 4, 20, 100
SIM = {"devices": str(DEVICES)}
GOAL_BACK_S = 5.0
#: a program that has completed nothing for so long was harmed: it coasts without a daemon
STILL_S = 5.0
CHURNS = 4
#: the kills of a round are within this time
ROUND_S = 0.6
PATIENCE_S = 60.0
_ENTER = 'echo 0 > "$0" && read go && exec "$@"'


class Pod:
    """A pod with one container, whose program is its first process. Raises PartError when vgpud refuses it."""

    def __init__(self, cluster: Cluster, claim: Claim, program: Path, top: Path) -> None:
        self.claim, self.uid = claim, claim["metadata"]["uid"]
        own, container = cluster.system, uuid.uuid4().hex * 2
        (pod,) = pods_of(claim)
        self.cgroups = [top / f"pod{pod}", top / f"pod{pod}" / container]
        for path in self.cgroups:
            path.mkdir()
        with own.client() as client:
            variables = environment.for_slice(
                dict(own.env), client.send(calls.node()), client.send(calls.get_slice(f"k-{self.uid}")), True
            )
        variables["VGPU_SOCKET"] = str(own.folder / "run" / "cdi" / "attach.sock")  # there the cgroup names the slice
        command = ["sh", "-c", _ENTER, str(self.cgroups[-1] / "cgroup.procs"), str(program)]
        command += ["--kernel-us", "200", "--burst", "5", "--gap-us", "50000", "--seconds", "100000"]
        command += ["--report-ms", "200"]
        self.part = Part(f"pod-{claim['metadata']['name']}", command, variables, own.folder, talk=True)
        pid = self.part.process.pid
        wait_for("a process in its cgroup", lambda: str(pid) in (self.cgroups[-1] / "cgroup.procs").read_text().split())
        said = call_create_hook(own.folder / "run", cluster.directory / container, container, f"k-{self.uid}", pid)
        if b"\nstatus ok\n" not in said:
            raise PartError(f"pod of claim {self.uid}: {said.decode()}")
        assert self.part.process.stdin
        self.part.process.stdin.write(b"go\n")
        self.part.process.stdin.flush()
        self.completed, self.moved_ns, self.longest_still_s = 0, time.monotonic_ns(), 0.0

    def poll(self) -> None:
        """Reads its reports: how long did its count stand still at most?"""
        for line in self.part.lines():
            if line.get("completed", 0) > self.completed:
                self.longest_still_s = max(self.longest_still_s, (line["time_ns"] - self.moved_ns) / 1e9)
                self.completed, self.moved_ns = line["completed"], line["time_ns"]

    def is_harmed(self) -> bool:
        self.poll()
        still_s = max(self.longest_still_s, (time.monotonic_ns() - self.moved_ns) / 1e9)
        return not self.part.running or still_s > STILL_S

    def stop(self) -> None:
        self.part.stop()
        for path in reversed(self.cgroups):
            wait_for("the end of a cgroup", lambda path=path: not (path / "cgroup.procs").read_text())  # type: ignore[misc]
            path.rmdir()


def call_create_hook(runtime: Path, bundle: Path, container: str, slice_name: str, pid: int) -> bytes:
    """What the createRuntime hook of the slice's CDI device asks vgpud, in the container's bundle; the answer."""
    bundle.mkdir()
    mounts = [{"source": str(runtime / "cdi"), "destination": "/run/vgpu"}]
    config = {"ociVersion": "1.0.2", "process": {"env": [f"VGPU_SLICE={slice_name}"]}, "mounts": mounts, "linux": {}}
    (bundle / "config.json").write_text(json.dumps(config))
    state = {"ociVersion": "1.0.2", "id": container, "status": "created", "pid": pid, "bundle": str(bundle)}
    body = json.dumps(state).encode()
    head = f"vgpu-runtime 1\nop started\nid {container}\nbundle {bundle}\nself /vgpu-runtime\nbody {len(body)}\n\n"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(60)
        sock.connect(str(runtime / "runtime.sock"))
        sock.sendall(head.encode() + body)
        sock.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: sock.recv(1 << 16), b""))


class KubeletProcess:
    """kubelet.py as a process, and what it is to do."""

    def __init__(self, cluster: Cluster, kubeconfig: Path) -> None:
        self.folder, self._own = cluster.kubelet.directory, cluster.system
        self._kubeconfig = kubeconfig
        self.part: Part | None = None
        self.started_ns = 0
        for name in ("wanted", "prepared", "ready"):
            (self.folder / name).mkdir()

    def start(self) -> None:
        command = [sys.executable, "-m", "benchmarks.kubernetes.kubelet", str(self.folder), str(self._kubeconfig)]
        self.started_ns = time.monotonic_ns()
        self.part = Part("kubelet", command, self._own.env, self._own.folder)

    def want(self, claim: Claim) -> str:
        uid = str(claim["metadata"]["uid"])
        new = self.folder / f"{uid}.new"
        new.write_text(json.dumps({"metadata": claim["metadata"]}, default=str))
        new.replace(self.folder / "wanted" / uid)
        return uid

    def release(self, uid: str) -> None:
        (self.folder / "wanted" / uid).unlink()

    def is_ready(self, uid: str) -> bool:
        return (self.folder / "ready" / uid).exists()

    def is_released(self, uid: str) -> bool:
        return not (self.folder / "prepared" / uid).exists()

    def deleted_ns(self) -> int:
        try:
            return int((self.folder / "deleted").read_text())
        except OSError:
            return 0


class Churn:
    """Claims that come and go, all the time, in some threads."""

    def __init__(self, api: Api, kubelet: KubeletProcess, seed: int) -> None:
        self._api, self._kubelet, self._rng = api, kubelet, random.Random(seed)
        self._stopped = threading.Event()
        self.waited_s: list[float] = []
        self.unfinished_claims: list[str] = []
        self._given_up = False
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(CHURNS)]

    def __enter__(self) -> Churn:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._stopped.set()
        self._given_up = any(error)
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        there: list[tuple[float, Claim]] = []
        while not self._stopped.is_set():
            claim = self._api.add(part(f"churn{number}", number % DEVICES, 20, 1024))
            number += CHURNS
            begin_s = time.monotonic()
            uid = self._kubelet.want(claim)
            self._wait(uid, self._kubelet.is_ready)
            self.waited_s.append(time.monotonic() - begin_s)
            there.append((time.monotonic() + self._rng.uniform(0, 3), claim))
            while there and there[0][0] < time.monotonic():
                self._end(there.pop(0)[1])
            self._stopped.wait(self._rng.uniform(0, 0.2))
        for _, claim in there:
            self._end(claim)

    def _wait(self, uid: str, done: Any) -> None:
        until_s = time.monotonic() + PATIENCE_S
        while not done(uid):
            if self._given_up or time.monotonic() > until_s:
                self.unfinished_claims.append(uid)
                return
            time.sleep(0.01)

    def _end(self, claim: Claim) -> None:
        uid = str(claim["metadata"]["uid"])
        self._kubelet.release(uid)
        self._wait(uid, self._kubelet.is_released)
        self._api.remove(claim)


class Watched:
    """When the pool of ResourceSlices was complete, looked at all the time by a thread."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self.complete_ns = 0  # last time that it was seen complete
        self.failures = 0  # of the API server to answer
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(0.02):
            begin_ns = time.monotonic_ns()
            try:
                if self._api.pool_is_complete():
                    self.complete_ns = begin_ns
            except httpx2.HTTPError:  # asked again; if it lasts, the pool counts as away
                self.failures += 1

    def wait_complete(self, after_ns: int) -> float:
        """Seconds from a moment until it was next seen complete. Raises PartError."""
        wait_for("the ResourceSlices", lambda: self.complete_ns > after_ns, PATIENCE_S)
        return (self.complete_ns - after_ns) / 1e9


def slices_by_claim(cluster: Cluster) -> dict[str, list[str]]:
    """Claim's uid -> uids of vgpud's slices for it."""
    found: dict[str, list[str]] = {}
    for one in cluster.slices().values():
        found.setdefault(one.claim.uid, []).append(one.uid)
    return found


class Killer:
    """Kills and starts again. Its threads live on: the kernel ends a part whose starting thread ends."""

    def __init__(self, cluster: Cluster, kubelet: KubeletProcess) -> None:
        self._cluster, self._kubelet = cluster, kubelet
        self._threads = ThreadPoolExecutor(3)
        self.kill_counts: Counter[str] = Counter()

    def round(self, rng: random.Random, kills_each: int) -> None:
        """Each at random moments; returns when all have been started."""
        kills = {"driver": self._driver, "vgpud": self._vgpud, "kubelet": self._kubelet_}
        moments = {name: [rng.uniform(0, ROUND_S) for _ in range(kills_each)] for name in kills}
        work = [self._threads.submit(self._at, moments[name], name, kill) for name, kill in kills.items()]
        for one in work:
            one.result()

    def _at(self, pauses_s: list[float], name: str, kill: Any) -> None:
        for pause_s in pauses_s:
            time.sleep(pause_s)
            kill()
            self.kill_counts[name] += 1

    def _driver(self) -> None:
        assert self._cluster.process
        self._cluster.process.kill()
        self._cluster.process.wait()
        self._cluster.start()

    def _vgpud(self) -> None:
        assert self._cluster.system.daemon
        self._cluster.system.daemon.kill()
        self._cluster.system.start_daemon()

    def _kubelet_(self) -> None:
        assert self._kubelet.part
        self._kubelet.part.kill()
        self._kubelet.start()


def measure(cluster: Cluster, api: Api, top: Path, rounds: int, kills: int, seed: int) -> dict[str, Any]:
    """All of it. Raises PartError when a part does not come back."""
    rng = random.Random(seed)
    program = harness.build("tenants/load.c")
    kubelet = KubeletProcess(cluster, api.kubeconfig)
    killer, pods = Killer(cluster, kubelet), []
    kubelet.start()
    cluster.start()
    with Watched(api) as watched:
        watched.wait_complete(0)
        claims = [api.add(part(f"stays{n}", n % DEVICES, MILLI, 1024, max_milli=500)) for n in range(STAYING)]
        for claim in claims:
            kubelet.want(claim)
        wait_for("the claims", lambda: all(kubelet.is_ready(claim["metadata"]["uid"]) for claim in claims))
        try:
            for claim in claims:
                pods.append(Pod(cluster, claim, program, top))
            wait_for("the programs", lambda: all(_moves(pod) for pod in pods), PATIENCE_S)
            return _rounds(cluster, api, kubelet, killer, watched, pods, rng, rounds, kills)
        finally:
            for pod in pods:
                pod.stop()
            if kubelet.part:
                kubelet.part.stop()


def _moves(pod: Pod) -> bool:
    pod.poll()
    return pod.completed > 0


def _rounds(
    cluster: Cluster,
    api: Api,
    kubelet: KubeletProcess,
    killer: Killer,
    watch: Watched,
    pods: list[Pod],
    rng: random.Random,
    rounds: int,
    kills: int,
) -> dict[str, Any]:
    before = slices_by_claim(cluster)
    ours = [pod.uid for pod in pods]
    back_s, lost, doubled = [], set(), set()
    with Churn(api, kubelet, rng.randrange(1 << 30)) as churn:
        for number in range(rounds):
            killer.round(rng, kills)
            wait_for("kubelet's start", lambda: kubelet.deleted_ns() > kubelet.started_ns, PATIENCE_S)
            back_s.append(watch.wait_complete(kubelet.deleted_ns()))
            found = slices_by_claim(cluster)
            lost |= {uid for uid in ours if found.get(uid) != before[uid]}
            doubled |= {uid for uid, slices in found.items() if len(slices) > 1}
            for pod in pods:
                pod.poll()
            if (number + 1) % 10 == 0:
                print(f"  {number + 1} rounds: ResourceSlices back within {max(back_s):.1f} s", flush=True)
            time.sleep(rng.uniform(0, 0.2))
    after = slices_by_claim(cluster)
    time.sleep(1.0)
    return {
        "killed": dict(killer.kill_counts),
        "pods": len(pods),
        "pods_harmed": sum(pod.is_harmed() for pod in pods),
        "longest_without_work_s": max(pod.longest_still_s for pod in pods),
        "slices_lost": len(lost | {uid for uid in ours if after.get(uid) != before[uid]}),
        "slices_doubled": len(doubled),
        "slices_left": len(after.keys() - set(ours)),
        "claims_come_and_gone": len(churn.waited_s),
        "claims_unfinished": len(churn.unfinished_claims),
        "claim_ready_s": {"p50": quantile(churn.waited_s, 50), "max": max(churn.waited_s)},
        "slices_back_s": {"p50": quantile(back_s, 50), "max": max(back_s)},
        "lists_without_answer": watch.failures,
        "raw": {"slices_back_s": back_s},
    }


def cgroup_top() -> Path:
    """A folder for pods' cgroups, as kubelet names them. Raises OSError where none can be made."""
    bases = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")
    base = next((base for base in bases if os.access(f"{base}/cgroup.procs", os.W_OK)), bases[-1])
    path = Path(base) / f"kubepods-{os.getpid()}"
    path.mkdir()
    return path


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed, 3 where no cgroup can be made."""
    made = harness.parser(__doc__)
    made.add_argument("--rounds", type=int, default=50, help="each kills all three (default: %(default)s)")
    made.add_argument("--kills", type=int, default=2, help="of each in a round (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="of the moments (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("pods are programs on the simulated device here: leave --real out")
    try:
        top = cgroup_top()
    except OSError as error:
        print(f"cannot measure here: no cgroup can be made ({error})")
        return 3
    try:
        with node(SIM, start=False) as (cluster, api):
            device, server = cluster.system.device_name(), api.name
            figures = measure(cluster, api, top, args.rounds, args.kills, args.seed)
    finally:
        subprocess.run(["find", str(top), "-depth", "-type", "d", "-delete"], check=False)
    raw = figures.pop("raw")
    print("  " + ", ".join(f"{name} {value}" for name, value in figures.items()))
    good = True
    for name in ("pods_harmed", "slices_lost", "slices_doubled", "slices_left", "claims_unfinished"):
        good &= judge(name.replace("_", " "), figures[name], equal_to(0))
    worst = figures["slices_back_s"]["max"]
    good &= judge("ResourceSlices back, s", worst, at_most(GOAL_BACK_S))
    zero = dict.fromkeys(("pods_harmed", "slices_lost", "slices_doubled", "slices_left", "claims_unfinished"), 0)
    path = results.write(
        "kubernetes_restarts",
        is_simulated=True,
        device=device,
        parameters={"rounds": args.rounds, "kills": args.kills, "seed": args.seed, "devices": DEVICES, "pods": STAYING},
        goals={**zero, "slices_back_s_max": GOAL_BACK_S},
        figures=figures | {"api_server": server},
        raw=raw,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
