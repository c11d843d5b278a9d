"""A real Kubernetes node on this machine: containerd, kubelet, vgpud on a simulated device and its driver, as root.

All directories lie below one, ports are free ones, and pods have cgroups below a root of their own. close() ends pods,
processes, mounts and cgroups, whatever state a failed test left them in. Pods share the machine's network, so no CNI
plugin is needed; their image is the base image of the container tests.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from lightkube import ApiError

from benchmarks import engine
from benchmarks.base_image import base_tar
from tests.k8s import control_plane as plane
from tests.k8s.charts import template
from tests.k8s.control_plane import ControlPlane, control_plane
from tests.k8s.pods import IMAGE, build_programs
from tests.ports import find_free_ports
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError, wait_for
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb

NAME = plane.KUBELET_NODE
PROGRAMS = ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr")
#: where the chart is installed
SYSTEM, ACCOUNT = "vgpu-system", "x-vgpud-driver"
READY_S = 60.0
_KUBELET = Path("/var/lib/kubelet")
_CGROUPS = Path("/sys/fs/cgroup")
#: what kubelet sets, for as long as it runs
_SYSCTLS = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")


def missing() -> str:
    """Why no node can run here, "" when one can."""
    reason = plane.missing(*PROGRAMS) or engine.why_not()
    if reason:
        return reason
    if not os.access(_CGROUPS, os.W_OK) or not any(_CGROUPS.iterdir()):
        return f"{_CGROUPS} has no cgroups that pods can be put into"
    return ""


class RealNode:
    """Use real_node(). sim: configuration of the simulated devices."""

    def __init__(self, directory: Path, api: ControlPlane, sim: Mapping[str, str]) -> None:
        self.directory, self.api = directory, api
        self.cdi = directory / "cdi"
        config = [f'cdi_dir = "{self.cdi}"', "nvidia_cdi_dirs = []"]
        config += [f'front = "{directory / "sys" / "front" / "vgpu-runtime"}"', "[devices]", 'kubernetes = ["all"]']
        self.system = OwnSystem(directory / "sys", sim, config)
        self.env = {**os.environ, "PATH": f"{os.environ[plane.VARIABLE]}:{os.environ.get('PATH', '')}:{engine.SBIN}"}
        self.programs = Path(os.environ[plane.VARIABLE])
        self.pod_programs = directory / "programs"
        self.world: list[str] = []  # the words by which containerd and kubelet are started in other mounts
        self._cgroup = directory.name
        self._sysctls: dict[Path, str] = {}
        self._logs = directory / "pods"
        self.containerd: Part | None = None
        self.kubelet: Part | None = None
        self.driver: Part | None = None

    # ---- pods ----

    def run(self, *pods: dict[str, Any], volumes: Sequence[dict[str, Any]] = ()) -> None:
        """Creates pods that tests.k8s.pods describes."""
        own = {"name": "programs", "hostPath": {"path": str(self.pod_programs)}}
        for pod in pods:
            self.api.create(pod | {"spec": {**pod["spec"], "volumes": [own, *volumes]}})

    def pod(self, name: str) -> dict[str, Any]:
        return dict(self.api.client().get(plane.Pod, name, namespace="default"))

    def phase(self, name: str) -> str:
        """Pending, Running, Succeeded, Failed."""
        return str(self.pod(name)["status"]["phase"])

    def running(self, *names: str) -> None:
        """Waits until they run. Raises PartError with their events."""
        for name in names:
            try:
                wait_for(f"pod {name}", lambda name=name: self.phase(name) == "Running", READY_S)  # type: ignore[misc]
            except PartError as error:
                raise PartError(f"{error}: {self.events(name)}") from error

    def wait_for_end(self, name: str) -> None:
        """Waits until all containers of a pod have ended."""
        wait_for(f"the end of pod {name}", lambda: self.phase(name) in ("Succeeded", "Failed"), READY_S)

    def events(self, name: str) -> list[str]:
        """The messages of a pod's events, as `kubectl describe pod` shows them."""
        events = self.api.client().list(plane.Event, namespace="default")
        return [str(one.get("message", "")) for one in events if one["involvedObject"].get("name") == name]

    def read_output(self, name: str, container: str = "c0") -> list[dict[str, Any]]:
        """The JSON lines of a container's newest run."""
        logs = sorted(self._logs.glob(f"default_{name}_*/{container}/*.log"), key=lambda path: int(path.stem))
        lines = logs[-1].read_text().splitlines() if logs else []
        return [json.loads(text) for line in lines if (text := line.split(" ", 3)[-1]).startswith("{")]

    def delete(self, *names: str) -> None:
        """Deletes pods as a user does, and waits for their end."""
        for name in names:
            self.api.client().delete(plane.Pod, name, namespace="default")
        wait_for("the end of pods", lambda: not set(names) & set(self.pods()), READY_S)

    def pods(self) -> list[str]:
        """The names of all pods but the driver's."""
        return [str(one["metadata"]["name"]) for one in self.api.client().list(plane.Pod, namespace="default")]

    def clear(self) -> None:
        """Deletes all pods and claims."""
        self.delete(*self.pods())
        for claim in self.api.client().list(plane.ResourceClaim, namespace="default"):
            self.api.client().delete(plane.ResourceClaim, claim["metadata"]["name"], namespace="default")
        wait_for("the end of all slices", lambda: not self.slices(), READY_S)

    # ---- vgpud ----

    def slices(self) -> dict[str, pb.Slice]:
        """Name -> slice, as `vgpu slice ls` shows them."""
        with self.system.client() as client:
            return {item.name: item for item in client.all(calls.slices())}

    def slice_of(self, claim: str) -> str:
        """The name of a claim's slice."""
        return f"k-{self.api.claim(claim)['metadata']['uid']}"

    def pids(self, claim: str) -> list[int]:
        """The host's pids of the programs in a claim's slice."""
        with self.system.client() as client:
            return [process.pid for process in client.all(calls.processes(self.slice_of(claim)))]

    def at_work(self, *names: str) -> list[int]:
        """Waits until each pod has kernels done, in the slice of the claim of its name; returns the programs' pids."""
        self.running(*names)
        for name in names:
            wait_for(f"kernels of {name}", lambda name=name: _works(self.read_output(name)), READY_S)  # type: ignore[misc]
        return [pid for name in names for pid in self.pids(name)]

    # ---- start and end ----

    def start(self) -> None:
        """Raises PartError where a part does not start."""
        build_programs(self.pod_programs)
        self.system.__enter__()
        engine.front_of(self.system)
        self.start_containerd()
        self.start_kubelet()
        self.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        self.api.apply(template("nodeSelector.of=another-node", namespace=SYSTEM))  # it is a process
        self.start_driver()
        wait_for("the node", self._ready, READY_S)

    def start_containerd(self) -> None:
        folder = self.directory / "containerd"
        if not folder.exists():
            self._configure_containerd(folder)
        command = [*self.world, str(self.programs / "containerd"), "--config", str(folder / "config.toml")]
        self.containerd = Part("containerd", command, self.env, self.directory)
        wait_for("containerd", lambda: self._alive(self.containerd) and not self.ctr("version", check=False).returncode)
        if IMAGE not in self.ctr("image", "ls", "-q").stdout.split():
            image = pod_image(folder / "image.tar")
            self.ctr("image", "import", str(image))
            image.unlink()

    def _configure_containerd(self, folder: Path) -> None:
        (folder / "cni").mkdir(parents=True)
        (folder / "cni" / "10-none.conflist").write_text(
            json.dumps({"cniVersion": "0.4.0", "name": "none", "plugins": [{"type": "none"}]})
        )
        runtime = "plugins.'io.containerd.cri.v1.runtime'"
        (folder / "config.toml").write_text(f"""
version = 3
root = "{folder / "root"}"
state = "{folder / "state"}"
imports = []
[grpc]
address = "{folder / "c.sock"}"
[ttrpc]
address = "{folder / "t.sock"}"
[plugins.'io.containerd.internal.v1.opt']
path = "{folder / "opt"}"
[plugins.'io.containerd.nri.v1.nri']
disable = true
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{IMAGE}"
[{runtime}]
restrict_oom_score_adj = true
cdi_spec_dirs = ["{self.cdi}"]
enable_criu = false
[{runtime}.cni]
bin_dirs = ["{folder / "cni"}"]
conf_dir = "{folder / "cni"}"
[{runtime}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{runtime}.containerd.runtimes.runc.options]
BinaryName = "{engine.find(engine.LOW_LEVEL)}"
Root = "{folder / "runc"}"
""")

    def ctr(self, *arguments: str, check: bool = True) -> engine.Done:
        """A `ctr` command at kubelet's images and containers."""
        address = self.directory / "containerd" / "c.sock"
        command = [str(self.programs / "ctr"), "--address", str(address), "-n", "k8s.io", *arguments]
        return engine.call(command, self.env, check, engine.COMMAND_TIMEOUT_S)

    def start_kubelet(self) -> None:
        self._remember_sysctls()
        self._make_cgroups()
        root = self.directory / "kubelet"
        root.mkdir(exist_ok=True)
        config = self.directory / "kubelet.yaml"
        config.write_text(yaml.safe_dump(self._kubelet_config()))
        token = self.api.kubeconfig_for("kubelet", plane.KUBELET)
        # its device plugins' socket is always there; a mount of its own keeps the machine's directory as it is
        _KUBELET.mkdir(exist_ok=True)
        command = [
            *self._kubelet_world(root),
            str(self.programs / "kubelet"),
            "--config",
            str(config),
            "--kubeconfig",
            str(token),
        ]
        command += ["--root-dir", str(root), "--cert-dir", str(root / "pki"), "--hostname-override", NAME]
        self.kubelet = Part("kubelet", command, self.env, self.directory)

    def _kubelet_world(self, root: Path) -> list[str]:
        """The words by which kubelet is started where its usual directory is this one."""
        own = ["unshare", "-m", "--propagation", "slave", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"']
        return [*own, str(root), str(_KUBELET)]

    def _kubelet_config(self) -> dict[str, Any]:
        signals = ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available")
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "address": "127.0.0.1",
            "port": find_free_ports(1)[0],
            "healthzPort": 0,
            "containerRuntimeEndpoint": f"unix://{self.directory / 'containerd' / 'c.sock'}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self._cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "evictionHard": dict.fromkeys(signals, "0%"),
            "imageGCHighThresholdPercent": 100,
            "localStorageCapacityIsolation": False,
            "makeIPTablesUtilChains": False,
            "resolvConf": "",
            "podLogsDir": str(self._logs),
            "volumePluginDir": str(self.directory / "volumes"),
        }

    def _remember_sysctls(self) -> None:
        if not self._sysctls:
            paths = [Path("/proc/sys") / name for name in _SYSCTLS]
            self._sysctls = {path: path.read_text() for path in paths}

    def _make_cgroups(self) -> None:
        """kubelet makes its own below a root that is there, in each hierarchy of version 1."""
        for hierarchy in [_CGROUPS] if (_CGROUPS / "cgroup.procs").exists() else _CGROUPS.iterdir():
            root = hierarchy / self._cgroup
            root.mkdir(exist_ok=True)
            for name in ("cpuset.cpus", "cpuset.mems"):  # empty in a new one, which then takes no process
                if (root / name).exists():
                    (root / name).write_text((hierarchy / name).read_text())

    def start_driver(self, uid: str = "") -> None:
        """The driver with the chart's own account, by the token of a pod on this node, as a DaemonSet gives it. uid: of
        its pod, so that the one that runs may be replaced by it; its health is in the folder of that name."""
        token = self.api.driver_token(ACCOUNT, NAME, SYSTEM, IMAGE)
        config = self.api.kubeconfig_for(f"driver{uid}", token)
        command = [sys.executable, "-m", "vgpud.k8s", "--node", NAME, "--kubelet-dir", str(self.directory / "kubelet")]
        command += ["--socket", self.system.host.removeprefix("unix://"), "--kubeconfig", str(config)]
        if uid:
            (self.directory / uid).mkdir()
            command += ["--pod-uid", uid, "--health-dir", str(self.directory / uid)]
        self.driver = Part(f"driver{uid}", command, self.system.env, self.directory)

    def restart(self, part: str) -> None:
        """Kills kubelet, driver or vgpud, starts it again, and waits until kubelet would call the driver."""
        if part == "vgpud":
            assert self.system.daemon
            self.system.daemon.kill()
            self.system.start_daemon()
            return
        before = self._registrations()
        old: Part | None = getattr(self, part)
        assert old
        old.kill()
        getattr(self, f"start_{part}")()
        wait_for("kubelet's registration of the driver", lambda: self._registrations() > before, READY_S)

    def _registrations(self) -> int:
        """How often kubelet has registered the driver: a Prepare that it cannot deliver is repeated a minute later."""
        return self.driver.error_file.read_text().count("kubelet has registered") if self.driver else 0

    @staticmethod
    def _alive(part: Part | None) -> bool:
        assert part
        part.check()
        return True

    def _ready(self) -> bool:
        """Whether the scheduler may place pods here and knows the devices."""
        for part in filter(None, (self.containerd, self.kubelet, self.driver)):
            self._alive(part)
        with contextlib.suppress(ApiError):
            node = self.api.client().get(plane.Node, NAME)
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))
            return ready and not node["spec"].get("taints") and self.has_resource_slices()
        return False

    def has_resource_slices(self) -> bool:
        """Whether the node's ResourceSlices are there."""
        pools = [one["spec"]["pool"] for one in self.api.client().list(plane.ResourceSlice)]
        return bool(pools) and len(pools) == pools[0]["resourceSliceCount"]

    def close(self) -> None:
        """Ends all of it, in this order, and restores what kubelet has set."""
        for part in (self.kubelet, self.driver):
            if part:
                part.stop(signal.SIGKILL)
        if self.containerd and self.containerd.running:
            for task in self.ctr("task", "ls", "-q", check=False).stdout.split():
                self.ctr("task", "rm", "-f", task, check=False)
        self._kill_shims()
        if self.containerd:
            self.containerd.stop()
        self.system.stop()
        engine.unmount_below(self.directory)
        with contextlib.suppress(OSError):
            _KUBELET.rmdir()  # where there was none before
        self._remove_cgroups()
        for path, value in self._sysctls.items():
            path.write_text(value)

    def _kill_shims(self) -> None:
        """Shims outlive containerd; ours are known by its socket."""
        address = str(self.directory / "containerd" / "c.sock").encode()
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if (
                    address in (process / "cmdline").read_bytes().split(b"\0")
                    and b"shim" in (process / "cmdline").read_bytes()
                ):
                    os.kill(int(process.name), signal.SIGKILL)

    def _remove_cgroups(self) -> None:
        for hierarchy in [_CGROUPS, *_CGROUPS.iterdir()]:
            root = hierarchy / self._cgroup
            if root.is_dir():
                for folder in sorted((path for path in root.rglob("*") if path.is_dir()), reverse=True):
                    _remove_cgroup(folder)
                _remove_cgroup(root)


def _works(lines: Sequence[Mapping[str, Any]]) -> bool:
    return any(line.get("completed") for line in lines)


def _remove_cgroup(folder: Path) -> None:
    """Ends the processes in it first."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            for pid in (folder / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
        with contextlib.suppress(OSError):
            folder.rmdir()
            return
        time.sleep(0.02)


def pod_image(path: Path) -> Path:
    """Writes the base image as an archive that `ctr image import` takes; its containers wait by default."""
    layer = base_tar()
    digest = hashlib.sha256(layer.read_bytes()).hexdigest()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["sleep", "infinity"], "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tempfile.TemporaryDirectory() as name, tarfile.open(path, "w") as archive:
        for file_name, content in (("config.json", config), ("manifest.json", manifest)):
            (Path(name) / file_name).write_text(json.dumps(content))
            archive.add(Path(name) / file_name, file_name)
        archive.add(layer, "layer.tar")
    return path


@contextlib.contextmanager
def real_node(api: ControlPlane, sim: Mapping[str, str]) -> Iterator[RealNode]:
    """A node that is ready, in a directory of its own."""
    directory = Path(tempfile.mkdtemp(prefix="vgn-"))
    made = RealNode(directory, api, sim)
    try:
        made.start()
        yield made
    finally:
        made.close()
        shutil.rmtree(directory, ignore_errors=True)


@contextlib.contextmanager
def cluster(sim: Mapping[str, str]) -> Iterator[RealNode]:
    """A control plane of its own with one such node. SIGTERM ends it as Ctrl-C does."""
    old = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="vgp-") as name, control_plane(Path(name)) as api:
            with real_node(api, sim) as made:
                yield made
    finally:
        signal.signal(signal.SIGTERM, old)
