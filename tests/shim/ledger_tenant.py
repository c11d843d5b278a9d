"""A tenant for the tests of ledger and link: `python ledger_tenant.py <scenario> [argument...]` prints one JSON object.

Runs with libvgpu.so preloaded and ledger_driver.c behind it (VGPU_DRIVER). `Cuda` calls the hook, `driver` asks the
driver itself what is taken from the device, so every scenario can compare ledger and device.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vgpud.simdevice import state_page

MIB = 1 << 20
GRANULE = 2 * MIB
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
UNTOUCHED = 0xDEADBEEF
DEVICE_LOCATION = 1
u64 = ctypes.c_uint64

driver = ctypes.CDLL(os.environ["VGPU_DRIVER"])


def used_bytes(device: int = 0) -> int:
    """What the driver itself says is taken from a device, in bytes."""
    if hasattr(driver, "ledger_used"):
        driver.ledger_used.restype = u64
        return int(driver.ledger_used(device))
    # Asked by any name, the simulated driver may be met through the hook: its server's page does not pass the hook.
    return state_page.read(Path(os.environ["SIM_PAGE"])).devices[device].used_bytes


class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class AllocationProp(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("rest", ctypes.c_uint64 * 8),
    ]


class PoolProps(ctypes.Structure):
    _fields_ = [
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", Location),
        ("security", ctypes.c_void_p),
        ("max_size", ctypes.c_size_t),
        ("rest", ctypes.c_ubyte * 56),
    ]


class AllocNode(ctypes.Structure):
    _fields_ = [
        ("props", PoolProps),
        ("access", ctypes.c_void_p),
        ("access_count", ctypes.c_size_t),
        ("bytes", ctypes.c_size_t),
        ("address", u64),
    ]


class ArrayDescriptor(ctypes.Structure):
    _fields_ = [
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
    ]


class Cuda:
    """The hooked driver: every call returns its code; results of the last one are in `output`."""

    def __init__(self) -> None:
        self.lib = ctypes.CDLL("libcuda.so.1")
        self.output = u64(UNTOUCHED)

    def call(self, name: str, *arguments: Any) -> int:
        return int(getattr(self.lib, name)(*arguments))

    def make(self, name: str, *arguments: Any) -> int:
        """A call whose first parameter is an output of 64 bits, kept in `output`."""
        self.output = u64(UNTOUCHED)
        return self.call(name, ctypes.byref(self.output), *arguments)

    def start(self, device: int = 0) -> int:
        """cuInit, and the primary context of a device made current. Returns the first code that is not 0."""
        code = self.call("cuInit", 0) or self.make("cuDevicePrimaryCtxRetain", device)
        return code or self.call("cuCtxSetCurrent", ctypes.c_void_p(self.output.value))

    def alloc(self, size: int) -> int:
        return self.make("cuMemAlloc_v2", ctypes.c_size_t(size))

    def free(self, address: int) -> int:
        return self.call("cuMemFree_v2", u64(address))

    def info(self) -> tuple[int, int]:
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        assert self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total)) == 0
        return free.value, total.value

    def charged_bytes(self) -> int:
        """What the ledger says this slice uses (one process, limit below the device)."""
        free, total = self.info()
        return total - free


def vmm(cuda: Cuda, size: int, kind: int = DEVICE_LOCATION) -> int:
    prop = AllocationProp(type=1, location=Location(kind, 0))
    return cuda.make("cuMemCreate", ctypes.c_size_t(size), ctypes.byref(prop), u64(0))


def reserve(cuda: Cuda, size: int) -> int:
    """Addresses to map memory at, or 0."""
    code = cuda.make("cuMemAddressReserve", ctypes.c_size_t(size), ctypes.c_size_t(0), u64(0), u64(0))
    return 0 if code else cuda.output.value


def graph_exec(cuda: Cuda, sizes: list[int]) -> int:
    assert cuda.make("cuGraphCreate", 0) == 0
    graph = u64(cuda.output.value)
    for size in sizes:
        node = AllocNode(PoolProps(1, 0, Location(DEVICE_LOCATION, 0)), bytes=size)
        assert cuda.make("cuGraphAddMemAllocNode", graph, None, ctypes.c_size_t(0), ctypes.byref(node)) == 0
    return cuda.make("cuGraphInstantiateWithFlags", graph, u64(0))


def array(cuda: Cuda, width: int, height: int) -> int:
    return cuda.make("cuArrayCreate_v2", ctypes.byref(ArrayDescriptor(width, height, 0x20, 1)))


# ---- scenarios ----


def exact() -> dict[str, Any]:
    """Free right after the context; all of it allocated; a granule more refused; small ones packed; all back."""
    cuda = Cuda()
    start = cuda.start()
    free, total = cuda.info()
    total_mem = ctypes.c_size_t()
    cuda.call("cuDeviceTotalMem_v2", ctypes.byref(total_mem), 0)
    all_of_it = cuda.alloc(free)
    block = cuda.output.value
    full = cuda.info()[0]
    more = cuda.alloc(GRANULE)
    untouched = cuda.output.value
    small_more = cuda.alloc(256)
    small_untouched = cuda.output.value
    used = used_bytes()
    freed = cuda.free(block)
    return {
        "start": start, "free": free, "total": total, "total_mem": total_mem.value, "all": all_of_it, "full": full,
        "more": more, "untouched": untouched, "small_more": small_more, "small_untouched": small_untouched,
        "taken": used, "freed": freed, "after": cuda.info()[0],
    }  # fmt: skip


def charged_and_taken(cuda: Cuda) -> tuple[int, int]:
    """Both in bytes; the simulated server's page may be a moment late."""
    end = time.monotonic() + 2
    while cuda.charged_bytes() != used_bytes() and time.monotonic() < end:
        time.sleep(0.01)
    return cuda.charged_bytes(), used_bytes()


def follows() -> dict[str, Any]:
    """Every family up and down again; the ledger equals the device after each step."""
    cuda = Cuda()
    steps: list[tuple[str, int, int, int]] = []

    def step(name: str, code: int) -> int:
        out = cuda.output.value
        steps.append((name, code, *charged_and_taken(cuda)))
        return 0 if code else out

    step("start", cuda.start())
    small = [step("small", cuda.alloc(300_000)) for _ in range(20)]
    large = [step("large", cuda.alloc(size)) for size in (GRANULE, GRANULE + 1, 7 * MIB)]
    managed = step("managed", cuda.make("cuMemAllocManaged", ctypes.c_size_t(5 * MIB), 1))
    pitch = ctypes.c_size_t()
    pitched = step(
        "pitch", cuda.make("cuMemAllocPitch_v2", ctypes.byref(pitch), ctypes.c_size_t(100), ctypes.c_size_t(3000), 4)
    )
    for address in [*small, *large, managed, pitched]:
        step("free", cuda.free(address))
    handle = step("create", vmm(cuda, 6 * MIB))
    host = step("create on host", vmm(cuda, 6 * MIB, kind=2))
    at = reserve(cuda, 6 * MIB)
    sizes = (ctypes.c_size_t(6 * MIB), ctypes.c_size_t(0))
    step("map", cuda.call("cuMemMap", u64(at), *sizes, u64(handle), u64(0)))
    step("retain", cuda.make("cuMemRetainAllocationHandle", ctypes.c_void_p(at)))
    step("release", cuda.call("cuMemRelease", u64(handle)))
    step("release", cuda.call("cuMemRelease", u64(handle)))
    step("unmap", cuda.call("cuMemUnmap", u64(at), ctypes.c_size_t(6 * MIB)))
    if host:
        step("release host", cuda.call("cuMemRelease", u64(host)))
    first = step("async", cuda.make("cuMemAllocAsync", ctypes.c_size_t(3 * MIB), None))
    second = step("async", cuda.make("cuMemAllocAsync", ctypes.c_size_t(40 * MIB), None))
    step("free async", cuda.call("cuMemFreeAsync", u64(first), None))
    step("free of async", cuda.free(second))
    step("synchronize", cuda.call("cuCtxSynchronize"))
    plain = step("plain", cuda.alloc(9 * MIB))
    step("free async of plain", cuda.call("cuMemFreeAsync", u64(plain), None))
    props = PoolProps(1, 0, Location(DEVICE_LOCATION, 0))
    pool = step("pool", cuda.make("cuMemPoolCreate", ctypes.byref(props)))
    block = step("from pool", cuda.make("cuMemAllocFromPoolAsync", ctypes.c_size_t(50 * MIB), u64(pool), None))
    step("free", cuda.call("cuMemFreeAsync", u64(block), None))
    step("trim", cuda.call("cuMemPoolTrimTo", u64(pool), ctypes.c_size_t(0)))
    block = step("from pool", cuda.make("cuMemAllocFromPoolAsync", ctypes.c_size_t(50 * MIB), u64(pool), None))
    step("destroy", cuda.call("cuMemPoolDestroy", u64(pool)))
    assert cuda.call("cuMemPoolDestroy", u64(pool)) == INVALID_VALUE
    assert cuda.make("cuMemAllocFromPoolAsync", ctypes.c_size_t(MIB), u64(pool), None) == INVALID_VALUE
    step("free what outlived its pool", cuda.call("cuMemFreeAsync", u64(block), None))
    step("synchronize", cuda.call("cuCtxSynchronize"))
    arr = step("array", array(cuda, 4096, 1000))
    if arr:
        step("array destroy", cuda.call("cuArrayDestroy", u64(arr)))
    return {"steps": steps}


def edges() -> dict[str, Any]:
    """At the limit: what fits into memory that is taken already is given, what does not is refused and undone."""
    cuda = Cuda()
    assert cuda.start() == 0 and cuda.alloc(1000) == 0
    first = cuda.output.value
    assert cuda.make("cuMemAllocAsync", ctypes.c_size_t(MIB), None) == 0
    full = cuda.alloc(cuda.info()[0])
    results: dict[str, Any] = {"full": full, "packed": cuda.alloc(1000)}
    results["unpacked"] = cuda.alloc(GRANULE - 512)
    results["untouched"] = cuda.output.value
    results["in pool"] = cuda.make("cuMemAllocAsync", ctypes.c_size_t(20 * MIB), None)
    results["beyond pool"] = cuda.make("cuMemAllocAsync", ctypes.c_size_t(20 * MIB), None)
    results["pool untouched"] = cuda.output.value
    driver.ledger_capture(1)
    results["captured"] = cuda.make("cuMemAllocAsync", ctypes.c_size_t(500 * MIB), None)
    driver.ledger_capture(0)
    results["exact"] = cuda.charged_bytes() - used_bytes()
    results["limit"] = cuda.info()[0]
    cuda.free(first)
    results["still exact"] = cuda.charged_bytes() - used_bytes()
    return results


def graphs() -> dict[str, Any]:
    """Allocation nodes are charged as the device takes them: from the first launch until it is trimmed."""
    cuda = Cuda()
    assert cuda.start() == 0
    empty = used_bytes()
    steps: list[tuple[str, int, int, int]] = []

    def step(name: str, code: int) -> None:
        steps.append((name, code, cuda.charged_bytes() - used_bytes(), used_bytes() - empty))

    def execute(call: str, graph: int) -> int:
        return int(cuda.call(call, u64(graph), None))

    step("instantiate", graph_exec(cuda, [3 * MIB, 5 * MIB]))
    graph = cuda.output.value
    step("launch", execute("cuGraphLaunch", graph))
    step("launch again", execute("cuGraphLaunch", graph))
    step("instantiate another", graph_exec(cuda, [MIB]))
    other = cuda.output.value
    step("upload another", execute("cuGraphUpload", other))
    step("destroy", cuda.call("cuGraphExecDestroy", u64(graph)))
    step("trim", cuda.call("cuDeviceGraphMemTrim", 0))
    step("launch another", execute("cuGraphLaunch", other))
    # all there is, with what the other one keeps: that is taken back first
    step("instantiate a large one", graph_exec(cuda, [cuda.info()[0] + MIB]))
    large = cuda.output.value
    step("launch the large one", execute("cuGraphLaunch", large))
    step("instantiate one too many", graph_exec(cuda, [2048 * MIB]))
    step("upload one too many", execute("cuGraphUpload", cuda.output.value))
    step("launch one too many", execute("cuGraphLaunch", cuda.output.value))
    step("trim again", cuda.call("cuDeviceGraphMemTrim", 0))
    return {"steps": steps}


def fails() -> dict[str, Any]:
    """Every driver call of the ledger failing once: codes come through, nothing stays charged, a second try works."""
    cuda = Cuda()
    assert cuda.start() == 0
    results: dict[str, tuple[int, bool, bool, int]] = {}

    def fail(name: str, do: Callable[[], int], undo: Callable[[int], int] | None = None) -> None:
        before = cuda.charged_bytes()
        driver.ledger_fail(name.encode())
        code = do()
        consumed = bool(driver.ledger_failed())
        exact_after = cuda.charged_bytes() == before == used_bytes()
        again = do()
        if undo:
            again = again or undo(cuda.output.value)
        driver.ledger_fail(b"")
        results[name] = (code, consumed, exact_after, again)

    fail("cuMemAlloc_v2", lambda: cuda.alloc(4 * MIB), cuda.free)
    fail("cuMemAllocManaged", lambda: cuda.make("cuMemAllocManaged", ctypes.c_size_t(4 * MIB), 1), cuda.free)
    pitch = ctypes.c_size_t()
    sizes = (ctypes.c_size_t(5000), ctypes.c_size_t(1000))
    fail("cuMemAllocPitch_v2", lambda: cuda.make("cuMemAllocPitch_v2", ctypes.byref(pitch), *sizes, 4), cuda.free)
    assert cuda.alloc(4 * MIB) == 0
    block = cuda.output.value
    fail("cuMemFree_v2", lambda: cuda.free(block))
    assert cuda.alloc(1000) == 0
    small = cuda.output.value
    fail("cuMemFreeAsync", lambda: cuda.call("cuMemFreeAsync", u64(small), None))
    fail("cuMemCreate", lambda: vmm(cuda, 4 * MIB), lambda h: cuda.call("cuMemRelease", u64(h)))
    assert vmm(cuda, 4 * MIB) == 0
    handle = cuda.output.value
    where = (u64(reserve(cuda, 4 * MIB)), ctypes.c_size_t(4 * MIB))
    fail("cuMemMap", lambda: cuda.call("cuMemMap", *where, ctypes.c_size_t(0), u64(handle), u64(0)))
    fail("cuMemRelease", lambda: cuda.call("cuMemRelease", u64(handle)))
    fail("cuMemUnmap", lambda: cuda.call("cuMemUnmap", *where))
    freed = lambda a: cuda.call("cuMemFreeAsync", u64(a), None) or cuda.call("cuCtxSynchronize")  # noqa: E731
    fail("cuMemAllocAsync", lambda: cuda.make("cuMemAllocAsync", ctypes.c_size_t(4 * MIB), None), freed)
    fail("cuArrayCreate_v2", lambda: array(cuda, 4096, 1000), lambda a: cuda.call("cuArrayDestroy", u64(a)))
    fail("cuGraphInstantiateWithFlags", lambda: graph_exec(cuda, [MIB]))
    graph = cuda.output.value
    fail("cuGraphLaunch", lambda: cuda.call("cuGraphLaunch", u64(graph), None))
    fail("cuGraphExecDestroy", lambda: cuda.call("cuGraphExecDestroy", u64(graph)))
    assert cuda.call("cuDeviceGraphMemTrim", 0) == 0
    fail("cuCtxCreate_v2", lambda: cuda.make("cuCtxCreate_v2", 0, 0), lambda c: cuda.call("cuCtxDestroy_v2", u64(c)))
    return {"results": results, "charged": cuda.charged_bytes(), "used": used_bytes()}


def contexts() -> dict[str, Any]:
    """What contexts cost, and that their end returns all they held."""
    cuda = Cuda()
    used: dict[str, tuple[int, int]] = {}
    assert cuda.call("cuInit", 0) == 0

    first = 0

    def note(name: str) -> None:
        probe = cuda.call("cuCtxSetCurrent", ctypes.c_void_p(first))
        used[name] = (-1 if probe else cuda.charged_bytes(), used_bytes())

    refused = 999
    if hasattr(driver, "ledger_fail"):
        driver.ledger_fail(b"cuCtxCreate_v2")
        refused = cuda.make("cuCtxCreate_v2", 0, 0)
    assert cuda.make("cuCtxCreate_v2", 0, 0) == 0
    first = cuda.output.value
    note("first")
    assert cuda.make("cuCtxCreate_v2", 0, 0) == 0
    second = cuda.output.value
    assert cuda.alloc(100 * MIB) == 0
    assert cuda.alloc(1000) == 0
    note("second holds")
    assert cuda.call("cuCtxDestroy_v2", u64(second)) == 0
    note("second gone")
    for _ in range(2):
        assert cuda.make("cuDevicePrimaryCtxRetain", 0) == 0
    primary = cuda.output.value
    cuda.call("cuCtxSetCurrent", ctypes.c_void_p(primary))
    assert cuda.alloc(50 * MIB) == 0
    note("primary holds")
    assert cuda.call("cuDevicePrimaryCtxRelease_v2", 0) == 0
    note("released once")
    assert cuda.call("cuDevicePrimaryCtxRelease_v2", 0) == 0
    note("released")
    assert cuda.make("cuDevicePrimaryCtxRetain", 0) == 0
    cuda.call("cuCtxSetCurrent", ctypes.c_void_p(cuda.output.value))
    assert cuda.alloc(50 * MIB) == 0
    assert cuda.call("cuDevicePrimaryCtxReset_v2", 0) == 0
    note("reset")
    assert cuda.call("cuCtxDestroy_v2", u64(first)) == 0
    return {"refused": refused, "used": used, "at_end": used_bytes()}


def threads(count: str, rounds: str) -> dict[str, Any]:
    """Many threads allocate and free at the limit; never more than the limit is taken, nothing stays charged."""
    cuda = Cuda()
    assert cuda.start() == 0
    context = cuda.output.value
    free = cuda.info()[0]
    worst, codes = [0], set()

    def work(seed: int) -> None:
        mine = Cuda()
        mine.call("cuCtxSetCurrent", ctypes.c_void_p(context))
        held: list[int] = []
        for i in range(int(rounds)):
            size = (seed * 7919 + i * 104729) % (3 * GRANULE) + 1
            code = mine.alloc(size)
            codes.add(code)
            if code == 0:
                held.append(mine.output.value)
            if code or len(held) > 30:
                for address in held[: len(held) // 2 + 1]:
                    codes.add(mine.free(address))
                held = held[len(held) // 2 + 1 :]
            worst[0] = max(worst[0], used_bytes())
        for address in held:
            codes.add(mine.free(address))

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(int(count))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    again = cuda.alloc(free)
    return {"worst": worst[0], "codes": sorted(codes), "free": [free, cuda.info()[0]], "again": again}


def hold(size: str) -> dict[str, Any]:
    """Takes memory, says so, and follows orders from standard input: `a BYTES`, `f` (the last), `i`, `p`, `q`,
    `c` (closes the socket to the daemon)."""
    cuda = Cuda()
    assert cuda.start() == 0
    code = cuda.alloc(int(size)) if int(size) else 0
    held = [cuda.output.value] if int(size) else []
    print(json.dumps({"code": code}), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "q":
            break
        answer: Any = None
        if word == "a":
            begin = time.monotonic()
            answer = {"code": cuda.alloc(int(rest[0])), "seconds": time.monotonic() - begin}
            if answer["code"] == 0:
                held.append(cuda.output.value)
        elif word == "f":
            answer = {"code": cuda.free(held.pop())}
        elif word == "i":
            answer = {"info": cuda.info()}
        elif word == "p":
            answer = {"pid": os.getpid()}
        elif word == "c":
            sockets = [int(fd) for fd in os.listdir("/proc/self/fd") if _link(int(fd)).startswith("socket:")]
            for fd in sockets:
                os.close(fd)
            answer = {"closed": len(sockets)}
        print(json.dumps(answer), flush=True)
    return {}


def init(*_: str) -> dict[str, Any]:
    """cuInit and what is seen then."""
    before = os.environ.get("CUDA_VISIBLE_DEVICES")
    cuda = Cuda()
    descriptors = set(os.listdir("/proc/self/fd"))
    code = cuda.call("cuInit", 0)
    opened = sorted(int(fd) for fd in set(os.listdir("/proc/self/fd")) - descriptors)
    count = ctypes.c_int(-1)
    cuda.call("cuDeviceGetCount", ctypes.byref(count))
    seen, totals = [], []
    for i in range(max(0, count.value)):
        uuid = (ctypes.c_ubyte * 16)()
        cuda.call("cuDeviceGetUuid_v2", uuid, i)
        seen.append(uuid[0] - 1)
        total = ctypes.c_size_t()
        cuda.call("cuDeviceTotalMem_v2", ctypes.byref(total), i)
        totals.append(total.value)
    getenv = ctypes.CDLL(None).getenv
    getenv.restype = ctypes.c_char_p
    libc_sees = getenv(b"CUDA_VISIBLE_DEVICES")
    kept = (None if libc_sees is None else libc_sees.decode()) == before
    inherit = [fd for fd in opened if os.path.exists(f"/proc/self/fd/{fd}") and os.get_inheritable(fd)]
    return {
        "code": code, "seen": seen, "totals": totals, "kept": kept, "inheritable": inherit,
        "lowest": min(opened, default=3),
    }  # fmt: skip


def forks(kind: str) -> dict[str, Any]:
    """How children are made, before and after cuInit; each reports what its cuInit returned."""
    cuda = Cuda()

    def child() -> int:
        mine = Cuda()
        code = mine.start()
        return code or mine.alloc(10 * MIB)

    def in_fork() -> int:
        pid = os.fork()
        if pid == 0:
            os._exit(child())
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def in_exec(start: Callable[[list[str]], int]) -> int:
        return start([sys.executable, __file__, "exit_with_init"])

    if kind == "fork first":
        return {"child": in_fork(), "parent": cuda.start()}
    started = cuda.start()
    if kind == "fork after":
        return {"child": in_fork(), "parent": started or cuda.alloc(20 * MIB)}
    if kind == "spawn":
        spawned = os.posix_spawn(sys.executable, [sys.executable, __file__, "exit_with_init"], os.environ)
        return {"child": os.waitstatus_to_exitcode(os.waitpid(spawned, 0)[1]), "parent": started}
    if kind == "subprocess":
        return {"child": in_exec(subprocess.call), "parent": started}
    assert kind == "daemonise"
    pid = os.fork()
    if pid == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.execv(sys.executable, [sys.executable, __file__, "exit_with_init"])
    os.waitpid(pid, 0)
    return {"child": 0, "parent": started or cuda.alloc(20 * MIB)}


def fork_storm(children: str) -> dict[str, Any]:
    """Forks while other threads are inside the ledger: no child may hang on a lock that none of its threads holds."""
    cuda = Cuda()
    assert cuda.start() == 0
    context, busy, codes = cuda.output.value, True, set()

    def work() -> None:
        mine = Cuda()
        mine.call("cuCtxSetCurrent", ctypes.c_void_p(context))
        while busy:
            codes.add(mine.alloc(1000) or mine.free(mine.output.value))

    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    ends = set()
    for number in range(int(children)):
        pid = os.fork()
        if pid == 0:
            mine = Cuda()
            code = mine.start() or mine.alloc(1000) if number % 4 == 0 else mine.alloc(1000)
            os._exit(0 if code in (0, OUT_OF_MEMORY) else 1)
        ends.add(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    busy = False
    for worker in workers:
        worker.join()
    cuda.info()  # takes in what threads have in stock, which happens some time later otherwise
    return {"codes": sorted(codes), "ends": sorted(ends)}


def init_together(count: str) -> dict[str, Any]:
    """Many threads call cuInit at once: one attach, the same answer for all."""
    barrier, codes = threading.Barrier(int(count)), []

    def work() -> None:
        mine = Cuda()
        barrier.wait()
        codes.append(mine.start() or mine.alloc(MIB))

    workers = [threading.Thread(target=work) for _ in range(int(count))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return {"codes": codes}


def exit_with_init() -> dict[str, Any]:
    sys.exit(Cuda().start())


def close_all() -> dict[str, Any]:
    """A program that closes every descriptor it has not opened itself, as daemons do, and opens files of its own."""
    cuda = Cuda()
    assert cuda.start() == 0
    codes = [cuda.alloc(10 * MIB)]
    block = cuda.output.value
    os.closerange(3, 4096)
    strangers = [os.open("/tmp", os.O_TMPFILE | os.O_RDWR) for _ in range(16)]
    cuda.free(block)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and not any("socket" in _link(fd) for fd in range(64)):
        time.sleep(0.01)
    codes.append(cuda.alloc(500 * MIB))
    return {"codes": codes, "stranger": "".join(os.pread(fd, 100, 0).decode("latin1") for fd in strangers)}


def _link(fd: int) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:
        return ""


def main() -> None:
    name, *arguments = sys.argv[1:]
    print(json.dumps(globals()[name](*arguments)))


if __name__ == "__main__":
    main()
