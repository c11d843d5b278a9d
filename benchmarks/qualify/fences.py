"""The checks of what the driver itself holds slices to: memory limits of cgroups, and its time slices."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.qualify import past_hook
from benchmarks.qualify.checks import Found, driver_path
from vgpud.cli.demo.private_system import OwnSystem, wait_for
from vgpud.client import calls
from vgpud.config import TIME_SLICES
from vgpud.core.devices.fence import reserve_bytes
from vgpud.core.model import Device
from vgpud.devices.time_slices import TimeSlices

OUT_OF_MEMORY = 2
GIB = 1 << 30
#: for the limit of a slice to be set
LIMIT_S = 4.0
#: what one context may cost more than the configuration says
SLACK_BYTES = GIB


def memory_fence(own: OwnSystem) -> Found:
    """A program that bypasses the hook in a slice of 2 GiB: how much it gets."""
    with own.client() as client:
        node = client.send(calls.node())
        (first, *_rest) = client.all(calls.devices())
    if not node.memory_fence:
        return Found(skip_reason=node.memory_fence_problem)
    command = ["env", "-u", "LD_PRELOAD", sys.executable, past_hook.__file__, str(driver_path(own.is_simulated))]
    part = own.run("qualify-fence", ["--gpus", "0.1", "--mem", "2GiB"], [*command, str(LIMIT_S)])
    wait_for("the program past the hook", lambda: not part.running, LIMIT_S + 60)
    if part.process.returncode:
        part.check()
    found: dict[str, Any] = next(line for line in part.lines() if line["event"] == "end")
    figures = {key: value for key, value in found.items() if key != "event"}
    problems = []
    if found["limit_bytes"] >= found["device_bytes"]:
        problems.append("the driver shows the program all of the device's memory")
    reserve = reserve_bytes(_device(first), 0)
    if found["allocated_bytes"] > 2 * GIB + reserve + SLACK_BYTES or found["code"] != OUT_OF_MEMORY:
        problems.append(f"it allocated {found['allocated_bytes']} bytes, and then got code {found['code']}")
    return Found(figures | {"reserve_bytes": reserve}, problems)


def time_slice(own: OwnSystem) -> Found:
    """Whether the driver takes each length of time slice, and the default again."""
    with own.client() as client:
        devices = {device.uuid: _device(device) for device in client.all(calls.devices())[:1]}
    sim_dir = str(own.sim_dir) if own.is_simulated else ""
    taken = []
    with tempfile.TemporaryDirectory(prefix="vgpu-slices-") as folder:
        slices = TimeSlices(TIME_SLICES, Path(folder), sim_dir)
        try:
            for length in TIME_SLICES[1:]:
                (said,) = slices.apply(devices, dict.fromkeys(devices, length))
                if said.why_not:
                    return Found(skip_reason=said.why_not)
                taken.append(length)
        finally:
            slices.undo(devices)
    return Found({"lengths": len(taken)})


def _device(view: Any) -> Device:
    """What the checks here ask of a device."""
    return Device(view.uuid, view.index, "", "", 0, 0, view.simulated, view.context_bytes, 0)
