"""CuPy's RawKernel: a kernel in CUDA C, compiled by NVRTC, on a stream of its own."""

from __future__ import annotations

from common import done
from cupy_common import load_cupy, total

SOURCE = """
extern "C" __global__ void mix(const unsigned *in, unsigned *out, unsigned count) {
  unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) out[i] = in[i] * 2654435761u ^ in[(i + 1) % count];
}
"""
COUNT = 100_000


def main() -> None:
    cupy = load_cupy()
    mix = cupy.RawKernel(SOURCE, "mix")
    numbers = cupy.arange(COUNT, dtype=cupy.uint32)
    out = cupy.empty_like(numbers)
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        for _ in range(10):
            mix(((COUNT + 255) // 256,), (256,), (numbers, out, cupy.uint32(COUNT)))
            numbers, out = out, numbers
        sum_ = numbers.sum(dtype=cupy.uint64)
    stream.synchronize()
    done({"sum": int(sum_), "first": cupy.asnumpy(numbers[:4]).tolist()}, total(cupy))


if __name__ == "__main__":
    main()
