"""A program that bypasses the hook: uses the simulated driver itself, attached to a slice (of whose ledger it says
nothing) or to none. Arguments: the driver's library, MiB to allocate, and the attach socket if it is to be attached.

Becomes the user in the variable AS ("UID:GID"), if that is set. Prints the codes of its calls and stays.
"""

from __future__ import annotations

import ctypes
import os
import sys

import client


def main() -> None:
    library, size_mib, *sockets = sys.argv[1:]
    attached = [client.attach(path) for path in sockets]
    driver = ctypes.CDLL(library)
    context, memory = ctypes.c_void_p(), ctypes.c_uint64()
    codes = [
        *(tenant.status for tenant in attached),
        driver.cuInit(0),
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
        driver.cuCtxSetCurrent(context),
        driver.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(int(size_mib) << 20)),
    ]
    if os.environ.get("AS"):
        client.become(os.environ["AS"])
    print(*codes, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
