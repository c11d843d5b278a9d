"""Prints, as JSON, what NVML says of GPUs and MIG instances, and which devices CUDA shows. For nvidia-ml-py."""

from __future__ import annotations

import ctypes
import json
import sys
import uuid

import pynvml


def answer(function, *arguments):
    """What a call answers, or the code of its error as a text."""
    try:
        found = function(*arguments)
        return found.value if isinstance(found, ctypes.c_uint) else found  # not all calls of nvidia-ml-py unpack it
    except pynvml.NVMLError as error:
        return f"error {error.value}"


def uuid_of(handle):
    return handle if isinstance(handle, str) else pynvml.nvmlDeviceGetUUID(handle)


def describe(handle):
    """A device of either kind."""
    attributes = answer(pynvml.nvmlDeviceGetAttributes, handle)
    utilization = answer(pynvml.nvmlDeviceGetUtilizationRates, handle)
    return {
        "uuid": uuid_of(handle),
        "name": pynvml.nvmlDeviceGetName(handle),
        "index": pynvml.nvmlDeviceGetIndex(handle),
        "minor": pynvml.nvmlDeviceGetMinorNumber(handle),
        "by_uuid": uuid_of(answer(pynvml.nvmlDeviceGetHandleByUUID, uuid_of(handle))),
        "by_bus_id": uuid_of(answer(pynvml.nvmlDeviceGetHandleByPciBusId, pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        "memory": pynvml.nvmlDeviceGetMemoryInfo(handle).total,
        "is_mig": answer(pynvml.nvmlDeviceIsMigDeviceHandle, handle),
        "mode": answer(pynvml.nvmlDeviceGetMigMode, handle),
        "most": answer(pynvml.nvmlDeviceGetMaxMigDeviceCount, handle),
        "gpu": uuid_of(answer(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle, handle)),
        "gpu_instance": answer(pynvml.nvmlDeviceGetGpuInstanceId, handle),
        "compute_instance": answer(pynvml.nvmlDeviceGetComputeInstanceId, handle),
        "sms": attributes if isinstance(attributes, str) else attributes.multiprocessorCount,
        "slices": attributes if isinstance(attributes, str) else attributes.gpuInstanceSliceCount,
        "utilization": utilization if isinstance(utilization, str) else utilization.gpu,
        "instances": [uuid_of(answer(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, n)) for n in range(3)],
    }


def cuda():
    """(kind-less UUIDs, memory) of the devices, or the code of cuInit."""
    driver = ctypes.CDLL("libcuda.so.1")
    if code := driver.cuInit(0):
        return code
    count, raw, size = ctypes.c_int(), (ctypes.c_uint8 * 16)(), ctypes.c_size_t()
    driver.cuDeviceGetCount(ctypes.byref(count))
    found = []
    for ordinal in range(count.value):
        driver.cuDeviceTotalMem_v2(ctypes.byref(size), ordinal)
        texts = []
        for function in (driver.cuDeviceGetUuid_v2, driver.cuDeviceGetUuid):
            function(raw, ordinal)
            texts.append(str(uuid.UUID(bytes=bytes(raw))))
        found.append([*texts, size.value])
    return found


def main() -> None:
    pynvml.nvmlInit()
    gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
    parts = [answer(pynvml.nvmlDeviceGetHandleByUUID, name) for name in sys.argv[1:]]
    view = {"gpus": [describe(gpu) for gpu in gpus], "cuda": cuda()}
    view["named"] = [part if isinstance(part, str) else describe(part) for part in parts]
    print(json.dumps(view))


if __name__ == "__main__":
    main()
