"""A tenant that would have the ledger lose count, for test_memory.py: what it and the device say after each step."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading

from ledger_tenant import (
    DEVICE_LOCATION,
    INVALID_VALUE,
    MIB,
    OUT_OF_MEMORY,
    UNTOUCHED,
    AllocationProp,
    ArrayDescriptor,
    Cuda,
    Location,
    PoolProps,
    charged_and_taken,
    graph_exec,
    reserve,
    u64,
)

MANAGED = 2
INVALID_HANDLE = 400
UNSUPPORTED_LIMIT = 215
CAPTURE_GLOBAL = 0
Steps = list[tuple[str, int, int, int]]


def many_pools(cuda: Cuda) -> Steps:
    """The pool after hundreds of others is charged as the first was."""
    props = PoolProps(type=1, location=(DEVICE_LOCATION, 0))
    codes = {cuda.make("cuMemPoolCreate", ctypes.byref(props)) for _ in range(300)}
    code = cuda.make("cuMemAllocFromPoolAsync", ctypes.c_size_t(64 * MIB), cuda.output, None)
    return [("create", max(codes), 0, 0), ("alloc", code, *charged_and_taken(cuda))]


def graph_after_its_context(cuda: Cuda) -> Steps:
    """A graph may be launched when the context that was current at its making is gone."""
    assert cuda.make("cuCtxCreate_v2", 0, 0) == 0
    made_in = cuda.output.value
    assert graph_exec(cuda, [64 * MIB]) == 0
    assert cuda.call("cuCtxDestroy_v2", u64(made_in)) == 0
    return [("launch", cuda.call("cuGraphLaunch", cuda.output, None), *charged_and_taken(cuda))]


def primary_by_threads(cuda: Cuda) -> Steps:
    """Threads that retain and release the primary context at the same time: it is paid back at its end."""
    assert cuda.make("cuCtxCreate_v2", 0, 0) == 0
    codes = {cuda.call("cuDevicePrimaryCtxRelease_v2", 0)}

    def work() -> None:
        out = u64()
        for _ in range(200):
            codes.add(cuda.call("cuDevicePrimaryCtxRetain", ctypes.byref(out), 0))
            codes.add(cuda.call("cuDevicePrimaryCtxRelease_v2", 0))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return [("released", max(codes), *charged_and_taken(cuda))]


def managed_pools(cuda: Cuda) -> Steps:
    """Pools of managed memory, default ones and the program's own, wherever their memory prefers to be."""
    steps: Steps = []

    def step(name: str, code: int, expected_code: int = 0) -> None:
        steps.append((name, code - expected_code, *charged_and_taken(cuda)))

    for location in (Location(DEVICE_LOCATION, 0), Location(0, 0), Location(2, 0)):
        where = ctypes.byref(location)
        pools = []
        for name in ("cuMemGetDefaultMemPool", "cuMemGetMemPool"):
            step(name, cuda.make(name, where, MANAGED))
            pools.append(cuda.output.value)
        assert pools[0] == pools[1]
        props = PoolProps(MANAGED, 0, location)
        step("create", cuda.make("cuMemPoolCreate", ctypes.byref(props)))
        pools[1] = cuda.output.value
        step("set", cuda.call("cuMemSetMemPool", where, MANAGED, u64(pools[1])))
        for pool in pools:
            step("alloc", cuda.make("cuMemAllocFromPoolAsync", ctypes.c_size_t(64 * MIB), u64(pool), None))
            block = cuda.output.value
            too_much = cuda.make("cuMemAllocFromPoolAsync", ctypes.c_size_t(20480 * MIB), u64(pool), None)
            step("too much", too_much, OUT_OF_MEMORY)
            assert cuda.output.value == UNTOUCHED
            step("destroy", cuda.call("cuMemPoolDestroy", u64(pool)), INVALID_VALUE if pool == pools[0] else 0)
            step("free", cuda.call("cuMemFreeAsync", u64(block), None))
            step("synchronize", cuda.call("cuCtxSynchronize"))
        assert cuda.make("cuMemGetMemPool", where, MANAGED) == 0
        assert cuda.output.value == pools[0]
    return steps


def ended_pool(cuda: Cuda) -> Steps:
    """A pool that was destroyed while something of it is in use answers nothing any more."""
    props = PoolProps(type=1, location=(DEVICE_LOCATION, 0))
    assert cuda.make("cuMemPoolCreate", ctypes.byref(props)) == 0
    pool = u64(cuda.output.value)
    assert cuda.make("cuMemAllocFromPoolAsync", ctypes.c_size_t(8 * MIB), pool, None) == 0
    block = u64(cuda.output.value)
    assert cuda.call("cuMemPoolDestroy", pool) == 0
    buffer = ctypes.create_string_buffer(64)
    location = Location(DEVICE_LOCATION, 0)
    calls: list[tuple[str, tuple[object, ...]]] = [
        ("cuMemPoolGetAttribute", (pool, 5, buffer)),
        ("cuMemPoolSetAttribute", (pool, 4, buffer)),
        ("cuMemPoolSetAccess", (pool, None, ctypes.c_size_t(0))),
        ("cuMemPoolGetAccess", (buffer, pool, ctypes.byref(location))),
        ("cuMemPoolExportToShareableHandle", (buffer, pool, 1, u64(0))),
        ("cuMemPoolTrimTo", (pool, ctypes.c_size_t(0))),
        ("cuDeviceSetMemPool", (0, pool)),
        ("cuMemSetMemPool", (ctypes.byref(location), 1, pool)),
        ("cuMemPoolDestroy", (pool,)),
    ]
    steps = [(name, cuda.call(name, *words) - INVALID_VALUE, *charged_and_taken(cuda)) for name, words in calls]
    steps.append(("free", cuda.call("cuMemFreeAsync", block, None), 0, 0))
    return [*steps, ("synchronize", cuda.call("cuCtxSynchronize"), *charged_and_taken(cuda))]


def trim_beside_a_capture(cuda: Cuda) -> Steps:
    """A pool that gives back what it keeps, since credit is short, ends no capture of another thread."""
    assert cuda.make("cuStreamCreate", 1) == 0
    stream = u64(cuda.output.value)
    assert cuda.make("cuCtxGetCurrent") == 0
    context = ctypes.c_void_p(cuda.output.value)
    begun, done = threading.Event(), threading.Event()
    codes: list[int] = []

    def capture() -> None:
        mine = Cuda()
        codes.append(mine.call("cuCtxSetCurrent", context))
        codes.append(mine.call("cuStreamBeginCapture_v2", stream, CAPTURE_GLOBAL))
        begun.set()
        done.wait()
        codes.append(mine.call("cuStreamEndCapture", stream, ctypes.byref(mine.output)))

    assert cuda.make("cuMemAllocAsync", ctypes.c_size_t(2560 * MIB), None) == 0
    assert cuda.call("cuMemFreeAsync", u64(cuda.output.value), None) == 0
    other = threading.Thread(target=capture)
    other.start()
    begun.wait()
    code = cuda.make("cuMemAllocAsync", ctypes.c_size_t(2562 * MIB), None)
    done.set()
    other.join()
    return [("alloc", code, *charged_and_taken(cuda)), ("capture", max(codes), 0, 0)]


def own_import(cuda: Cuda) -> Steps:
    """What a program exports and imports itself is charged once, until the last of its handles and mappings is gone."""
    steps: Steps = []
    size = ctypes.c_size_t(64 * MIB)

    def step(name: str, code: int) -> int:
        steps.append((name, code, *charged_and_taken(cuda)))
        return cuda.output.value

    def export(handle: int) -> int:
        fd = ctypes.c_int(-1)
        step("export", cuda.call("cuMemExportToShareableHandle", ctypes.byref(fd), u64(handle), 1, u64(0)))
        return fd.value

    def import_memory(fd: int) -> int:
        return step("import", cuda.make("cuMemImportFromShareableHandle", ctypes.c_void_p(fd), 1))

    prop = AllocationProp(type=1, handle_types=1, location=Location(DEVICE_LOCATION, 0))
    for order in ("maker first", "import first"):
        maker = step("create", cuda.make("cuMemCreate", size, ctypes.byref(prop), u64(0)))
        first, second = export(maker), export(maker)
        again, other = import_memory(first), import_memory(second)
        os.close(second)
        step("release", cuda.call("cuMemRelease", u64(maker if order == "maker first" else again)))
        step("release", cuda.call("cuMemRelease", u64(other)))
        left = again if order == "maker first" else maker
        at = u64(reserve(cuda, size.value))
        step("map", cuda.call("cuMemMap", at, size, ctypes.c_size_t(0), u64(left), u64(0)))
        step("release", cuda.call("cuMemRelease", u64(left)))
        step("create another", cuda.make("cuMemCreate", size, ctypes.byref(prop), u64(0)))
        step("release", cuda.call("cuMemRelease", u64(cuda.output.value)))
        step("unmap", cuda.call("cuMemUnmap", at, size))
        # The descriptor alone keeps it on the device, and no ledger has it, until it is imported again.
        last = import_memory(first)
        os.close(first)
        step("release", cuda.call("cuMemRelease", u64(last)))
    return [one for one in steps if one[0] != "unmap"]


def arguments_first(cuda: Cuda) -> Steps:
    """Where nothing is left, arguments that the driver would not take are refused as such, and nothing else is."""
    assert cuda.make("cuMemAllocAsync", ctypes.c_size_t(2 * MIB), None) == 0
    assert cuda.alloc(cuda.info()[0]) == 0
    size, pitch = ctypes.c_size_t(64 * MIB), ctypes.byref(ctypes.c_size_t())
    prop, bad_prop = (AllocationProp(type=kind, location=Location(DEVICE_LOCATION, 0)) for kind in (1, 77))
    good, bad = ctypes.byref(prop), ctypes.byref(bad_prop)
    array = ctypes.byref(ArrayDescriptor(8192, 8192, 0x20, 1))
    no_stream = ctypes.c_void_p(0x10)
    calls: list[tuple[int, int]] = [
        (OUT_OF_MEMORY, cuda.make("cuMemAllocManaged", size, 1)),
        (INVALID_VALUE, cuda.make("cuMemAllocManaged", size, 8)),
        (OUT_OF_MEMORY, cuda.make("cuMemAllocPitch_v2", pitch, size, ctypes.c_size_t(4), 4)),
        (INVALID_VALUE, cuda.make("cuMemAllocPitch_v2", pitch, size, ctypes.c_size_t(4), 5)),
        (OUT_OF_MEMORY, cuda.make("cuMemCreate", size, good, u64(0))),
        (INVALID_VALUE, cuda.make("cuMemCreate", ctypes.c_size_t(3 * MIB), good, u64(0))),
        (INVALID_VALUE, cuda.make("cuMemCreate", size, good, u64(1))),
        (INVALID_VALUE, cuda.make("cuMemCreate", size, bad, u64(0))),
        (OUT_OF_MEMORY, cuda.make("cuMemAllocAsync", size, None)),
        (INVALID_HANDLE, cuda.make("cuMemAllocAsync", size, no_stream)),
        (OUT_OF_MEMORY, cuda.make("cuArrayCreate_v2", array)),
        (INVALID_VALUE, cuda.call("cuArrayCreate_v2", None, array)),
        (OUT_OF_MEMORY, cuda.make("cuCtxCreate_v2", 0, 0)),
        (INVALID_VALUE, cuda.make("cuCtxCreate_v2", 0x10000, 0)),
        (INVALID_VALUE, cuda.call("cuCtxCreate_v2", None, 0, 0)),
    ]
    return [(str(number), code - expected, *charged_and_taken(cuda)) for number, (expected, code) in enumerate(calls)]


def green_unknown(cuda: Cuda) -> Steps:
    """A green context that the driver makes and then does not report is taken back, and what is made next is known."""
    resource, descriptor, made = ctypes.create_string_buffer(144), ctypes.c_void_p(), ctypes.c_void_p()
    assert cuda.call("cuDevicePrimaryCtxRelease_v2", 0) == 0
    assert cuda.make("cuCtxCreate_v2", 0, 0) == 0
    assert cuda.call("cuDeviceGetDevResource", 0, resource, 1) == 0
    assert cuda.call("cuDevResourceGenerateDesc", ctypes.byref(descriptor), resource, 1) == 0
    steps = []
    for expected in (OUT_OF_MEMORY, 0):
        code = cuda.call("cuGreenCtxCreate", ctypes.byref(made), descriptor, 0, 1)
        steps.append(("create", code - expected, *charged_and_taken(cuda)))
    return steps


def limits(cuda: Cuda) -> Steps:
    """Stacks, heap and output buffer of device code: beyond what a context has anyway they are charged."""
    steps: Steps = []
    stack, fifo, heap = 0, 1, 2

    def limit(which: int, size: int, expected_code: int = 0) -> None:
        code = cuda.call("cuCtxSetLimit", which, ctypes.c_size_t(size))
        steps.append((f"limit {which} to {size}", code - expected_code, *charged_and_taken(cuda)))

    assert cuda.make("cuCtxCreate_v2", 0, 0) == 0
    own = u64(cuda.output.value)
    before = charged_and_taken(cuda)[0]
    for which, size in ((heap, 100 * MIB), (fifo, 64 * MIB), (stack, 4096), (heap, 30 * MIB), (stack, 512)):
        limit(which, size)
    assert charged_and_taken(cuda)[0] == before + (30 - 8 + 64 - 8) * MIB
    limit(heap, 20480 * MIB, OUT_OF_MEMORY)
    limit(stack, 1 << 60, OUT_OF_MEMORY)
    limit(77, 1, UNSUPPORTED_LIMIT)
    steps.append(("destroy", cuda.call("cuCtxDestroy_v2", own), *charged_and_taken(cuda)))
    limit(heap, 100 * MIB)
    limit(heap, 1 * MIB)
    limit(heap, 50 * MIB)
    return steps


def limit_unknown(cuda: Cuda) -> Steps:
    """A limit that the driver does not report is not changed, and the program gets the reason."""
    heap, unknown = 2, 999
    steps: Steps = []
    for expected in (unknown, 0):
        code = cuda.call("cuCtxSetLimit", heap, ctypes.c_size_t(100 * MIB))
        steps.append(("set", code - expected, *charged_and_taken(cuda)))
    return steps


def attach_context(cuda: Cuda) -> Steps:
    """A context that is attached to lives, and is charged, until as many have detached from it."""
    steps: Steps = []

    def step(name: str, code: int) -> None:
        cuda.call("cuCtxPushCurrent_v2", primary)
        steps.append((name, code, *charged_and_taken(cuda)))
        cuda.call("cuCtxPopCurrent_v2", ctypes.byref(u64()))

    assert cuda.make("cuCtxGetCurrent") == 0
    primary = ctypes.c_void_p(cuda.output.value)
    step("create", cuda.make("cuCtxCreate_v2", 0, 0))
    own = u64(cuda.output.value)
    step("attach", cuda.make("cuCtxAttach", 0))
    step("refused", cuda.make("cuCtxAttach", 1) - INVALID_VALUE)
    step("alloc", cuda.alloc(8 * MIB))
    for name in ("detach", "detach last"):
        step(name, cuda.call("cuCtxDetach", own))
    return steps


def main() -> None:
    cuda = Cuda()
    assert cuda.start() == 0
    print(json.dumps({"steps": globals()[sys.argv[1]](cuda)}))


if __name__ == "__main__":
    main()
