"""Loads a safetensors file and says where it is, then carries out orders from standard input, a line each.

r NAME    the bytes of a tensor        w NAME    writes to it: the driver's code        q    ends
"""

from __future__ import annotations

import ctypes
import json
import sys

from vgpud.client import load_weights

cuda = ctypes.CDLL("libcuda.so.1")


def main() -> None:
    weights = load_weights(sys.argv[1])
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    print(json.dumps({"maker": weights.is_maker, "names": sorted(weights.entries)}), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "q":
            weights.close()
            print(json.dumps({}), flush=True)
            return
        entry, address = weights.entries[rest[0]], ctypes.c_uint64(weights.address(rest[0]))
        buffer = (ctypes.c_ubyte * entry.size_bytes)()
        if word == "r":
            code = cuda.cuMemcpyDtoH_v2(buffer, address, ctypes.c_size_t(entry.size_bytes))
            print(json.dumps({"code": code, "hex": bytes(buffer).hex()}), flush=True)
        else:
            code = cuda.cuMemcpyHtoD_v2(address, buffer, ctypes.c_size_t(entry.size_bytes))
            print(json.dumps({"code": code}), flush=True)


if __name__ == "__main__":
    main()
