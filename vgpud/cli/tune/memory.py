"""The memory of candidates by dry runs on a simulated device: one for each batch and number of workers."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vgpud.cli.common.output import say
from vgpud.core.tune.model import Candidate
from vgpud.core.tune.placeholders import fill
from vgpud.core.units import format_bytes

if TYPE_CHECKING:
    from vgpud.cli.tune.race import Plan

#: exit codes of a program that Ctrl-C or SIGTERM has ended
_INTERRUPTED = (130, 143)


def find_memory(
    plan: Plan, candidates: Sequence[Candidate], device_name: str, limit_s: float
) -> tuple[dict[Candidate, int], dict[Candidate, str]]:
    """Bytes that each candidate's slice gets, and why some cannot be used: too large for the device, or the program
    fails. A program that trains for longer than limit_s is ended. Raises VgpudError: this device is not known;
    KeyboardInterrupt."""
    from vgpud.cli.predict.predict_run import run_dry
    from vgpud.predict.dry_device import find_device

    device = find_device(device_name)
    memory: dict[Candidate, int] = {}
    left_out: dict[Candidate, str] = {}
    for values in dict.fromkeys(candidate.values for candidate in candidates):
        chosen = dict(values)
        environment = {**os.environ, **{name: fill(text, chosen) for name, text in plan.variables}}
        command = [fill(word, chosen) for word in plan.command]
        begin_s = time.monotonic()
        _, results, code = run_dry(command, device, 0, environment, limit_s=limit_s)
        if code in _INTERRUPTED and time.monotonic() - begin_s < limit_s:
            raise KeyboardInterrupt
        size_bytes = sum(result.slice_bytes() for result in results)
        which = ", ".join(f"{name} {value}" for name, value in values) or "it"
        if not results:
            why = f"its dry run ended with {code} and used no device" if code else "its dry run used no device"
        elif size_bytes > device.memory_bytes:
            why = f"out of memory: {format_bytes(size_bytes)} by its dry run, of {format_bytes(device.memory_bytes)}"
        else:
            why = ""
        say(f"{which}: {why or f'{format_bytes(size_bytes)} by a dry run on a SIMULATED {device.title}'}")
        for candidate in candidates:
            if candidate.values == values and why:
                left_out[candidate] = why
            elif candidate.values == values:
                memory[candidate] = size_bytes
    return memory, left_out
