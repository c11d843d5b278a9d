"""A program for cuda.bindings.driver: modules, libraries, kernels, memory, streams, events, graphs and capture.

It checks every number itself; any failure ends it with a traceback. Runs on a real device as well.
"""

from __future__ import annotations

import ctypes
import tempfile
from pathlib import Path

import numpy as np
from cuda.bindings import driver, nvrtc

N = 1000


def ok(answer):
    """What a call answers, without its code."""
    assert int(answer[0]) == 0, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


def compile_cubin(major: int, minor: int) -> bytes:
    source = Path(__file__).with_name("kernels.cu").read_bytes()
    program = ok(nvrtc.nvrtcCreateProgram(source, b"kernels.cu", 0, [], []))
    ok(nvrtc.nvrtcCompileProgram(program, 1, [f"-arch=sm_{major}{minor}".encode()]))
    image = b" " * ok(nvrtc.nvrtcGetCUBINSize(program))
    ok(nvrtc.nvrtcGetCUBIN(program, image))
    return image


class Kernels:
    """The kernels of kernels.cu, launched with grid 8 x 128 threads."""

    def __init__(self, module, stream) -> None:
        self.module, self.stream = module, stream

    def launch(self, name: str, values: tuple, types: tuple) -> None:
        function = ok(driver.cuModuleGetFunction(self.module, name.encode()))
        ok(driver.cuLaunchKernel(function, 8, 1, 1, 128, 1, 1, 0, self.stream, (values, types), 0))

    def fill(self, n: int, value: float, output) -> None:
        self.launch("fill_f32", (n, value, output), (ctypes.c_int, ctypes.c_float, None))

    def saxpy(self, n: int, a: float, x, y) -> None:
        self.launch("saxpy", (n, a, x, y), (ctypes.c_int, ctypes.c_float, None, None))

    def reduce(self, n: int, values, output) -> None:
        self.launch("reduce_f32", (n, values, output), (ctypes.c_int, None, None))

    def gemm(self, m: int, n: int, k: int, a, b, c) -> None:
        self.launch("gemm_f32", (m, n, k, a, b, c), (ctypes.c_int,) * 3 + (None,) * 3)


def read(pointer, count: int) -> np.ndarray:
    out = np.zeros(count, dtype=np.float32)
    ok(driver.cuMemcpyDtoH(out.ctypes.data, pointer, out.nbytes))
    return out


def upload(values: np.ndarray):
    pointer = ok(driver.cuMemAlloc(values.nbytes))
    ok(driver.cuMemcpyHtoD(pointer, np.ascontiguousarray(values).ctypes.data, values.nbytes))
    return pointer


def check_kernels(kernels: Kernels) -> None:
    x, y = np.arange(N, dtype=np.float32), np.ones(N, dtype=np.float32)
    dx, dy, total = upload(x), upload(y), upload(np.zeros(1, dtype=np.float32))
    kernels.saxpy(N, 2.0, dx, dy)
    ok(driver.cuStreamSynchronize(kernels.stream))
    np.testing.assert_array_equal(read(dy, N), 2 * x + y)
    kernels.reduce(N, dx, total)
    ok(driver.cuStreamSynchronize(kernels.stream))
    assert read(total, 1)[0] == x.sum()
    kernels.fill(N - 1, 7.0, dx)
    ok(driver.cuCtxSynchronize())
    np.testing.assert_array_equal(read(dx, N), np.append(np.full(N - 1, 7, dtype=np.float32), x[-1]))
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(20, dtype=np.float32).reshape(4, 5)
    da, db, dc = upload(a), upload(b), upload(np.zeros((3, 5), dtype=np.float32))
    kernels.gemm(3, 5, 4, da, db, dc)
    ok(driver.cuStreamSynchronize(kernels.stream))
    np.testing.assert_array_equal(read(dc, 15).reshape(3, 5), a @ b)
    for pointer in (dx, dy, total, da, db, dc):
        ok(driver.cuMemFree(pointer))


def check_names(module, image: bytes) -> None:
    code, _ = driver.cuModuleGetFunction(module, b"no_such_kernel")
    assert code == driver.CUresult.CUDA_ERROR_NOT_FOUND, code
    pointer, size = ok(driver.cuModuleGetGlobal(module, b"answer"))
    word = np.zeros(1, dtype=np.int32)
    assert size == 4
    ok(driver.cuMemcpyDtoH(word.ctypes.data, pointer, 4))
    assert word[0] == 42
    pointer, size = ok(driver.cuModuleGetGlobal(module, b"table"))
    np.testing.assert_array_equal(read(pointer, 4), [1, 2, 3, 4])
    library = ok(driver.cuLibraryLoadData(image, [], [], 0, [], [], 0))
    kernel = ok(driver.cuLibraryGetKernel(library, b"saxpy"))
    assert ok(driver.cuKernelGetName(kernel)) == b"saxpy"
    assert [tuple(ok(driver.cuKernelGetParamInfo(kernel, i))) for i in range(4)] == [(0, 4), (4, 4), (8, 8), (16, 8)]
    function = ok(driver.cuKernelGetFunction(kernel))
    attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert ok(driver.cuFuncGetAttribute(attribute, function)) == 1024
    assert ok(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(function, 1024, 0)) >= 1
    ok(driver.cuLibraryUnload(library))
    code, *_ = driver.cuModuleLoadData(b"this is no program\0")
    assert code != driver.CUresult.CUDA_SUCCESS


def check_graph(module, stream) -> None:
    x, y = np.arange(N, dtype=np.float32), np.ones(N, dtype=np.float32)
    dx, dy, dz = upload(x), upload(y), upload(y)
    graph = ok(driver.cuGraphCreate(0))
    node_params = driver.CUDA_KERNEL_NODE_PARAMS()
    node_params.func = ok(driver.cuModuleGetFunction(module, b"saxpy"))
    node_params.gridDimX, node_params.gridDimY, node_params.gridDimZ = 8, 1, 1
    node_params.blockDimX, node_params.blockDimY, node_params.blockDimZ = 128, 1, 1
    types = (ctypes.c_int, ctypes.c_float, None, None)
    node_params.kernelParams = ((N, 2.0, dx, dy), types)
    first = ok(driver.cuGraphAddKernelNode(graph, None, 0, node_params))
    copy = driver.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.dstDevice = dy, dz
    copy.srcPitch = copy.dstPitch = copy.WidthInBytes = 4 * N
    copy.Height = copy.Depth = copy.srcHeight = copy.dstHeight = 1
    context = ok(driver.cuCtxGetCurrent())
    ok(driver.cuGraphAddMemcpyNode(graph, [first], 1, copy, context))
    assert ok(driver.cuGraphGetNodes(graph))[1] == 2
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuStreamSynchronize(stream))
    np.testing.assert_array_equal(read(dz, N), 2 * x + 1)
    node_params.kernelParams = ((N, 3.0, dx, dy), types)
    ok(driver.cuGraphExecKernelNodeSetParams(executable, first, node_params))
    ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuStreamSynchronize(stream))
    np.testing.assert_array_equal(read(dz, N), 5 * x + 1)
    check_attributes(graph, first)
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph))


def check_attributes(graph, node) -> None:
    """What is set on a kernel node is there again, also in a copy of the graph; a graph can be drawn."""
    priority = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PRIORITY
    value = driver.CUkernelNodeAttrValue()
    value.priority = -1
    ok(driver.cuGraphKernelNodeSetAttribute(node, priority, value))
    clone = ok(driver.cuGraphClone(graph))
    copied = ok(driver.cuGraphNodeFindInClone(node, clone))
    assert ok(driver.cuGraphKernelNodeGetAttribute(copied, priority)).priority == -1
    ok(driver.cuGraphDestroy(clone))
    with tempfile.TemporaryDirectory() as folder:
        drawing = Path(folder) / "graph.dot"
        ok(driver.cuGraphDebugDotPrint(graph, str(drawing).encode(), 0))
        assert "saxpy" in drawing.read_text() and "->" in drawing.read_text()


def check_capture(kernels: Kernels) -> None:
    x = np.arange(N, dtype=np.float32)
    dx, dy = upload(x), upload(x)
    stream, side = kernels.stream, ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING))
    fork, join = (ok(driver.cuEventCreate(driver.CUevent_flags.CU_EVENT_DISABLE_TIMING)) for _ in range(2))
    ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    kernels.saxpy(N, 1.0, dx, dy)
    ok(driver.cuEventRecord(fork, stream))
    ok(driver.cuStreamWaitEvent(side, fork, 0))
    ok(driver.cuMemsetD32Async(dx, 0, N, side))
    ok(driver.cuEventRecord(join, side))
    ok(driver.cuStreamWaitEvent(stream, join, 0))
    kernels.saxpy(N, 5.0, dx, dy)
    graph = ok(driver.cuStreamEndCapture(stream))
    assert ok(driver.cuGraphGetNodes(graph))[1] == 3
    np.testing.assert_array_equal(read(dy, N), x)  # nothing ran while it was captured
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuStreamSynchronize(stream))
    np.testing.assert_array_equal(read(dy, N), 2 * x)
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph))
    ok(driver.cuStreamDestroy(side))


def check_graph_memory(kernels: Kernels) -> None:
    """Memory that a graph allocates: taken at the first launch, kept for graphs until it is trimmed."""
    stream, x, bytes_ = kernels.stream, np.arange(N, dtype=np.float32), 8 << 20
    dx, dy, device = upload(x), upload(np.zeros(N, dtype=np.float32)), ok(driver.cuCtxGetDevice())

    def reserved() -> int:
        attribute = driver.CUgraphMem_attribute.CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT
        return int(ok(driver.cuDeviceGetGraphMemAttribute(device, attribute)))

    ok(driver.cuDeviceGraphMemTrim(device))
    ok(driver.cuStreamBeginCapture(stream, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
    between = ok(driver.cuMemAllocAsync(bytes_, stream))
    kernels.fill(N, 1.0, between)
    kernels.saxpy(N, 2.0, dx, between)
    ok(driver.cuMemcpyDtoDAsync(dy, between, x.nbytes, stream))
    ok(driver.cuMemFreeAsync(between, stream))
    graph = ok(driver.cuStreamEndCapture(stream))
    executable = ok(driver.cuGraphInstantiate(graph, 0))
    assert reserved() == 0
    for _ in range(2):
        ok(driver.cuGraphLaunch(executable, stream))
    ok(driver.cuStreamSynchronize(stream))
    np.testing.assert_array_equal(read(dy, N), 2 * x + 1)
    assert reserved() >= bytes_
    ok(driver.cuGraphExecDestroy(executable))
    ok(driver.cuGraphDestroy(graph))
    ok(driver.cuDeviceGraphMemTrim(device))
    assert reserved() == 0


def check_time(kernels: Kernels) -> None:
    data = upload(np.zeros(N, dtype=np.float32))
    begin, end = (ok(driver.cuEventCreate(0)) for _ in range(2))
    ok(driver.cuEventRecord(begin, kernels.stream))
    for _ in range(10):
        kernels.fill(N, 1.0, data)
    ok(driver.cuEventRecord(end, kernels.stream))
    ok(driver.cuEventSynchronize(end))
    assert ok(driver.cuEventElapsedTime(begin, end)) > 0
    asynchronous = ok(driver.cuMemAllocAsync(1 << 20, kernels.stream))
    ok(driver.cuMemFreeAsync(asynchronous, kernels.stream))
    ok(driver.cuStreamSynchronize(kernels.stream))


def main() -> None:
    ok(driver.cuInit(0))
    device = ok(driver.cuDeviceGet(0))
    capability = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    context = ok(driver.cuDevicePrimaryCtxRetain(device))
    ok(driver.cuCtxSetCurrent(context))
    image = compile_cubin(ok(driver.cuDeviceGetAttribute(capability, device)), 0)
    module = ok(driver.cuModuleLoadData(image))
    kernels = Kernels(module, ok(driver.cuStreamCreate(driver.CUstream_flags.CU_STREAM_NON_BLOCKING)))
    check_kernels(kernels)
    check_names(module, image)
    check_graph(module, kernels.stream)
    check_capture(kernels)
    check_graph_memory(kernels)
    check_time(kernels)
    ok(driver.cuModuleUnload(module))
    ok(driver.cuDevicePrimaryCtxRelease(device))
    print("ok")


if __name__ == "__main__":
    main()
