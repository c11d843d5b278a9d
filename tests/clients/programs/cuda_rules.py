"""A program for cuda.bindings.driver that does what must not be done: every wrong call has its own code.

Stream capture, graphs, launches, images. The codes are those of the driver's documentation.
"""

from __future__ import annotations

import threading

import numpy as np
from cuda.bindings import driver
from cuda_python import Kernels, compile_cubin, ok, upload

N = 100
GLOBAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
LOCAL = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
RELAXED = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
NON_BLOCKING = driver.CUstream_flags.CU_STREAM_NON_BLOCKING
NO_TIMING = driver.CUevent_flags.CU_EVENT_DISABLE_TIMING


def refuses(answer, name: str) -> None:
    """The call answered exactly CUDA_ERROR_<name>."""
    assert answer[0] == getattr(driver.CUresult, f"CUDA_ERROR_{name}"), f"{answer[0]} and not {name}"


def new_stream(flags=NON_BLOCKING):
    return ok(driver.cuStreamCreate(flags))


def status_of(stream) -> int:
    return int(ok(driver.cuStreamIsCapturing(stream)))


def check_unjoined(kernels: Kernels, data) -> None:
    stream, side, event = kernels.stream, new_stream(), ok(driver.cuEventCreate(NO_TIMING))
    ok(driver.cuStreamBeginCapture(stream, LOCAL))
    kernels.fill(N, 1.0, data)
    ok(driver.cuEventRecord(event, stream))
    ok(driver.cuStreamWaitEvent(side, event, 0))
    ok(driver.cuMemsetD8Async(data, 0, N, side))
    assert status_of(side) == 1
    refuses(driver.cuStreamEndCapture(side), "STREAM_CAPTURE_UNMATCHED")
    refuses(driver.cuStreamEndCapture(stream), "STREAM_CAPTURE_UNJOINED")
    assert (status_of(stream), status_of(side)) == (0, 0)
    ok(driver.cuStreamSynchronize(side))


def check_isolation(kernels: Kernels, data) -> None:
    stream, outside, event = kernels.stream, new_stream(), ok(driver.cuEventCreate(NO_TIMING))
    ok(driver.cuEventRecord(event, outside))
    ok(driver.cuStreamBeginCapture(stream, LOCAL))
    refuses(driver.cuStreamWaitEvent(stream, event, 0), "STREAM_CAPTURE_ISOLATION")
    driver.cuStreamEndCapture(stream)


def check_unsafe_calls(kernels: Kernels, data) -> None:
    stream = kernels.stream
    ok(driver.cuStreamBeginCapture(stream, GLOBAL))
    refuses(driver.cuStreamSynchronize(stream), "STREAM_CAPTURE_UNSUPPORTED")
    assert status_of(stream) == 2
    refuses(driver.cuStreamEndCapture(stream), "STREAM_CAPTURE_INVALIDATED")
    refuses(driver.cuStreamEndCapture(stream), "ILLEGAL_STATE")
    refuses(driver.cuStreamBeginCapture(driver.CUstream(0), LOCAL), "STREAM_CAPTURE_UNSUPPORTED")


def check_legacy_stream(kernels: Kernels, data) -> None:
    blocking = new_stream(driver.CUstream_flags.CU_STREAM_DEFAULT)
    ok(driver.cuStreamBeginCapture(blocking, RELAXED))
    refuses(driver.cuStreamIsCapturing(driver.CUstream(0)), "STREAM_CAPTURE_IMPLICIT")
    assert status_of(blocking) == 1  # asking does no harm
    refuses(driver.cuMemsetD8Async(data, 0, N, driver.CUstream(0)), "STREAM_CAPTURE_IMPLICIT")
    refuses(driver.cuStreamEndCapture(blocking), "STREAM_CAPTURE_INVALIDATED")


def check_events(kernels: Kernels, data) -> None:
    """To look at an event is unsafe unless the thread is relaxed, and at one of a whole context always."""
    stream, event = kernels.stream, ok(driver.cuEventCreate(NO_TIMING))
    outside = new_stream()
    ok(driver.cuStreamBeginCapture(stream, GLOBAL))
    ok(driver.cuEventRecord(event, outside))
    ok(driver.cuMemsetD8Async(data, 0, N, outside))
    before = ok(driver.cuThreadExchangeStreamCaptureMode(RELAXED))
    ok(driver.cuEventSynchronize(event))
    ok(driver.cuEventQuery(event))
    ok(driver.cuThreadExchangeStreamCaptureMode(before))
    assert status_of(stream) == 1
    refuses(driver.cuEventQuery(event), "STREAM_CAPTURE_UNSUPPORTED")
    refuses(driver.cuStreamEndCapture(stream), "STREAM_CAPTURE_INVALIDATED")
    ok(driver.cuStreamBeginCapture(stream, RELAXED))
    refuses(driver.cuCtxRecordEvent(ok(driver.cuCtxGetCurrent()), event), "STREAM_CAPTURE_UNSUPPORTED")
    refuses(driver.cuStreamEndCapture(stream), "STREAM_CAPTURE_INVALIDATED")


def check_threads(kernels: Kernels, data) -> None:
    stream, codes, context = kernels.stream, [], ok(driver.cuCtxGetCurrent())

    def end_from_elsewhere() -> None:
        ok(driver.cuCtxSetCurrent(context))
        codes.append(driver.cuStreamEndCapture(stream)[0])

    ok(driver.cuStreamBeginCapture(stream, LOCAL))
    thread = threading.Thread(target=end_from_elsewhere)
    thread.start()
    thread.join()
    assert codes == [driver.CUresult.CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD], codes
    graph = ok(driver.cuStreamEndCapture(stream))
    assert ok(driver.cuGraphGetNodes(graph))[1] == 0
    ok(driver.cuGraphDestroy(graph))


def check_graphs(kernels: Kernels, data) -> None:
    graph, other = ok(driver.cuGraphCreate(0)), ok(driver.cuGraphCreate(0))
    first = ok(driver.cuGraphAddEmptyNode(graph, None, 0))
    second = ok(driver.cuGraphAddEmptyNode(graph, [first], 1))
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphAddEmptyNode(other, None, 0))
    refuses(driver.cuGraphExecUpdate(executable, other), "GRAPH_EXEC_UPDATE_FAILURE")
    refuses(driver.cuGraphAddEmptyNode(other, [second], 1), "INVALID_VALUE")
    ok(driver.cuGraphLaunch(executable, kernels.stream))
    ok(driver.cuStreamSynchronize(kernels.stream))
    for each in (graph, other):
        ok(driver.cuGraphDestroy(each))
    ok(driver.cuGraphExecDestroy(executable))


def check_launches(kernels: Kernels, data) -> None:
    function = ok(driver.cuModuleGetFunction(kernels.module, b"saxpy"))

    def launch(grid, block, shared=0, params=((), ())):
        return driver.cuLaunchKernel(function, *grid, *block, shared, kernels.stream, params, 0)

    refuses(launch((0, 1, 1), (32, 1, 1)), "INVALID_VALUE")
    refuses(launch((1, 1, 1), (2048, 1, 1)), "INVALID_VALUE")
    refuses(launch((1, 65536, 1), (32, 1, 1)), "INVALID_VALUE")
    refuses(launch((1, 1, 1), (32, 1, 1), shared=49153), "INVALID_VALUE")
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    refuses(driver.cuFuncSetAttribute(function, attribute, 1 << 20), "INVALID_VALUE")
    ok(driver.cuFuncSetAttribute(function, attribute, 100_000))
    assert ok(driver.cuFuncGetAttribute(attribute, function)) == 100_000


def check_context_of_a_capture() -> None:
    """A context that goes away in the middle of a capture takes it along: other contexts are not held up by it."""
    before = ok(driver.cuCtxGetCurrent())
    context = ok(driver.cuCtxCreate(None, 0, 0))
    ok(driver.cuStreamBeginCapture(new_stream(), GLOBAL))
    ok(driver.cuCtxDestroy(context))
    ok(driver.cuCtxSetCurrent(before))
    ok(driver.cuMemFree(ok(driver.cuMemAlloc(1 << 20))))


def main() -> None:
    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    capability = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
    image = compile_cubin(ok(driver.cuDeviceGetAttribute(capability, device)), 0)
    kernels = Kernels(ok(driver.cuModuleLoadData(image)), new_stream())
    data = upload(np.zeros(N, dtype=np.float32))
    for check in (
        check_unjoined,
        check_isolation,
        check_unsafe_calls,
        check_legacy_stream,
        check_events,
        check_threads,
        check_graphs,
        check_launches,
    ):
        check(kernels, data)
    check_context_of_a_capture()
    ok(driver.cuCtxSynchronize())
    print("ok")


if __name__ == "__main__":
    main()
