"""Prints, as JSON, how long kernels of a known length took: 20 by launches, 20 as nodes of a graph, by events (ms)."""

from __future__ import annotations

import json

import numpy as np
from cuda.bindings import driver
from cuda_python import ok

COUNT = 20
PTX = b""".version 7.0
.target sm_80
.address_size 64
.visible .entry spin_1000() { ret; }
\0"""


def main() -> None:
    ok(driver.cuInit(0))
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(0))))
    module = ok(driver.cuModuleLoadData(np.char.array(PTX)))
    function = ok(driver.cuModuleGetFunction(module, b"spin_1000"))
    stream = ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    begin, middle, end = (ok(driver.cuEventCreate(0)) for _ in range(3))
    local = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL

    def launch() -> None:
        for _ in range(COUNT):
            ok(driver.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, ((), ()), 0))

    ok(driver.cuStreamBeginCapture(stream, local))
    launch()
    graph = ok(driver.cuGraphInstantiate(ok(driver.cuStreamEndCapture(stream)), 0))
    ok(driver.cuEventRecord(begin, stream))
    launch()
    ok(driver.cuEventRecord(middle, stream))
    ok(driver.cuGraphLaunch(graph, stream))
    ok(driver.cuEventRecord(end, stream))
    ok(driver.cuStreamSynchronize(stream))
    times = [ok(driver.cuEventElapsedTime(begin, middle)), ok(driver.cuEventElapsedTime(middle, end))]
    print(json.dumps({"launched_ms": times[0], "graph_ms": times[1]}))


if __name__ == "__main__":
    main()
