"""A program for cuda.core: compiles a kernel, launches it on memory that it allocated, checks the numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

N = 1000


def check_graph(device: Device, stream, code, x, y) -> None:
    """A captured graph that forks and joins, with a call back into the program; x is 3, y is 7 before."""
    saxpy, config, called = code.get_kernel("saxpy"), LaunchConfig(grid=8, block=128), []
    builder = device.create_graph_builder().begin_building()
    launch(builder, config, saxpy, np.int32(N), np.float32(1.0), x, y)
    left, right = builder.split(2)
    launch(left, config, saxpy, np.int32(N), np.float32(10.0), x, y)
    launch(right, config, code.get_kernel("fill_f32"), np.int32(0), np.float32(0.0), x)
    builder = type(builder).join(left, right)
    builder.callback(lambda: called.append(1))
    graph = builder.end_building().complete()
    graph.upload(stream)
    for _ in range(2):
        graph.launch(stream)
    stream.sync()
    assert called == [1, 1]
    np.testing.assert_array_equal(read(y), np.full(N, 7 + 2 * 33, dtype=np.float32))


def read(buffer) -> np.ndarray:
    from cuda.bindings import driver

    out = np.zeros(N, dtype=np.float32)
    (code,) = driver.cuMemcpyDtoH(out.ctypes.data, int(buffer.handle), out.nbytes)
    assert int(code) == 0
    return out


def main() -> None:
    device = Device()
    device.set_current()
    stream = device.create_stream()
    source = Path(__file__).with_name("kernels.cu").read_text()
    program = Program(source, code_type="c++", options=ProgramOptions(std="c++17", arch=f"sm_{device.arch}"))
    code = program.compile("cubin")
    saxpy, fill = code.get_kernel("saxpy"), code.get_kernel("fill_f32")
    assert saxpy.num_arguments == 4
    assert [(p.offset, p.size) for p in saxpy.arguments_info] == [(0, 4), (4, 4), (8, 8), (16, 8)]
    x, y = device.allocate(4 * N, stream=stream), device.allocate(4 * N, stream=stream)
    config = LaunchConfig(grid=8, block=128)
    launch(stream, config, fill, np.int32(N), np.float32(3.0), x)
    launch(stream, config, fill, np.int32(N), np.float32(1.0), y)
    launch(stream, config, saxpy, np.int32(N), np.float32(2.0), x, y)
    stream.sync()
    np.testing.assert_array_equal(read(y), np.full(N, 7, dtype=np.float32))
    check_graph(device, stream, code, x, y)
    event = stream.record()
    event.sync()
    print("ok")


if __name__ == "__main__":
    main()
