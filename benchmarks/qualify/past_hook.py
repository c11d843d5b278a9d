"""A program that opens the driver itself: `python past_hook.py LIBCUDA SECONDS`. Waits at most so long until the driver
shows less memory than the device has, then allocates until it gets no more. Prints a line of JSON."""

from __future__ import annotations

import ctypes
import json
import sys
import time

PIECE_BYTES = 128 << 20


def main() -> None:
    driver = ctypes.CDLL(sys.argv[1])
    context, whole = ctypes.c_void_p(), ctypes.c_size_t()
    code = driver.cuInit(0) or driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
    code = code or driver.cuCtxSetCurrent(context) or driver.cuDeviceTotalMem_v2(ctypes.byref(whole), 0)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    until_s = time.monotonic() + float(sys.argv[2])
    while not code:
        code = driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
        if total.value < whole.value or time.monotonic() > until_s:
            break
        time.sleep(0.05)
    allocated = 0
    while not code and allocated < whole.value:
        memory = ctypes.c_uint64()
        code = driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(PIECE_BYTES))
        allocated += 0 if code else PIECE_BYTES
    sizes = {"device_bytes": whole.value, "limit_bytes": total.value, "allocated_bytes": allocated}
    print(json.dumps({"event": "end", "code": code} | sizes), flush=True)


if __name__ == "__main__":
    main()
