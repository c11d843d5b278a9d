"""A program for numba-cuda: a kernel written in Python, compiled and launched, its numbers checked."""

from __future__ import annotations

import warnings

import numpy as np
from numba import cuda

N = 1000


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


def main() -> None:
    warnings.simplefilter("ignore")  # a grid so small leaves most of a device idle
    x, y = np.arange(N, dtype=np.float32), np.ones(N, dtype=np.float32)
    on_device = cuda.to_device(x), cuda.to_device(y)
    saxpy[8, 128](np.float32(2.0), *on_device)
    cuda.synchronize()
    np.testing.assert_array_equal(on_device[1].copy_to_host(), 2 * x + y)
    stream = cuda.stream()
    pinned = cuda.pinned_array(N, dtype=np.float32)
    pinned[:] = 5
    copy = cuda.to_device(pinned, stream=stream)
    saxpy[8, 128, stream](np.float32(-1.0), copy, copy)
    stream.synchronize()
    np.testing.assert_array_equal(copy.copy_to_host(), np.zeros(N, dtype=np.float32))
    begin, end = cuda.event(), cuda.event()
    begin.record()
    end.record()
    end.synchronize()
    assert cuda.event_elapsed_time(begin, end) >= 0
    print("ok")


if __name__ == "__main__":
    main()
