"""Writes shim/gen/simgpu/simgpu_names.c: entry points by name and version, and the names and texts of error codes.

`python shim/codegen/generate_names.py CUDA_INCLUDE_FOLDER [OUTPUT]` at development time; the output is committed.
cudaTypedefs.h gives the version with which every form of an entry point came (PFN_cuMemAlloc_v3020); the forms of one
name, sorted by version, are the forms of the ABI (cuMemAlloc, cuMemAlloc_v2), sorted by number. So do the typedefs of
the other headers.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "shim" / "gen" / "simgpu" / "simgpu_names.c"
#: The headers whose typedefs name entry points with the version that each form came with.
TYPEDEFS = (
    "cudaTypedefs.h",
    "cudaProfilerTypedefs.h",
    "cudaGLTypedefs.h",
    "cudaEGLTypedefs.h",
    "cudaVDPAUTypedefs.h",
)
#: cuGetErrorString's text of every code. Drivers 535, 550 and 555 answer these; for 36, 226 and 721 they are those of
#: the CUDA 13.0 runtime, which has the same texts for all codes that both know, and for 916 the words of cuda.h.
TEXTS = {
    0: "no error",
    1: "invalid argument",
    2: "out of memory",
    3: "initialization error",
    4: "driver shutting down",
    5: "profiler disabled while using external profiling tool",
    6: "profiler not initialized: call cudaProfilerInitialize()",
    7: "profiler already started",
    8: "profiler already stopped",
    34: "CUDA driver is a stub library",
    36: "API call is not supported in the installed CUDA driver",
    46: "CUDA-capable device(s) is/are busy or unavailable",
    100: "no CUDA-capable device is detected",
    101: "invalid device ordinal",
    102: "device doesn't have valid Grid license",
    200: "device kernel image is invalid",
    201: "invalid device context",
    202: "context already current",
    205: "mapping of buffer object failed",
    206: "unmapping of buffer object failed",
    207: "array is mapped",
    208: "resource already mapped",
    209: "no kernel image is available for execution on the device",
    210: "resource already acquired",
    211: "resource not mapped",
    212: "resource not mapped as array",
    213: "resource not mapped as pointer",
    214: "uncorrectable ECC error encountered",
    215: "limit is not supported on this architecture",
    216: "exclusive-thread device already in use by a different thread",
    217: "peer access is not supported between these two devices",
    218: "a PTX JIT compilation failed",
    219: "invalid OpenGL or DirectX context",
    220: "uncorrectable NVLink error detected during the execution",
    221: "PTX JIT compiler library not found",
    222: "the provided PTX was compiled with an unsupported toolchain.",
    223: "PTX JIT compilation was disabled",
    224: "the provided execution affinity is not supported",
    225: "the provided PTX contains unsupported call to cudaDeviceSynchronize",
    226: "Invalid access of peer GPU memory over nvlink or a hardware error",
    300: "device kernel image is invalid",
    301: "file not found",
    302: "shared object symbol not found",
    303: "shared object initialization failed",
    304: "OS call failed or operation not supported on this OS",
    400: "invalid resource handle",
    401: "the operation cannot be performed in the present state",
    402: "attempted introspection would be semantically lossy",
    500: "named symbol not found",
    600: "device not ready",
    700: "an illegal memory access was encountered",
    701: "too many resources requested for launch",
    702: "the launch timed out and was terminated",
    703: "launch uses incompatible texturing mode",
    704: "peer access is already enabled",
    705: "peer access has not been enabled",
    708: "cannot set while device is active in this process",
    709: "context is destroyed",
    710: "device-side assert triggered",
    711: "peer mapping resources exhausted",
    712: "part or all of the requested memory range is already mapped",
    713: "pointer does not correspond to a registered memory region",
    714: "hardware stack error",
    715: "an illegal instruction was encountered",
    716: "misaligned address",
    717: "operation not supported on global/shared address space",
    718: "invalid program counter",
    719: "unspecified launch failure",
    720: "too many blocks in cooperative launch",
    721: "tensor memory not completely freed",
    800: "operation not permitted",
    801: "operation not supported",
    802: "system not yet initialized",
    803: "system has unsupported display driver / cuda driver combination",
    804: "forward compatibility was attempted on non supported HW",
    805: "MPS client failed to connect to the MPS control daemon or the MPS server",
    806: "the remote procedural call between the MPS server and the MPS client failed",
    807: "MPS server is not ready to accept new MPS client requests",
    808: "the hardware resources required to create MPS client have been exhausted",
    809: "the hardware resources required to support device connections have been exhausted",
    810: "the MPS client has been terminated by the server",
    811: "is using CUDA Dynamic Parallelism, but the current configuration, like MPS, does not support it",
    812: "unsupported interaction between different versions of CUDA Dynamic Parallelism",
    900: "operation not permitted when stream is capturing",
    901: "operation failed due to a previous error during capture",
    902: "operation would result in a merge of separate capture sequences",
    903: "capture was not ended in the same stream as it began",
    904: "capturing stream has unjoined work",
    905: "dependency created on uncaptured work in another stream",
    906: "operation would make the legacy stream depend on a capturing blocking stream",
    907: "operation not permitted on an event last recorded in a capturing stream",
    908: "attempt to terminate a thread-local capture sequence from another thread",
    909: "wait operation timed out",
    910: (
        "the graph update was not performed because it included changes which violated constraints "
        "specific to instantiated graph update"
    ),
    911: "an async error has occured in external entity outside of CUDA",
    912: "a kernel launch error has occurred due to cluster misconfiguration",
    913: "the function handle is not loaded when calling an API that requires a loaded function",
    914: "one or more resources passed in are not valid resource types for the operation",
    915: "one or more resources are insufficient or non-applicable for the operation",
    916: "an error happened during the key rotation sequence",
    999: "unknown error",
}


def abi_forms(names: list[str]) -> dict[tuple[str, str], list[str]]:
    """(base name, thread suffix) -> ABI names in the order of their version number."""
    forms: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for name in names:
        match = re.fullmatch(r"(cu\w+?)(?:_v(\d+))?(_ptsz|_ptds)?", name)
        assert match
        forms[match[1], match[3] or ""].append((int(match[2] or 1), name))
    return {key: [name for _, name in sorted(found)] for key, found in forms.items()}


def versions(typedefs: str) -> dict[tuple[str, str], list[int]]:
    found: dict[tuple[str, str], set[int]] = defaultdict(set)
    for base, version, suffix in re.findall(r"PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", typedefs):
        found[base, suffix].add(int(version))
    return {key: sorted(numbers) for key, numbers in found.items()}


def rows(include: Path) -> list[tuple[str, int, bool, str]]:
    """(base name, version, per thread, ABI name), sorted."""
    header = (ROOT / "shim" / "gen" / "abi" / "cuda_abi.h").read_text()
    forms = abi_forms(re.findall(r"^CUresult (cu[A-Z]\w*)\(", header, re.M))
    known = versions("".join((include / name).read_text() for name in TYPEDEFS))
    result = []
    for (base, suffix), names in forms.items():
        numbers = known.get((base, suffix), [])
        if len(numbers) != len(names):
            raise SystemExit(f"generate_names.py: {', '.join(names)}: the typedefs have versions {numbers or 'none'}")
        result += [(base, number, bool(suffix), name) for number, name in zip(numbers, names, strict=True)]
    return sorted(result)


def errors() -> list[tuple[str, int, str]]:
    header = (ROOT / "shim" / "gen" / "abi" / "cuda_abi.h").read_text()
    found = re.findall(r"^  (CUDA_(?:SUCCESS|ERROR_\w+)) = (\d+),?$", header, re.M)
    if without := [name for name, code in found if int(code) not in TEXTS]:
        raise SystemExit(f"TEXTS has no text for {', '.join(without)}: add what cuGetErrorString says")
    return sorted(((n, int(c), TEXTS[int(c)]) for n, c in found), key=lambda row: row[1])


def render(include: Path) -> str:
    out = [
        "/* Generated by shim/codegen/generate_names.py: do not edit. "
        "Forms of entry points by name and version; error names. */"
    ]
    out += ['#include "simgpu/entries/names.h"', "", "const struct sim_form sim_forms[] = {"]
    out += [f'    {{"{b}", {v}, {"true" if t else "false"}, "{n}"}},' for b, v, t, n in rows(include)]
    out += ["};", "const unsigned sim_form_count = sizeof sim_forms / sizeof sim_forms[0];", ""]
    out += ["const struct sim_error sim_errors[] = {"]
    out += [f'    {{{code}, "{name}", "{text}"}},' for name, code, text in errors()]
    out += ["};", "const unsigned sim_error_count = sizeof sim_errors / sizeof sim_errors[0];", ""]
    return "\n".join(out)


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: generate_names.py CUDA_INCLUDE_FOLDER [OUTPUT]: the folder with cudaTypedefs.h of CUDA 13.0")
    output = Path(sys.argv[2]) if len(sys.argv) == 3 else OUTPUT
    output.write_text(render(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
