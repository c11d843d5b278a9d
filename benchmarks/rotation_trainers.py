"""Trainers of frameworks in turn, for benchmarks.rotation: programs whose kernels are not ours.

The CIFAR trainers of benchmarks/cifar by tinygrad, and by PyTorch where VGPU_TORCH_PYTHON names it, unmodified. First
one alone: what memory it has, and then, with a link that takes MOVE_S to move it, its samples per second; its pictures
cross that link, too. Then several on a device that has little more than one of them needs, each with all of its memory:
samples together against what one alone would have made in the time that the moves leave by the link's rate.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.pytorch.interpreter import find_python
from benchmarks.sharing.rows_trainers import Trainer
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb

MIB = 1 << 20
CONTEXT_BYTES, ALONE_BYTES, SPARE_BYTES = 32 * MIB, 16 << 30, 64 * MIB
FAST_BYTES_PER_US = 50_000
#: out or back; a turn is 40 times as long
MOVE_S = 0.4
TURN_S = 40 * MOVE_S
#: compilation and the first steps; of several the last one has to wait for turns
START_S = 600.0
#: of a run that is ended from outside
LONG_S = 100_000


@dataclass(frozen=True)
class Framework:
    """How its trainer is started. missing: why it cannot be; "" = it can."""

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    missing: str = ""


def find_framework(name: str) -> Framework:
    """tinygrad or torch."""
    found = importlib.util.find_spec("tinygrad") is not None
    python, missing = sys.executable, "" if found else "tinygrad is not installed"
    if name == "torch":
        python = find_python(("torch", "numpy"))
        missing = "" if python else "VGPU_TORCH_PYTHON names no interpreter with torch and numpy"
    command = [python, "-m", f"benchmarks.cifar.train_{name}", "--seconds", str(LONG_S)]
    return Framework(name, command, Trainer("t", 1, 1).env, missing)


def samples_at(lines: Sequence[Mapping[str, Any]], time_ns: int) -> int:
    """What a trainer had completed by its last report until then."""
    return max((int(line.get("samples", 0)) for line in lines if line["time_ns"] <= time_ns), default=0)


class Trainers:
    """So many of them, each in a slice of all the memory."""

    def __init__(self, own: OwnSystem, framework: Framework, count: int, mib: int, *options: str) -> None:
        self._own = own
        self._parts: dict[str, Part] = {}
        self._lines: dict[str, list[dict[str, Any]]] = {}
        for number in range(count):
            name = f"t{number}"
            size = ("--mem", f"{mib}M", "--gpus", f"{1 / count:g}", "--max", "1")
            own.vgpu("slice", "create", name, *size, *options)
            self._lines[name] = []
            self._parts[name] = own.run(name, (), framework.command, framework.env)
        for name in self._parts:
            wait_for(f"the training of {name}", partial(self._trains, name), START_S)

    def _trains(self, name: str) -> bool:
        return any("samples" in line for line in self.read_lines(name))

    def read_lines(self, name: str) -> list[dict[str, Any]]:
        self._parts[name].check()
        self._lines[name] += self._parts[name].lines()
        return self._lines[name]

    def samples(self, begin_ns: int, end_ns: int) -> int:
        """Of all, reported in this time."""
        lines = [self.read_lines(name) for name in self._parts]
        return sum(samples_at(said, end_ns) - samples_at(said, begin_ns) for said in lines)

    def slices(self) -> list[pb.Slice]:
        with self._own.client() as client:
            return [client.send(calls.get_slice(name)) for name in self._parts]

    def stop(self) -> None:
        for part in self._parts.values():
            part.stop()


def sim_config(device_bytes: int, link_bytes_per_us: int) -> dict[str, str]:
    return {
        "devices": "1",
        "memory_bytes": f"{device_bytes // MIB}M",
        "context_bytes": f"{CONTEXT_BYTES // MIB}M",
        "link_bytes_per_us": str(link_bytes_per_us),
    }


def measure_alone(framework: Framework, seconds: float, link_bytes_per_us: int) -> tuple[float, int]:
    """Samples per second, and bytes of device memory, of one trainer."""
    with harness.system(sim_config(ALONE_BYTES, link_bytes_per_us)) as own:
        trainers = Trainers(own, framework, 1, ALONE_BYTES // MIB)
        begin_ns = time.monotonic_ns()
        time.sleep(seconds)
        end_ns = time.monotonic_ns()
        samples = trainers.samples(begin_ns, end_ns)
        used_bytes = trainers.slices()[0].devices[0].mem_used_bytes
        trainers.stop()
    return samples * 1e9 / (end_ns - begin_ns), used_bytes


def choose_link(used_bytes: int) -> int:
    """Bytes per microsecond: so many are moved in MOVE_S."""
    return int(used_bytes / MOVE_S / 1e6)


def measure_in_turn(
    framework: Framework, count: int, seconds: float, samples_per_s: float, used_bytes: int
) -> dict[str, Any]:
    """samples_per_s, used_bytes: of one alone."""
    device_bytes = (used_bytes + SPARE_BYTES) // (2 * MIB) * 2 * MIB
    link_bytes_per_us = choose_link(used_bytes)
    with harness.system(sim_config(device_bytes, link_bytes_per_us)) as own:
        trainers = Trainers(own, framework, count, device_bytes // MIB, "--mem-swap")
        begin_ns, before = time.monotonic_ns(), trainers.slices()
        time.sleep(seconds)
        end_ns, after = time.monotonic_ns(), trainers.slices()
        samples = trainers.samples(begin_ns, end_ns)
        trainers.stop()
    moved = sum(b.rotation.moved_bytes - a.rotation.moved_bytes for a, b in zip(before, after, strict=True))
    wall_s, moving_s = (end_ns - begin_ns) / 1e9, moved / (link_bytes_per_us * 1e6)
    return {
        "seconds": wall_s,
        "samples": samples,
        "moves": sum(b.rotation.moves - a.rotation.moves for a, b in zip(before, after, strict=True)),
        "moved_bytes": moved,
        "link_seconds": moving_s,
        "quantum_seconds": max(one.rotation.quantum_ns for one in after) / 1e9,
        "sum_of_alone": samples / (samples_per_s * wall_s),
        "sum_of_ideal": samples / (samples_per_s * (wall_s - moving_s)),
    }


def measure(name: str, counts: Sequence[int], turns: float) -> dict[str, Any]:
    """Rows of one framework, by the number of trainers; or why there are none."""
    framework = find_framework(name)
    if framework.missing:
        return {"skipped": framework.missing}
    _, used_bytes = measure_alone(framework, MOVE_S, FAST_BYTES_PER_US)
    rate, used_bytes = measure_alone(framework, TURN_S, choose_link(used_bytes))
    rows = {str(count): measure_in_turn(framework, count, turns * count * TURN_S, rate, used_bytes) for count in counts}
    return {"alone_samples_per_second": rate, "used_bytes": used_bytes, **rows}
