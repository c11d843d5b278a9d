"""A program that holds memory and carries out orders from standard input, a line each; it answers with a line of JSON.

a BYTES    allocates            f    frees the last block            i    cuMemGetInfo
w MODE     watches for memory pressure: `give` frees as many blocks as it is asked for, `keep` does nothing
r          the requests that it has received
"""

from __future__ import annotations

import ctypes
import json
import sys
import threading
import time
from typing import Any

from vgpud.client import MemoryRequest, watch_memory_pressure

cuda = ctypes.CDLL("libcuda.so.1")
#: what the test allocates at once
BLOCK_BYTES = 256 << 20
blocks: list[int] = []
lock = threading.Lock()
received: list[dict[str, Any]] = []
context = ctypes.c_void_p()


def allocate(size: int) -> dict[str, Any]:
    address, begin_s = ctypes.c_uint64(), time.monotonic()
    code = cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(size))
    if code == 0:
        with lock:
            blocks.append(address.value)
    return {"code": code, "seconds": time.monotonic() - begin_s}


def free() -> dict[str, Any]:
    with lock:
        return {"code": cuda.cuMemFree_v2(ctypes.c_uint64(blocks.pop()))}


def info() -> dict[str, Any]:
    left, total = ctypes.c_size_t(), ctypes.c_size_t()
    assert cuda.cuMemGetInfo_v2(ctypes.byref(left), ctypes.byref(total)) == 0
    return {"free": left.value, "total": total.value}


def give_back(request: MemoryRequest) -> None:
    received.append({"bytes": request.remaining_bytes, "device": request.device, "uuid": request.device_uuid})
    assert cuda.cuCtxSetCurrent(context) == 0
    for _ in range(-(-request.remaining_bytes // BLOCK_BYTES)):
        free()


def keep(request: MemoryRequest) -> None:
    received.append({"bytes": request.remaining_bytes, "seconds": request.remaining_s})


def main() -> None:
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    for line in sys.stdin:
        word, *rest = line.split()
        answer: Any = {}
        if word == "a":
            answer = allocate(int(rest[0]))
        elif word == "f":
            answer = free()
        elif word == "i":
            answer = info()
        elif word == "w":
            watch_memory_pressure({"give": give_back, "keep": keep}[rest[0]])
        elif word == "r":
            answer = {"requests": received}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
