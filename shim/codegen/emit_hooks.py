"""The generated half of libvgpu.so: trampolines, gated and synchronising hooks, what waits while the slice's memory is
away, the table of hooks, its exports."""

from __future__ import annotations

from cudaspec import EntryPoint, Surface
from emit import MARKER, NOTICE, OWN_MEMORY, RECLAIM, version_script
from hookdef import BEHAVIOURS, HAND_WRITTEN, Row

SPARES = 256
SPARE_LENGTH = 80  # fits any name that a newer driver has (vgpud/libraries/fit.py)
#: defined in hooks/proc_address.c, which reads the table: it adds them itself, so that neither file needs the other's
LOOKUPS = ("cuGetProcAddress", "cuGetProcAddress_v2")


def spare_names() -> list[str]:
    """Names of the entries that wait for names which only the driver at hand has."""
    return [f"vg_spare_{number:03d}_".ljust(SPARE_LENGTH, "x") for number in range(SPARES)]


def spare_stubs() -> str:
    """gen/hooks/spares.inc: one VG_SPARE(slot, name) line per spare entry, for the assembler files."""
    lines = [NOTICE.format(what="The spare entries of libvgpu.so; vgpud/libraries/fit.py gives them names.")]
    lines += [f"VG_SPARE({number}, {name})" for number, name in enumerate(spare_names())]
    return "\n".join(lines) + "\n"


def counts_header(surface: Surface) -> str:
    """gen/abi/counts.h: the sizes that assembler and C share."""
    return (
        NOTICE.format(what="Sizes for C and assembler.")
        + f"#define VG_ENTRIES {len(surface.entries)}\n#define VG_SPARES {SPARES}\n"
    )


def hook_header() -> str:
    """gen/hooks/hook_table.h"""
    behaviours = "".join(f"  VG_HOOK_{name.upper()},\n" for name in BEHAVIOURS)
    return (
        NOTICE.format(what="Every hook's address and behaviour, in the order of entries.h.")
        + f"""#ifndef VG_HOOK_TABLE_H
#define VG_HOOK_TABLE_H
#include <stdbool.h>

#include "gen/abi/entries.h"

enum vg_behaviour {{
{behaviours}}};

extern void *const vg_hook_functions[VG_ENTRY_COUNT]; /* NULL: defined in hooks/proc_address.c */
extern const uint8_t vg_hook_behaviours[VG_ENTRY_COUNT]; /* enum vg_behaviour */
extern const bool vg_hook_waits[VG_ENTRY_COUNT]; /* while the slice's memory is away */

#endif
"""
    )


def hook_table(surface: Surface, rows: dict[str, Row]) -> str:
    """gen/hooks/hook_table.c"""
    out = [NOTICE.format(what="Every hook's address and behaviour, in the order of entries.h.")]
    out += ['#include "gen/hooks/hook_table.h"', '#include "gen/abi/cuda_abi.h"', ""]
    out += ["void *const vg_hook_functions[VG_ENTRY_COUNT] = {"]
    out += [f"  NULL, /* {entry.name} */" if entry.name in LOOKUPS else f"  {entry.name}," for entry in surface.entries]
    out += ["};", "", "const uint8_t vg_hook_behaviours[VG_ENTRY_COUNT] = {"]
    out += [f"  VG_HOOK_{rows[entry.name].behaviour.upper()}, /* {entry.name} */" for entry in surface.entries]
    out += ["};", "", "const bool vg_hook_waits[VG_ENTRY_COUNT] = {"]
    out += [
        f"  {'false' if rows[e.name].away_behaviour == 'asks' else 'true'}, /* {e.name} */" for e in surface.entries
    ]
    out += ["};", ""]
    return "\n".join(out)


#: what a hook that waits while the slice's memory is away does first and last: nothing where it never leaves
ENTER, LEAVE = "struct vg_gate_line *vg_here = vg_residence_enter();", "vg_residence_leave(vg_here);"


def _body(entry: EntryPoint) -> str:
    return f"vg_body_{entry.name}"


def body_header(surface: Surface, rows: dict[str, Row]) -> str:
    """gen/hooks/bodies.h: the files of hooks/ write cuX for the body of a hook that is generated around it."""
    bodies = [entry for entry in surface.entries if rows[entry.name].has_body]
    out = [
        NOTICE.format(what="What is hand-written of hooks that wait while the slice's memory is away: cuX is its body.")
    ]
    out += ["#ifndef VG_BODIES_H\n#define VG_BODIES_H", '#include "gen/abi/cuda_abi.h"', ""]
    out += [f"CUresult {_body(entry)}({entry.declaration_list});" for entry in bodies]
    out += [f"#define {entry.name} {_body(entry)}" for entry in bodies]
    return "\n".join([*out, "", "#endif", ""])


def _waiting(entry: EntryPoint, function: str) -> list[str]:
    """A jump to the function where the slice's memory never leaves."""
    return [
        f"{entry.prototype} {{",
        f"  if (VG_LIKELY(!vg_residence_is_watched())) return {function}({entry.argument_list});",
        "  struct vg_gate_line *vg_here = vg_residence_enter_watched();",
        f"  CUresult vg_result = {function}({entry.argument_list});",
        f"  {LEAVE}",
        "  return vg_result;",
        "}",
    ]


def _polling(entry: EntryPoint, function: str) -> list[str]:
    return [
        f"{entry.prototype} {{",
        f"  if (VG_LIKELY(!vg_residence_is_watched())) return {function}({entry.argument_list});",
        "  if (vg_residence_poll_watched() == VG_POLL_COMPLETED) return CUDA_SUCCESS;",
        f"  CUresult vg_result = {function}({entry.argument_list});",
        "  vg_residence_end_poll();",
        "  return vg_result;",
        "}",
    ]


def waiting(surface: Surface, rows: dict[str, Row]) -> str:
    """gen/hooks/hook_waits.c: what passes, or is hand-written, and waits while the slice's memory is away."""
    out = [NOTICE.format(what="Entry points that wait while the slice's memory is away, and do nothing else here.")]
    out += ['#include "gate/residence.h"', '#include "gen/abi/real.h"', ""]
    out += [
        f"CUresult {_body(entry)}({entry.declaration_list});" for entry in surface.entries if rows[entry.name].has_body
    ]
    for entry in surface.entries:
        row = rows[entry.name]
        if row.has_body:
            out += _waiting(entry, _body(entry))
        elif row.away_behaviour == "waits" and row.behaviour == "pass":
            out += _waiting(entry, f"REAL({entry.name})")
    return "\n".join(out) + "\n"


def trampolines(surface: Surface, rows: dict[str, Row]) -> str:
    """gen/hooks/hook_trampolines.c: what passes, as typed tail calls."""
    what = (
        "Entry points that pass: a jump to the driver. The weak ones are hand-written elsewhere; they keep the library "
        "complete while a family is being written (tests/shim/test_hooks_def.py lists those that are left)."
    )
    out = [NOTICE.format(what=what), '#include "gen/abi/real.h"', ""]
    for entry in surface.entries:
        behaviour = rows[entry.name].behaviour
        if rows[entry.name].away_behaviour == "waits":
            continue
        if behaviour == "pass" or behaviour in HAND_WRITTEN:
            weak = "" if behaviour == "pass" else "__attribute__((weak)) "
            out += [f"{weak}{entry.prototype} {{", f"  return REAL({entry.name})({entry.argument_list});", "}"]
    return "\n".join(out) + "\n"


def _parameter_of_type(entry: EntryPoint, type_text: str, absent: str) -> str:
    return next((p.name for p in entry.parameters if p.type_text == type_text), absent)


def _threads(entry: EntryPoint) -> str:
    """How much work: the elements of a fill, 0 where the arguments do not say."""
    names = [p.name for p in entry.parameters]
    if "Width" in names and "Height" in names:
        return "(uint64_t)Width * Height"
    return "N" if "N" in names else "0"


def _flag(entry: EntryPoint) -> str:
    return "true" if entry.per_thread else "false"


def emit_gate_hooks(surface: Surface, rows: dict[str, Row]) -> str:
    """gen/hooks/hook_gate.c: what passes the gate and has no other body. The hook itself is the key of its estimate."""
    out = [NOTICE.format(what="Entry points that pass the launch gate.")]
    out += ['#include "gate/gate.h"', '#include "base/prim.h"', '#include "gen/abi/real.h"', ""]
    for entry in surface.entries:
        if rows[entry.name].behaviour != "gate":
            continue
        call = f"REAL({entry.name})({entry.argument_list})"
        stream = _parameter_of_type(entry, "CUstream", "NULL")
        function = _parameter_of_type(entry, "CUfunction", entry.name)
        out += [
            f"{entry.prototype} {{",
            f"  if (VG_LIKELY(vg_gate_solo_launch())) return {call};",
            "  struct vg_ticket vg_ticket;",
            f"  vg_gate_enter(&vg_ticket, {stream}, {_flag(entry)}, (const void *){function}, {_threads(entry)});",
            f"  CUresult vg_result = {call};",
            "  return vg_gate_leave(&vg_ticket, vg_result);",
            "}",
        ]
    return "\n".join(out) + "\n"


def synchronising(surface: Surface, rows: dict[str, Row]) -> str:
    """hook_sync.c: what tells that nothing is outstanding: on its stream, or in the whole context without one."""
    out = [NOTICE.format(what="Entry points after which nothing is outstanding."), '#include "gate/gate.h"']
    out += ['#include "gate/residence.h"']
    out += ['#include "gen/abi/real.h"', ""]
    for entry in surface.entries:
        if rows[entry.name].behaviour != "sync":
            continue
        stream = _parameter_of_type(entry, "CUstream", "NULL")
        whole = "true" if not entry.parameters else "false"
        polls = rows[entry.name].away_behaviour == "polls"
        out += [
            f"static CUresult vg_poll_{entry.name}({entry.declaration_list}) {{" if polls else f"{entry.prototype} {{",
            *([] if polls else [f"  {ENTER}"]),
            "  uint64_t vg_begin = vg_gate_sync_begin();",
            f"  CUresult vg_result = REAL({entry.name})({entry.argument_list});",
            f"  if (vg_result == CUDA_SUCCESS) vg_gate_synced(vg_begin, {stream}, {_flag(entry)}, {whole});",
            *([] if polls else [f"  {LEAVE}"]),
            "  return vg_result;",
            "}",
        ]
        if polls:
            out += _polling(entry, f"vg_poll_{entry.name}")
    return "\n".join(out) + "\n"


def ordering(surface: Surface, rows: dict[str, Row]) -> str:
    """hook_order.c: what follows on the stream, or without one in the whole context, may wait for something else."""
    out = [NOTICE.format(what="Entry points after which a stream may wait.")]
    out += ['#include "gate/gate.h"', '#include "gate/residence.h"', '#include "gen/abi/real.h"', ""]
    for entry in surface.entries:
        if rows[entry.name].behaviour != "order":
            continue
        stream = _parameter_of_type(entry, "CUstream", "")
        place = f"{stream}, {_flag(entry)}" if stream else "VG_GATE_ALL_STREAMS, false"
        out += [
            f"{entry.prototype} {{",
            f"  {ENTER}",
            f"  vg_gate_wait_before({place});",
            f"  CUresult vg_result = REAL({entry.name})({entry.argument_list});",
            f"  if (vg_result == CUDA_SUCCESS) vg_gate_wait_behind({place});",
            f"  {LEAVE}",
            "  return vg_result;",
            "}",
        ]
    return "\n".join(out) + "\n"


def library_script(surface: Surface) -> str:
    """gen/hooks/libvgpu.map: what libvgpu.so exports."""
    return version_script(surface.entries, ["dlopen", "dlmopen", MARKER, OWN_MEMORY, *RECLAIM, *spare_names()])
