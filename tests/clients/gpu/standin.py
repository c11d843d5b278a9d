"""Stands in for a framework, on the simulated device: the variable STANDIN says of which kind.

same; differs (another result under the hook); larger (says more memory than it sees); lost (no framework); crash;
silent (no JSON); idle (launches nothing).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys


def main() -> int:
    kind = os.environ["STANDIN"]
    hooked = "libvgpu" in os.environ.get("LD_PRELOAD", "")
    if kind == "lost":
        print("no framework: not installed")
        return 3
    driver = ctypes.CDLL("libcuda.so.1")
    context, block, total = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_size_t()
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    image = b".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry nothing()\n{\nret;\n}\n"
    codes = [
        driver.cuInit(0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        driver.cuCtxSetCurrent(context),
        driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0),
        driver.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(1 << 20)),
        driver.cuModuleLoadData(ctypes.byref(module), image),
        driver.cuModuleGetFunction(ctypes.byref(function), module, b"nothing"),
    ]
    for _ in range(0 if kind == "idle" else 5):
        codes.append(driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, None, None, None))
    codes.append(driver.cuCtxSynchronize())
    if kind == "crash" and hooked:
        print("it went wrong", file=sys.stderr)
        return 9
    if kind == "silent":
        print("nothing to say")
        return 0
    seen = total.value + (1 << 20 if kind == "larger" else 0)
    result = {"codes": codes, "sum": 3 if kind == "differs" and hooked else 2}
    print(json.dumps({"result": result, "total_bytes": seen}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
