"""What a job would use of a device alone, from what it was seen to use of it beside others."""

from __future__ import annotations

from vgpud.core.units import MILLI_PER_DEVICE

#: so long a job runs before what it uses counts instead of what was predicted
FIRST_LOOK_NS = 60_000_000_000
#: a device is full from here on: the hooks' counts of device time leave some of it between two jobs
FULL_MILLI = 950


def utilisation_milli(used_milli: int, device_milli: int, predicted_milli: int) -> int:
    """For events.Measured: `used_milli` is its part of the device's time, `device_milli` that of all who are there.

    On a device that is full a job shows less than it would use: then what was predicted (-1: nothing was) is not
    corrected downwards.
    """
    used_milli = min(used_milli, MILLI_PER_DEVICE)
    if device_milli < FULL_MILLI or used_milli >= device_milli:
        return max(1, used_milli)
    return max(1, used_milli, predicted_milli if predicted_milli >= 0 else MILLI_PER_DEVICE)
