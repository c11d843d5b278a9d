"""MIG instances, as NVML lists them: parts of a GPU with SMs and memory of their own, each a device to the driver.

vgpud takes them as they are: it makes, changes and ends none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from vgpud.devices.asking import or_none

#: in reports of NVML: not of one instance
NO_INSTANCE = 0xFFFFFFFF
#: how the name of an instance ends: "NVIDIA H200 MIG 1g.18gb"
_PROFILE = re.compile(r"MIG (\S+)$")
_GIBI = 1024  # in mebibytes


@dataclass(frozen=True, slots=True)
class Instance:
    """A MIG instance. gpu_instance, compute_instance: NVML's numbers of the parts that it is."""

    handle: Any
    uuid: str
    number: int  # on its GPU
    name: str
    profile: str  # its size as NVIDIA names it, "1g.18gb"
    sm_count: int
    gpu_instance: int
    compute_instance: int
    sharers: int = 1  # compute instances that have its memory together, itself among them

    def is_affected(self, gpu_instance: int, compute_instance: int) -> bool:
        """Whether a report with these numbers is about it: NO_INSTANCE is for all of them."""
        return gpu_instance in (self.gpu_instance, NO_INSTANCE) and (
            compute_instance in (self.compute_instance, NO_INSTANCE)
        )


def is_in_mig_mode(gpu: Any) -> bool:
    mode = or_none(lambda: pynvml.nvmlDeviceGetMigMode(gpu))
    return mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE


def instances(gpu: Any) -> list[Instance]:
    """The instances of a GPU, [] where it has none."""
    if not is_in_mig_mode(gpu):
        return []
    found = list(_find_instances(gpu))
    many = Counter(one.gpu_instance for one in found)
    return [replace(one, sharers=many[one.gpu_instance]) for one in found]


def _find_instances(gpu: Any) -> Iterator[Instance]:
    for number in range(or_none(lambda: pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)) or 0):
        handle = or_none(lambda n=number: pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, n))
        if handle is None:
            continue  # numbers of instances that were ended stay free
        name = str(pynvml.nvmlDeviceGetName(handle))
        has = or_none(lambda h=handle: pynvml.nvmlDeviceGetAttributes(h))
        yield Instance(
            handle=handle,
            uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
            number=number,
            name=name,
            profile=_profile(name, has),
            sm_count=has.multiprocessorCount if has else 0,
            gpu_instance=int(pynvml.nvmlDeviceGetGpuInstanceId(handle)),
            compute_instance=int(pynvml.nvmlDeviceGetComputeInstanceId(handle)),
        )


def _profile(name: str, has: Any) -> str:
    """By the name, or as the sizes say; "MIG" where NVML knows neither."""
    if found := _PROFILE.search(name):
        return found.group(1)
    return f"{has.gpuInstanceSliceCount}g.{-(-has.memorySizeMB // _GIBI)}gb" if has else "MIG"
