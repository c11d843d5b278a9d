"""A program for cuda.core: compiles a kernel, launches it on memory that it allocated, checks the numbers."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

N = 1000


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
    from cuda.bindings import driver

    out = np.zeros(N, dtype=np.float32)
    (code_of_copy,) = driver.cuMemcpyDtoH(out.ctypes.data, int(y.handle), out.nbytes)
    assert int(code_of_copy) == 0
    np.testing.assert_array_equal(out, np.full(N, 7, dtype=np.float32))
    event = stream.record()
    event.sync()
    assert ctypes.sizeof(ctypes.c_void_p) == 8
    print("ok")


if __name__ == "__main__":
    main()
