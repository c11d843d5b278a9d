"""Does cuGetProcAddress give the very pointers that the driver exports? Run unhooked, in a process of its own.

The hook swaps by this identity (DESIGN D3). Prints JSON: how many entry points were asked, for how many the pointer is
that of an exported symbol (of any version), and the names of those where it is not.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from pathlib import Path

from vgpud.libraries.elf import Elf

SUFFIX = re.compile(r"(_v\d+)?(_ptds|_ptsz)?$")
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2
CUDA_VERSION = 13000


def exported_functions(path: str) -> list[str]:
    """The cu* functions that a driver exports."""
    return sorted(
        name for name, symbol in Elf(Path(path)).exports().items() if re.match(r"cu[A-Z]", name) and symbol.function
    )


def main() -> int:
    """Asks the driver named in argv[1] and prints the answer."""
    path = sys.argv[1]
    driver = ctypes.CDLL(path)
    names = exported_functions(path)
    addresses = {ctypes.cast(getattr(driver, name), ctypes.c_void_p).value: name for name in names}
    code = driver.cuInit(0)
    if code:
        print(f"cuInit answers {code}", file=sys.stderr)
        return 3
    get = driver.cuGetProcAddress_v2
    get.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, ctypes.c_uint64, ctypes.c_void_p]
    asked, same, other, missing = 0, 0, [], []
    for base in sorted({SUFFIX.sub("", name) for name in names}):
        for flags in (LEGACY_STREAM, PER_THREAD_STREAM):
            pointer, status = ctypes.c_void_p(), ctypes.c_int()
            code = get(base.encode(), ctypes.byref(pointer), CUDA_VERSION, flags, ctypes.byref(status))
            asked += 1
            if code or not pointer.value:
                missing.append(base)
            elif pointer.value in addresses:
                same += 1
            else:
                other.append(base)
    found = {"asked": asked, "identical": same, "different": sorted(set(other)), "missing": sorted(set(missing))}
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
