"""A tenant whose memory is arrays: `python array_tenant.py SCENARIO` prints one JSON object."""

from __future__ import annotations

import ctypes
import json
import random
import sys
import threading
from typing import Any

from ledger_tenant import (  # type: ignore[import-not-found, unused-ignore]
    GRANULE,
    AllocationProp,
    Cuda,
    Location,
    charged_and_taken,
    u64,
    used_bytes,
)

FLOAT, BYTE, NV12, BC1 = 0x20, 0x01, 0xB0, 0x91
LAYERED, CUBEMAP, SPARSE, DEFERRED = 0x01, 0x04, 0x40, 0x80


def ledger_difference(cuda: Cuda) -> int:
    """By how much ledger and server differ."""
    charged, used = charged_and_taken(cuda)
    return int(charged - used)


class Descriptor(ctypes.Structure):
    _fields_ = [
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
        ("depth", ctypes.c_size_t),
        ("format", ctypes.c_int),
        ("channels", ctypes.c_uint),
        ("flags", ctypes.c_uint),
    ]


class MapInfo(ctypes.Structure):
    _fields_ = [
        ("resource_type", ctypes.c_int),
        ("array", u64),
        ("subresource_type", ctypes.c_int),
        ("pad", ctypes.c_int),
        ("level", ctypes.c_uint * 8),  # level, layer, three offsets, three extents
        ("operation", ctypes.c_int),
        ("handle_type", ctypes.c_int),
        ("handle", u64),
        ("offset", u64),
        ("devices", ctypes.c_uint),
        ("rest", ctypes.c_uint * 3),
    ]


def make(cuda: Cuda, *shape: int, levels: int = 0) -> int:
    """Makes an array, mipmapped when it has levels. Returns the code; the handle is cuda.out."""
    descriptor = Descriptor(*shape)
    if levels:
        return int(cuda.make("cuMipmappedArrayCreate", ctypes.byref(descriptor), levels))
    return int(cuda.make("cuArray3DCreate_v2", ctypes.byref(descriptor)))


def destroy(cuda: Cuda, handle: int, levels: int = 0) -> int:
    return int(cuda.call("cuMipmappedArrayDestroy" if levels else "cuArrayDestroy", u64(handle)))


SHAPES: list[tuple[tuple[int, ...], int]] = [
    ((4096, 1000, 0, FLOAT, 1, 0), 0),
    ((4096, 1024, 0, BYTE, 2, 0), 0),
    ((1000, 0, 0, FLOAT, 4, 0), 0),
    ((131072, 0, 0, FLOAT, 4, 0), 0),
    ((129, 65, 33, BYTE, 2, 0), 0),
    ((100, 100, 7, FLOAT, 1, LAYERED), 0),
    ((300, 300, 6, FLOAT, 1, CUBEMAP), 0),
    ((1920, 1080, 0, NV12, 3, 0), 0),
    ((2048, 2048, 0, BC1, 4, 0), 0),
    ((1000, 1000, 0, FLOAT, 1, 0), 1),
    ((1000, 1000, 0, FLOAT, 1, 0), 50),
    ((500, 500, 40, BYTE, 4, LAYERED), 9),
    ((256, 256, 256, BYTE, 1, 0), 9),
    ((4096, 4096, 0, FLOAT, 1, SPARSE), 0),
    ((4096, 4096, 0, FLOAT, 1, DEFERRED), 0),
    ((0, 4, 0, FLOAT, 1, 0), 0),  # refused from here on
    ((16, 16, 0, FLOAT, 3, 0), 0),
    ((16, 16, 0, 0x77, 1, 0), 0),
]


def shapes() -> dict[str, Any]:
    """Every kind of array up and down again: what it costs, by ledger and device."""
    cuda = Cuda()
    assert cuda.start() == 0
    rows = []
    for shape, levels in SHAPES:
        code = make(cuda, *shape, levels=levels)
        up = ledger_difference(cuda)
        if code == 0:
            assert destroy(cuda, cuda.output.value, levels) == 0
        rows.append((shape, levels, code, up, ledger_difference(cuda)))
    return {"rows": rows}


def allocate_too_much() -> dict[str, Any]:
    """20 GiB, each way."""
    cuda = Cuda()
    assert cuda.start() == 0
    before = used_bytes()
    wide = (131072, 40960, 0, FLOAT, 1, 0)
    codes = [
        make(cuda, *wide),
        make(cuda, 4096, 4096, 320, FLOAT, 1, LAYERED),
        make(cuda, 32768, 32768, 0, FLOAT, 4, 0, levels=9),
    ]
    return {
        "codes": codes,
        "output": cuda.output.value,
        "taken": used_bytes() - before,
        "charged": cuda.charged_bytes() - before,
    }


def sparse() -> dict[str, Any]:
    """Memory that is mapped into arrays, without its handle: charged until the last of it is unmapped."""
    cuda = Cuda()
    assert cuda.start() == 0
    steps: list[tuple[str, int, int, int]] = []

    def step(name: str, code: int) -> int:
        steps.append((name, code, ledger_difference(cuda), used_bytes()))
        return int(cuda.output.value)

    def pool(size: int) -> int:
        prop = AllocationProp(type=1, location=Location(1, 0))
        prop.rest[1] = 1 << 16  # usage: a pool of tiles
        return step("pool", cuda.make("cuMemCreate", ctypes.c_size_t(size), ctypes.byref(prop), u64(0)))

    def tiles(name: str, array: int, handle: int, x: int, width: int, height: int) -> None:
        info = MapInfo(array=array, operation=1 if handle else 2, handle=handle, devices=1)
        info.level[:] = (0, 0, x, 0, 0, width, height, 1)
        step(name, cuda.call("cuMemMapArrayAsync", ctypes.byref(info), 1, None))

    array = step("sparse", make(cuda, 1024, 1024, 0, FLOAT, 1, SPARSE))
    deferred = step("deferred", make(cuda, 1024, 1000, 0, FLOAT, 1, DEFERRED))
    first, second, third = pool(GRANULE), pool(2 * GRANULE), pool(2 * GRANULE)
    tiles("map", array, first, 256, 512, 1024)
    step("release", cuda.call("cuMemRelease", u64(first)))
    tiles("hole", array, 0, 384, 128, 256)
    tiles("over it", array, second, 0, 1024, 512)
    step("release", cuda.call("cuMemRelease", u64(second)))
    tiles("unmap some", array, 0, 0, 1024, 768)
    tiles("refused", array, 0, 1, 1, 1)
    tiles("unmap all", array, 0, 0, 1024, 1024)
    tiles("whole", deferred, third, 0, 0, 0)
    step("release", cuda.call("cuMemRelease", u64(third)))
    step("end of array", destroy(cuda, deferred))
    step("end of array", destroy(cuda, array))
    assert cuda.make("cuCtxCreate_v2", 0, 0) == 0
    context = step("context", 0)
    array = step("sparse", make(cuda, 1024, 1024, 0, FLOAT, 1, SPARSE))
    first = pool(GRANULE)
    tiles("map", array, first, 0, 512, 1024)
    step("release", cuda.call("cuMemRelease", u64(first)))
    assert cuda.call("cuCtxDestroy_v2", u64(context)) == 0 == cuda.start()
    step("end of context", 0)
    return {"steps": steps}


def churn() -> dict[str, Any]:
    """Threads in two contexts make and destroy arrays of all sizes; ledger and device are compared when all rest."""
    cuda = Cuda()
    assert cuda.start() == 0
    contexts = []
    for _ in range(2):
        assert cuda.make("cuCtxCreate_v2", 0, 0) == 0
        contexts.append(cuda.output.value)
    rest = threading.Barrier(5)
    failures: list[str] = []

    def work(number: int) -> None:
        mine, chance = Cuda(), random.Random(number)
        live: list[tuple[int, int]] = []
        code = mine.call("cuCtxSetCurrent", ctypes.c_void_p(contexts[number % 2]))
        for turn in range(10):
            for _ in range(30):
                if live and chance.random() < 0.5:
                    code = code or destroy(mine, *live.pop(chance.randrange(len(live))))
                    continue
                levels = chance.choice((0, 0, 0, 4))
                width, height = chance.randrange(1, 1200), chance.randrange(1, 1200)
                code = code or make(mine, width, height, 0, BYTE, 1, 0, levels=levels)
                live.append((mine.output.value, levels))
            if code:
                failures.append(f"thread {number}, turn {turn}: {code}")
            rest.wait()  # the main thread looks between these two
            rest.wait()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    differences, most = [], 0
    for _ in range(10):
        rest.wait()
        differences.append(ledger_difference(cuda))
        most = max(most, used_bytes())
        rest.wait()
    for worker in workers:
        worker.join()
    for context in contexts:
        assert cuda.call("cuCtxDestroy_v2", u64(context)) == 0
    assert cuda.start() == 0
    return {"failures": failures, "apart": differences, "most": most, "end": ledger_difference(cuda)}


if __name__ == "__main__":
    print(json.dumps({"shapes": shapes, "refused": allocate_too_much, "sparse": sparse, "churn": churn}[sys.argv[1]]()))
