"""A stream of CuPy captured into a CUDA graph and launched again and again."""

from __future__ import annotations

from common import done
from cupy_common import load_cupy, total

LAUNCHES = 7


def main() -> None:
    cupy = load_cupy()
    numbers = cupy.arange(1000, dtype=cupy.float32)
    one = cupy.ones_like(numbers)
    cupy.add(numbers, one, out=numbers)  # compiled before the capture
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        stream.begin_capture()
        for _ in range(3):
            cupy.add(numbers, one, out=numbers)
        graph = stream.end_capture()
        for _ in range(LAUNCHES):
            graph.launch(stream)
    stream.synchronize()
    done({"first": float(numbers[0]), "sum": float(numbers.sum())}, total(cupy))


if __name__ == "__main__":
    main()
