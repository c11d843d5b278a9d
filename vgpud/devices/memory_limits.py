"""Shell of the driver's memory limits per cgroup (NVML, since driver r615): probed, set, cleared.

Only the hard limit is set. NVIDIA's documents say of the soft one that MPS may end a program above it for another's
sake, and with the kernel's controller it stays on the cgroups above one that was removed: the ledger keeps minima
without either.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pynvml

from vgpud.errors import VgpudError

#: NVML_DEVICE_MEMORY_LIMIT_MAX
NO_LIMIT = (1 << 64) - 1
_OLD_DRIVER = (pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


class LimitError(VgpudError):
    """The driver does not take a limit. The message says why."""


def set_limit(handle: Any, folder: Path, hard_bytes: int) -> None:
    """The hard limit of a cgroup on a device; NO_LIMIT clears it. Raises LimitError."""
    try:
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t(str(folder).encode(), 0, hard_bytes)
        pynvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)
    except AttributeError as error:
        raise LimitError("nvidia-ml-py has no call for it: install 13.615 or later") from error
    except pynvml.NVMLError as error:
        raise LimitError(_why(error, folder)) from error


def _why(error: pynvml.NVMLError, folder: Path) -> str:
    if error.value in _OLD_DRIVER:
        return "the driver has no memory limits of cgroups on it: r615 and later have them"
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return "the driver lets root alone set them"
    if error.value == pynvml.NVML_ERROR_NOT_FOUND:
        return f"the driver does not find cgroup {folder}, or the kernel's controller dmem there"
    return f"the driver refuses it for cgroup {folder}: {error}"


def read_limit(handle: Any, folder: Path) -> tuple[int, int]:
    """(hard limit, bytes in use) of a cgroup on a device. Raises LimitError."""
    try:
        limits = pynvml.c_nvmlGetMemoryLimits_v1_t(str(folder).encode(), 0, 0, 0)
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    except AttributeError as error:
        raise LimitError("nvidia-ml-py has no call for it: install 13.615 or later") from error
    except pynvml.NVMLError as error:
        raise LimitError(_why(error, folder)) from error
    return int(limits.hardLimit), int(limits.currentUsed)


def probe(handles: Iterable[tuple[Any, int]], folder: Path) -> None:
    """Tries on a cgroup without programs whether limits are kept on these devices: (handle, memory of the device).
    Raises LimitError."""
    for handle, memory_bytes in handles:
        set_limit(handle, folder, memory_bytes)
        try:
            hard_bytes, _used = read_limit(handle, folder)
        finally:
            set_limit(handle, folder, NO_LIMIT)
        if hard_bytes != memory_bytes:
            text = f"the driver reports a limit of {hard_bytes} bytes after {memory_bytes} bytes were set"
            raise LimitError(f"{text}: it does not keep limits here")
