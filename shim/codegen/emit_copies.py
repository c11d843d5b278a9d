"""Hooks of copies between host and device: bytes are counted by direction, and paced where the slice has a part of the
link. Those of a stream are also what may make the stream wait, and those to the host wait for it."""

from __future__ import annotations

import re

from cudaspec import EntryPoint, Surface
from emit import NOTICE
from emit_hooks import ENTER, LEAVE
from hookdef import Row, family

TO_DEVICE, FROM_DEVICE = "VG_COPY_TO_DEVICE", "VG_COPY_FROM_DEVICE"
#: those that return when the work before them has completed
WAITING = ("cuMemcpyDtoH", "cuMemcpyAtoH")
#: families of linear copies with the direction in their name, whose copies are cut
LINEAR = re.compile(r"cuMemcpy(HtoD|DtoH)Async")


def _place(entry: EntryPoint) -> str:
    """The stream and which default stream is meant; of a copy that has none: it has completed."""
    stream = next((p.name for p in entry.parameters if p.type_text == "CUstream"), "")
    return f"{stream}, {'true' if entry.per_thread else 'false'}" if stream else "VG_GATE_ALL_STREAMS, false"


def _direction(entry: EntryPoint) -> str:
    """Of a copy with ByteCount, as C."""
    if match := re.match(r"cuMemcpy([HDA])to([HDA])", entry.name):
        return TO_DEVICE if match[1] == "H" else FROM_DEVICE
    return "vg_copy_direction(CU_MEMORYTYPE_UNIFIED, dst, CU_MEMORYTYPE_UNIFIED, src)"


def _shape(entry: EntryPoint) -> tuple[str, str]:
    """Direction and bytes of a copy with a shape, as C."""
    ends = "pCopy->dstMemoryType, pCopy->dstDevice, pCopy->srcMemoryType, pCopy->srcDevice"
    depth = " * pCopy->Depth" if "3D" in entry.name else ""
    return f"vg_copy_direction({ends})", f"(uint64_t)pCopy->WidthInBytes * pCopy->Height{depth}"


def _wait(place: str, direction: str, argument: str = "") -> str:
    """Asks for a direction that only the driver knows where copies are paced; argument: one that must be there."""
    asks = f"if (VG_UNLIKELY(vg_copy_is_paced()){f' && {argument}' if argument else ''}) " if "(" in direction else ""
    return f"{asks}vg_copy_wait({place}, {direction});"


def _count(entry: EntryPoint, place: str) -> tuple[str, str]:
    """The wait before the call and the count after it, as C statements; "": none."""
    names = [p.name for p in entry.parameters]
    if "ByteCount" in names:
        direction = _direction(entry)
        return _wait(place, direction), f"vg_copy_count({place}, {direction}, ByteCount);"
    if "pCopy" in names:
        direction, size = _shape(entry)
        return _wait(place, direction, "pCopy"), f"vg_copy_count({place}, {direction}, {size});"
    both = f"vg_copy_wait({place}, {TO_DEVICE}); vg_copy_wait({place}, {FROM_DEVICE});"
    if "opList" in names:
        return both, f"vg_copy_count_operations({place}, opList, numOps);"
    if "srcs" in names:
        return both, f"vg_copy_count_batch({place}, dsts, srcs, sizes, count);"
    if "prefetchLocs" in names:
        runs = "prefetchLocs, prefetchLocIdxs, numPrefetchLocs"
        return "", f"vg_copy_count_prefetches({place}, {runs}, sizes, count);"
    direction = "vg_copy_direction_to(location)"
    if "dstDevice" in names:
        direction = f"dstDevice == CU_DEVICE_CPU ? {FROM_DEVICE} : {TO_DEVICE}"
    return "", f"vg_copy_count({place}, {direction}, count);"


def _linear(entry: EntryPoint, place: str) -> list[str]:
    """In pieces, where the copy is cut. Between them the thread is not in the driver: the slice's memory may leave."""
    host, direction = ("srcHost", TO_DEVICE) if "HtoD" in entry.name else ("dstHost", FROM_DEVICE)
    to, source, _bytes, *rest = [p.name for p in entry.parameters]
    arguments = ", ".join([f"{to} + vg_at", f"{source} + vg_at", "vg_piece", *rest])
    return [
        "  CUresult vg_result;",
        "  size_t vg_at = 0, vg_piece;",
        "  do {",
        f"    vg_piece = vg_copy_next({place}, {direction}, {host} + vg_at, ByteCount - vg_at);",
        f"    {ENTER}",
        f"    if (!vg_at) vg_gate_wait_before({place});",
        f"    vg_result = REAL({entry.name})({arguments});",
        f"    if (vg_result == CUDA_SUCCESS) vg_copy_count({place}, {direction}, vg_piece);",
        f"    if (vg_result == CUDA_SUCCESS) vg_gate_wait_behind({place});",
        f"    {LEAVE}",
        "    vg_at += vg_piece;",
        "  } while (vg_result == CUDA_SUCCESS && vg_at < ByteCount);",
    ]


def _plain(entry: EntryPoint, place: str) -> list[str]:
    is_async, waits = "VG_GATE_ALL_STREAMS" not in place, family(entry.name) in WAITING
    before, after = _count(entry, place)
    out = [f"  {before}"] if before else []
    out.append(f"  {ENTER}")
    out += [f"  vg_gate_wait_before({place});"] if is_async else []
    out += ["  uint64_t vg_begin = vg_gate_sync_begin();"] if waits else []
    out += [f"  CUresult vg_result = REAL({entry.name})({entry.argument_list});"]
    is_plain = after.startswith("vg_copy_count(") and after.count("(") == 1
    asks = "" if is_plain else " && vg_copy_counts()"  # arguments are read, or the driver is asked
    out += [f"  if (vg_result == CUDA_SUCCESS{asks}) {after}"]
    if waits:
        flag = "true" if entry.per_thread else "false"
        out.append(f"  if (vg_result == CUDA_SUCCESS) vg_gate_synced(vg_begin, NULL, {flag}, false);")
    out += [f"  if (vg_result == CUDA_SUCCESS) vg_gate_wait_behind({place});"] if is_async else []
    return [*out, f"  {LEAVE}"]


def copying(surface: Surface, rows: dict[str, Row]) -> str:
    """gen/hooks/hook_copy.c"""
    out = [NOTICE.format(what="Copies between host and device, counted and paced.")]
    out += ['#include "gate/copies.h"', '#include "gate/residence.h"', '#include "gen/abi/real.h"', ""]
    for entry in surface.entries:
        if rows[entry.name].behaviour == "copy":
            body = (_linear if LINEAR.match(entry.name) else _plain)(entry, _place(entry))
            out += [f"{entry.prototype} {{", *body, "  return vg_result;", "}"]
    return "\n".join(out) + "\n"
