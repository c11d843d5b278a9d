"""CuPy's memory pool: what it keeps, gives back and refuses; and its pool of the driver's stream-ordered memory."""

from __future__ import annotations

from common import MIB, done, raises
from cupy_common import load_cupy, total


def use(cupy, limit: int) -> dict[str, object]:
    ones = cupy.ones(64 * MIB, dtype=cupy.uint8)
    found = {"sum": int(ones.sum(dtype=cupy.int64))}
    out_of_memory = (MemoryError, cupy.cuda.runtime.CUDARuntimeError)
    found["over_refused"] = raises(out_of_memory, lambda: cupy.empty(limit + MIB, dtype=cupy.uint8))
    found["goes_on"] = int(cupy.arange(1000).sum())
    return found


def main() -> None:
    cupy = load_cupy()
    limit = total(cupy)
    pool = cupy.get_default_memory_pool()
    result = {"pool": use(cupy, limit), "keeps": pool.total_bytes() >= 64 * MIB}
    pool.free_all_blocks()
    result["gave_back"] = pool.total_bytes() < 64 * MIB
    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    result["async_pool"] = use(cupy, limit)
    done(result, limit)


if __name__ == "__main__":
    main()
