"""Writes at a program's end the most that PyTorch's allocator held on each device: Python imports this module when it
starts.

`vgpu predict run` puts its folder first in PYTHONPATH, and names a folder for the answers in VGPU_PREDICT_DIR. It is
run by the program's interpreter, which may be older than vgpud's. A sitecustomize of that environment is run as well.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import sys
import uuid
from importlib.machinery import PathFinder
from importlib.util import module_from_spec


def _run_next() -> None:
    """The sitecustomize that Python would have found without this one."""
    here = os.path.dirname(os.path.abspath(__file__))
    spec = PathFinder.find_spec("sitecustomize", [place for place in sys.path if os.path.abspath(place) != here])
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(module_from_spec(spec))


def _find_workspaces() -> tuple[int, int]:
    """Bytes that one convolution of this process works in, likely and at most: the simulated cuDNN has counted them."""
    likely, most = ctypes.c_uint64(0), ctypes.c_uint64(0)
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcudnn.so.9").sc_dnn_get_workspaces(ctypes.byref(likely), ctypes.byref(most))
    return likely.value, most.value


def _find_uuid(ordinal: int) -> str:
    """Of the driver's device of that number, as NVML writes it; "" where there is none."""
    device, found = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    with contextlib.suppress(OSError, AttributeError):
        cuda = ctypes.CDLL("libcuda.so.1")
        if cuda.cuDeviceGet(ctypes.byref(device), ordinal) == 0 and cuda.cuDeviceGetUuid_v2(found, device) == 0:
            return f"GPU-{uuid.UUID(bytes=bytes(found))}"
    return ""


def _write_peaks() -> None:
    torch, folder = sys.modules.get("torch"), os.environ.get("VGPU_PREDICT_DIR", "")
    if torch is None or not folder or not torch.cuda.is_initialized():
        return
    likely, most = _find_workspaces()
    peaks = [
        {
            "device": _find_uuid(ordinal),
            "allocated_bytes": torch.cuda.max_memory_allocated(ordinal),
            "reserved_bytes": torch.cuda.max_memory_reserved(ordinal),
            "workspace_bytes": likely,
            "workspace_bytes_most": most,
        }
        for ordinal in range(torch.cuda.device_count())
        if torch.cuda.max_memory_reserved(ordinal) > 0
    ]
    with open(os.path.join(folder, f"{os.getpid()}.json"), "w") as file:
        json.dump(peaks, file)


atexit.register(_write_peaks)
_run_next()
