"""The private device of a dry run: what NVML says of a model of GPU, and what a process of it has before its tensors.

Sources of the devices: nvidia-smi of each (name, total memory) and the table of compute capabilities in CUDA's
programming guide. SMs and rates are in hardware.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from vgpud.errors import ExitCode
from vgpud.predict import hardware
from vgpud.predict.graph import GraphError, label

_MIB = 1 << 20
#: kernels and copies take such a part of their time: short, but not so short that a program measures no time at all
SPEED = 1000


@dataclass(frozen=True, slots=True)
class DryDevice:
    """A model of GPU that a dry run can have. name: of hardware.GPUS."""

    name: str
    title: str
    memory_bytes: int
    compute: str


DEVICES = {
    device.name: device
    for device in (
        DryDevice("h200", "NVIDIA H200", 143771 * _MIB, "9.0"),
        DryDevice("h100", "NVIDIA H100 80GB HBM3", 81559 * _MIB, "9.0"),
        DryDevice("a100", "NVIDIA A100-SXM4-80GB", 81920 * _MIB, "8.0"),
        DryDevice("a100-40g", "NVIDIA A100-SXM4-40GB", 40960 * _MIB, "8.0"),
        DryDevice("l40s", "NVIDIA L40S", 46068 * _MIB, "8.9"),
        DryDevice("rtx-4090", "NVIDIA GeForce RTX 4090", 24564 * _MIB, "8.9"),
        DryDevice("t4", "Tesla T4", 15360 * _MIB, "7.5"),
    )
}


@dataclass(frozen=True, slots=True)
class ContextSize:
    """What a process has of the device before its tensors: the context, and the code of the libraries that it loads."""

    low: int
    value: int
    high: int
    source: str


def find_device(name: str) -> DryDevice:
    """As a user or NVML writes it. Raises GraphError."""
    try:
        found = DEVICES.get(hardware.find_gpu(name).name)
    except GraphError:
        found = None
    if found is None:
        text = (
            f"a dry run on {label(name)} is not possible: its memory and architecture are not in the table of devices"
        )
        raise GraphError(f"{text}; name one of {', '.join(DEVICES)} with --gpu", ExitCode.NOT_FOUND)
    return found


def find_context_size(device: DryDevice) -> ContextSize:
    """Measured for this model of device, else estimated from its SMs."""
    gpu = hardware.BY_NAME[device.name]
    return ContextSize(*gpu.context_bytes(), source=gpu.context_source)


def make_config(device: DryDevice, context: ContextSize, count: int = 1) -> Mapping[str, object]:
    """Settings of the simulated devices' server: so many of that model, and no time that a program has to wait for."""
    settings: dict[str, object] = {
        "devices": count,
        "memory_bytes": device.memory_bytes,
        "context_bytes": context.value,
        "launch_cost_ns": 0,
        "speed": SPEED,
    }
    for index in range(count):
        settings[f"device.{index}.name"] = device.title
        settings[f"device.{index}.sm_count"] = hardware.BY_NAME[device.name].sm_count
        settings[f"device.{index}.compute"] = device.compute
    return settings
