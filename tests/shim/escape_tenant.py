"""A tenant that would have the ledger lose count, for test_memory.py: what it and the device say after each step."""

from __future__ import annotations

import ctypes
import json
import sys
import threading

from ledger_tenant import DEVICE_LOCATION, MIB, Cuda, PoolProps, charged_and_taken, graph_exec, u64

Steps = list[tuple[str, int, int, int]]


def many_pools(cuda: Cuda) -> Steps:
    """The pool after hundreds of others is charged as the first was."""
    props = PoolProps(type=1, location=(DEVICE_LOCATION, 0))
    codes = {cuda.make("cuMemPoolCreate", ctypes.byref(props)) for _ in range(300)}
    code = cuda.make("cuMemAllocFromPoolAsync", ctypes.c_size_t(64 * MIB), cuda.out, None)
    return [("create", max(codes), 0, 0), ("alloc", code, *charged_and_taken(cuda))]


def graph_after_its_context(cuda: Cuda) -> Steps:
    """A graph may be launched when the context that was current at its making is gone."""
    assert cuda.make("cuCtxCreate_v2", 0, 0) == 0
    made_in = cuda.out.value
    assert graph_exec(cuda, [64 * MIB]) == 0
    assert cuda.call("cuCtxDestroy_v2", u64(made_in)) == 0
    return [("launch", cuda.call("cuGraphLaunch", cuda.out, None), *charged_and_taken(cuda))]


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


def main() -> None:
    cuda = Cuda()
    assert cuda.start() == 0
    print(json.dumps({"steps": globals()[sys.argv[1]](cuda)}))


if __name__ == "__main__":
    main()
