"""A tenant with green contexts, for test_memory.py: what ledger and device say after each step."""

from __future__ import annotations

import ctypes
import json

from ledger_tenant import MIB, Cuda, charged_and_taken

handle = ctypes.c_void_p


def main() -> None:
    """Green contexts beside a context of the program's own: they hold the primary one, which holds their memory."""
    cuda = Cuda()
    steps: list[tuple[str, int, int, int]] = []
    own, resource, descriptor = handle(), ctypes.create_string_buffer(144), handle()

    def step(name: str, code: int) -> None:
        cuda.call("cuCtxPushCurrent_v2", own)
        steps.append((name, code, *charged_and_taken(cuda)))
        cuda.call("cuCtxPopCurrent_v2", ctypes.byref(handle()))

    def green() -> ctypes.c_void_p:
        made = handle()
        step("green", cuda.call("cuGreenCtxCreate", ctypes.byref(made), descriptor, 0, 1))
        return made

    assert cuda.call("cuInit", 0) == 0
    step("start", cuda.call("cuCtxCreate_v2", ctypes.byref(own), 0, 0))
    step("resource", cuda.call("cuDeviceGetDevResource", 0, resource, 1))
    step("descriptor", cuda.call("cuDevResourceGenerateDesc", ctypes.byref(descriptor), resource, 1))
    first, second = green(), green()
    step("current", cuda.call("cuCtxSetCurrent", first))
    step("alloc", cuda.alloc(64 * MIB))
    kept = cuda.output.value
    step("destroy", cuda.call("cuGreenCtxDestroy", first))
    step("current", cuda.call("cuCtxSetCurrent", second))
    step("free", cuda.free(kept))
    step("alloc, never freed", cuda.alloc(32 * MIB))
    primary = handle()
    step("retain", cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(primary), 0))
    step("release", cuda.call("cuDevicePrimaryCtxRelease_v2", 0))
    step("destroy", cuda.call("cuGreenCtxDestroy", second))
    green()
    step("reset", cuda.call("cuDevicePrimaryCtxReset_v2", 0))
    green()
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
