"""The utilisation of a device by a job alone, estimated from what it used beside others."""

from __future__ import annotations

from vgpud.core.units import MILLI_PER_DEVICE

#: a job runs this long before its measured utilisation replaces the predicted one
FIRST_LOOK_NS = 60_000_000_000
#: a device is full from here on: the hooks' counts of device time leave some of it between two jobs
FULL_MILLI = 950


def utilisation_milli(used_milli: int, device_milli: int, predicted_milli: int) -> int:
    """For events.Measured: `used_milli` is the job's part of the device's time, `device_milli` that of all residents.

    On a full device a job shows less than it would use: then the prediction (-1: there is none) is not corrected
    downwards.
    """
    used_milli = min(used_milli, MILLI_PER_DEVICE)
    if device_milli < FULL_MILLI or used_milli >= device_milli:
        return max(1, used_milli)
    return max(1, used_milli, predicted_milli if predicted_milli >= 0 else MILLI_PER_DEVICE)
