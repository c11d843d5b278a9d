"""Runs CIFAR containers side by side and measures them: with their slices over vgpu-runtime, or plainly over runc.

Called by containers.py. Samples per second are what the trainers report; shares of device time are the simulated
device's own busy log, by the host's process ids. Runs of both types take the same images, command and device.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks import engine, harness
from benchmarks.windows import Worst, shares_by_tenant, worst_window
from vgpud import paths
from vgpud.cli.demo.demo_measure import Trainer
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError, wait_for
from vgpud.libraries import simulated
from vgpud.simdevice.busy_log import SECOND_NS, Span, mean_share, read_busy_log

SETTLE_NS = 2 * SECOND_NS
START_TIMEOUT_S = 180.0
#: the trainers are stopped long before
TRAIN_SECONDS = "3600"
SPIN_US = 200
DRIVER_IN_CONTAINER = f"/usr/lib/{platform.machine()}-linux-gnu/libcuda.so.1"
SIM_IN_CONTAINER = "/run/vgpu-sim"
SIM_LIBRARIES_IN_CONTAINER = "/usr/lib/vgpu/SIMULATED"
KERNELS_IN_CONTAINER = "/opt/cifar/benchmarks/cifar/kernels.model"
TINYGRAD_CACHE = "/var/cache/tinygrad"
#: one trainer per device of the container, each on its own device
EACH_DEVICE = 'n=$1; shift; i=0; while [ $i -lt $n ]; do CUDA_VISIBLE_DEVICES=$i "$@" & i=$((i+1)); done; wait'


@dataclass(frozen=True)
class Container:
    """A container and its share (0..1) of each device it uses: (1, 1, 0.5) is `VGPU=2.5`, with three trainers in it."""

    name: str
    shares: tuple[float, ...]
    #: plainly, nothing keeps a container off the others' devices: which ones it takes
    plain_devices: str = "0"
    #: instead of the trainer, kernels of 200 us without a break (tenants/load.c): no pause for Python in between
    saturating: bool = False

    @property
    def gpus(self) -> float:
        return sum(self.shares)


@dataclass(frozen=True)
class Measured:
    """One span of time. By container: samples per second of each trainer, share of each device (simulated only)."""

    rates: dict[str, list[float]]
    shares: dict[str, list[float]]
    worst_window: Worst | None = None
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def total(self) -> float:
        return sum(sum(rates) for rates in self.rates.values())


class Running:
    """A container under measurement: its process `docker run`, and its trainers by their pid inside."""

    def __init__(self, container: Container, part: Part) -> None:
        self.container = container
        self.part = part
        self.trainers: dict[int, Trainer] = {}
        self.pids: dict[int, int] = {}  # inside -> on the host

    def poll(self) -> None:
        """Takes in what the trainers have printed. Raises PartError when the container has ended."""
        for line in self.part.lines():
            trainer = self.trainers.setdefault(int(line["pid"]), Trainer(self.container.name))
            if "completed" in line:  # of load.c: kernels, from the first line on
                line |= {"event": "progress" if trainer.training else "training", "samples": line["completed"]}
            trainer.take([line])
        self.part.check()

    def training(self) -> bool:
        """Whether every trainer is past its set-up."""
        self.poll()
        count = sum(trainer.training for trainer in self.trainers.values())
        return count == len(self.container.shares)

    def find_pids(self, init: int) -> None:
        """The trainers' pids on the host, from the container's first process there."""
        first = psutil.Process(init)
        inside = {_pid_inside(process.pid): process.pid for process in [first, *first.children(recursive=True)]}
        self.pids = {pid: inside[pid] for pid in self.trainers}


def _pid_inside(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    raise PartError(f"/proc/{pid}/status has no NSpid: the kernel is older than 4.1")


class Stage:
    """Device, daemon (only when shim) and engine for one mix. Use open_stage()."""

    def __init__(self, own: OwnSystem, docker: engine.Docker, image: str, shim: bool, cache: Path) -> None:
        self.own, self.docker, self.image, self.shim, self.cache = own, docker, image, shim, cache
        self.running: list[Running] = []

    def start(self, containers: Sequence[Container]) -> None:
        """Starts the containers and waits until all train."""
        for container in containers:
            command = [engine.find("docker") or "docker", *self._words(container)]
            part = Part(f"container-{container.name}", command, self.docker.env, self.own.folder)
            self.running.append(Running(container, part))
        wait_for("the trainers", lambda: all(one.training() for one in self.running), START_TIMEOUT_S)
        for one in self.running:
            one.find_pids(self.docker.pid(f"bench-{one.container.name}"))

    def _words(self, container: Container) -> list[str]:
        """`docker run` of one container."""
        words = ["run", "--rm", "--network=none", "--name", f"bench-{container.name}"]
        words += ["-v", f"{self.cache}:{TINYGRAD_CACHE}", "--runtime", "vgpu" if self.shim else "runc"]
        if self.shim:
            words += ["-e", f"VGPU={container.gpus:g}", "-e", f"VGPU_NAME={container.name}"]
        elif self.own.is_simulated:
            words += ["-v", f"{paths.sim_lib_dir() / 'libcuda.so.1'}:{DRIVER_IN_CONTAINER}:ro"]
            words += ["-v", f"{self.own.sim_dir}:{SIM_IN_CONTAINER}:ro"]
            libraries = simulated.cuda_libraries(paths.sim_lib_dir() / "libcuda.so.1")
            words += ["-v", f"{libraries[0].parent}:{SIM_LIBRARIES_IN_CONTAINER}:ro"]
            there = [f"{SIM_LIBRARIES_IN_CONTAINER}/{file.name}" for file in libraries]
            words += ["-e", f"LD_PRELOAD={':'.join(there)}"]
            words += ["-e", f"CUDA_VISIBLE_DEVICES={container.plain_devices}"]
        else:
            words += ["--gpus", f'"device={container.plain_devices}"']
        if container.saturating:
            return [*words, *self._load()]
        if self.own.is_simulated:
            words += ["-e", f"VGPU_SIM_KERNELS={KERNELS_IN_CONTAINER}"]
        trainer = ["--seconds", TRAIN_SECONDS]
        if len(container.shares) == 1:
            return [*words, self.image, *trainer]
        entry = self.docker.cli("inspect", "-f", '{{join .Config.Entrypoint " "}}', self.image).stdout.split()
        count = str(len(container.shares))
        return [*words, "--entrypoint", "/bin/sh", self.image, "-c", EACH_DEVICE, "sh", count, *entry, *trainer]

    def _load(self) -> list[str]:
        """Options, image and arguments for load.c in the container."""
        folder = self.own.folder / "bench"
        if not folder.exists():
            folder.mkdir()
            shutil.copy2(harness.build("tenants/load.c"), folder)
            harness.spin_model(folder, [SPIN_US])
        mounted = ["-v", f"{folder}:/bench:ro", "-e", "VGPU_SIM_KERNELS=/bench/kernels.model"]
        return [
            *mounted,
            "--entrypoint",
            "/bench/load",
            self.image,
            "--kernel-us",
            str(SPIN_US),
            "--seconds",
            TRAIN_SECONDS,
        ]

    def measure(self, seconds: float, exact: Mapping[str, float] | None = None) -> Measured:
        """Lets the containers run for 2 s and then measures. exact: wanted shares, for the worst one-second window."""
        begin_ns = time.monotonic_ns() + SETTLE_NS
        end_ns = begin_ns + int(seconds * SECOND_NS)
        while time.monotonic_ns() < end_ns + SECOND_NS // 4:
            time.sleep(0.25)
            for one in self.running:
                one.poll()
        rates = {
            one.container.name: [round(t.rate(begin_ns, end_ns), 2) for t in one.trainers.values()]
            for one in self.running
        }
        if not self.own.is_simulated:
            return Measured(rates, {})
        devices = [self._spans(index, begin_ns) for index in range(self._device_count())]
        shares = {one.container.name: self._shares(one, devices, begin_ns, end_ns) for one in self.running}
        single = {one.container.name: next(iter(one.pids.values())) for one in self.running if len(one.pids) == 1}
        series = shares_by_tenant([span for spans in devices for span in spans], single, begin_ns, end_ns)
        found = worst_window({name: series[name] for name in exact}, exact) if exact else None
        by_second = {name: [round(share, 4) for share in windows[::10]] for name, windows in series.items()}
        return Measured(rates, shares, found, by_second)

    def _device_count(self) -> int:
        return len(list(self.own.sim_dir.glob("busy-*.log")))

    def _spans(self, index: int, begin_ns: int) -> list[Span]:
        return [span for span in read_busy_log(self.own.busy_log(index)) if span.end_ns > begin_ns]

    @staticmethod
    def _shares(one: Running, devices: Sequence[Sequence[Span]], begin_ns: int, end_ns: int) -> list[float]:
        """Share of each device that the container's processes had, those it never used left out."""
        of_device = [sum(mean_share(spans, pid, begin_ns, end_ns) for pid in one.pids.values()) for spans in devices]
        return [round(share, 4) for share in of_device if share > 0]


@contextlib.contextmanager
def open_stage(
    folder: Path, docker: engine.Docker, image: str, *, devices: int, shim: bool, real: bool
) -> Iterator[Stage]:
    """A device of its own (and a daemon, when shim) for one mix, on an engine that is there already."""
    cache = docker.folder / "tinygrad"
    cache.mkdir(exist_ok=True)
    os.chmod(cache, 0o777)  # the trainers are no root
    own = OwnSystem(folder, None if real else {**harness.one_device(), "devices": str(devices)})
    with own:
        if shim:
            engine.install_front(docker.folder / "front", folder / "run" / "runtime.sock")
        else:
            assert own.daemon
            own.daemon.stop()
        stage = Stage(own, docker, image, shim, cache)
        try:
            yield stage
        finally:
            docker.remove_all()
            for one in stage.running:
                one.part.stop()
