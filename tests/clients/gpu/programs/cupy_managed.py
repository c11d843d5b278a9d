"""CuPy on managed memory, a part of what is free."""

from __future__ import annotations

from common import MIB, done
from cupy_common import load_cupy, total


def main() -> None:
    cupy = load_cupy()
    cupy.cuda.set_allocator(cupy.cuda.MemoryPool(cupy.cuda.malloc_managed).malloc)
    numbers = cupy.arange(16 * MIB, dtype=cupy.float32)
    numbers *= 2
    on_host = cupy.asnumpy(numbers[::4096])
    result = {"sum": float(on_host.sum()), "at_least_64_mib": numbers.data.mem.size >= 64 * MIB}
    del numbers
    done(result, total(cupy))


if __name__ == "__main__":
    main()
