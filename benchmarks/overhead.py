"""Cost of a call through the hook over the direct call, for launch_overhead and alloc_overhead.

The hook is preloaded as in production and attached to a real daemon, but the driver underneath is a stub whose launches
and allocations return at once (tenants/stub_driver.c over the simulated driver), so that what is measured is the hook
and nothing else. A C program (tenants/overhead.c) times pairs of runs, hooked and direct in turn.
"""

from __future__ import annotations

import enum
import json
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks import harness
from shim import build_shim
from vgpud.cli.demo.private_system import OwnSystem, PartError
from vgpud.client import calls
from vgpud.v1alpha1.words import GATE

#: gate state -> the slice in which a program that is alone finds it
STATES = {"solo": ("--gpus", "1"), "count": ("--gpus", "0.9", "--max", "0.9")}
PAIRS = 201


class Events(enum.Enum):
    """Which events the stub has. Its own are complete as soon as they are recorded, as its launches are.

    Values: flags of the compiler.
    """

    SIMULATED = ()
    FREE = ("-DSTUB_EVENTS",)
    #: the thread pays as over the simulated driver: 2.5 us for a launch, 0.25 us for an event, 2.5 us with timing
    PAID = ("-DSTUB_EVENTS", "-DSTUB_PAID")


def build_stub(folder: Path, events: Events = Events.SIMULATED) -> Path:
    """Builds the simulated driver with the stub's functions in the place of its own."""
    sources, flags = build_shim.targets()["sim/libcuda.so.1"]
    stub = folder / f"libvgpu-stub-{events.name.lower()}.so"
    # of two definitions the linker takes the first; the stub's, as it comes first
    flags = [*(flag for flag in flags if not flag.startswith("-Wl,-soname")), f"-Wl,-soname,{stub.name},-z,muldefs"]
    flags += events.value
    command = ["gcc", *build_shim.CFLAGS, "-o", str(stub), "benchmarks/tenants/stub_driver.c", *sources]
    subprocess.run([*command, *build_shim.LDFLAGS, *flags, "-ldl"], cwd=harness.ROOT, check=True)
    shutil.copy(harness.SHIPPED_MODEL, folder)
    return stub


def gate_of(own: OwnSystem, name: str) -> str:
    """The state of the slice's gate on its first device, as the daemon shows it; "" while there is no such slice."""
    with own.client() as client:
        return next(
            (GATE.to_word(item.devices[0].gate) for item in client.all(calls.slices()) if item.name == name), ""
        )


def measure(
    own: OwnSystem,
    stub: Path,
    state: str,
    mode: str,
    threads: int,
    calls: int,
    *arguments: str,
    pairs: int = PAIRS,
    hook: Path | None = None,
) -> dict[str, Any]:
    """Runs the C program in a slice; hook: another build of libvgpu.so.

    Raises PartError when it fails or when the gate was not in the wanted state.
    """
    program = str(harness.build("tenants/overhead.c"))
    # `vgpu run` names the simulated driver itself; the stub takes its place only here
    preload = [f"LD_PRELOAD={hook}"] if hook else []
    command = [
        "env",
        f"VGPU_DRIVER={stub}",
        *preload,
        program,
        mode,
        str(stub),
        str(threads),
        str(pairs),
        str(calls),
        *arguments,
    ]
    name = f"{state}-{mode}-{threads}"
    part = own.run(name, STATES[state], command)
    gates = set()
    while part.running:
        gates.add(gate_of(own, name))
        time.sleep(0.05)
    if part.process.returncode:
        part.check()
    seen = gates - {"", "closed"}  # closed: until the arbiter has seen the new process
    if not mode.startswith("alloc") and seen != {state}:
        raise PartError(f"the gate was {' and '.join(sorted(seen)) or 'never seen'}, not {state}: nothing was measured")
    rows = json.loads(part.output_file.read_text())
    return {
        "gate": state,
        "threads": threads,
        "difference_ns": max(row["difference_ns"] for row in rows),
        "hooked_ns": statistics.median(row["hooked_ns"] for row in rows),
        "direct_ns": statistics.median(row["direct_ns"] for row in rows),
        "each": rows,
    }
