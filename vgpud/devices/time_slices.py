"""Lengths of the driver's own time slices, per device: set while the daemon runs, the driver's default otherwise.

NVML has no call for it: NVIDIA's documented way is `nvidia-smi compute-policy --set-timeslice`. What was set is written
down first, so that the next start undoes what a killed daemon has left.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from vgpud.core.model import Device
from vgpud.errors import VgpudError
from vgpud.host import private_files
from vgpud.simdevice import control

#: a driver that does not answer
SMI_S = 20.0
RECORD_NAME = "time_slices.json"
_SMI_PLACES = "/usr/bin:/usr/local/bin:/usr/local/nvidia/bin:/usr/sbin:/bin"


class TimeSliceError(VgpudError):
    """A device does not take a length. The message says why, and how to go on."""


@dataclass(frozen=True, slots=True)
class TimeSlice:
    """What a device was asked for; `why_not`: why it has the default one, "" when it has this."""

    device_uuid: str
    length: str
    why_not: str = ""


class TimeSlices:
    """`lengths`: the driver's words for them, the default first. `sim_dir`: of simulated devices, "" for real ones.

    Everything here may wait for the driver: not for the loop.
    """

    def __init__(self, lengths: tuple[str, ...], state_dir: Path, sim_dir: str) -> None:
        self._lengths = lengths
        self._record = state_dir / RECORD_NAME
        self._sim_dir = sim_dir

    def apply(self, devices: Mapping[str, Device], lengths: Mapping[str, str]) -> list[TimeSlice]:
        """Gives each device its length, by UUID, and undoes what was set before and is to be no more."""
        default = self._lengths[0]
        self._undo(devices, {uuid for uuid in self._read() if lengths.get(uuid, default) == default})
        return [self._set_one(device, lengths[uuid]) for uuid, device in devices.items() if lengths[uuid] != default]

    def undo(self, devices: Mapping[str, Device]) -> None:
        """Gives all devices whose length was set the default one again."""
        self._undo(devices, self._read())

    def _set_one(self, device: Device, length: str) -> TimeSlice:
        try:
            self._write(self._read() | {device.uuid})  # first: a crash after it undoes what was not done, which is well
            self._tell(device.uuid, device, length)
        except (OSError, VgpudError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            return TimeSlice(device.uuid, length, why or "unknown")
        return TimeSlice(device.uuid, length)

    def _undo(self, devices: Mapping[str, Device], uuids: set[str]) -> None:
        left = self._read()
        for uuid in uuids:
            try:
                self._tell(uuid, devices.get(uuid), self._lengths[0])
                left.discard(uuid)
            except VgpudError:  # it is gone, or its driver: the next start tries again
                continue
        if uuids:
            self._write(left)

    def _tell(self, uuid: str, device: Device | None, length: str) -> None:
        """Raises TimeSliceError, DriverError."""
        number = self._lengths.index(length)
        if device and device.profile:
            raise TimeSliceError("it is a MIG instance, which shares its SMs with none: leave it out of time_slice")
        if os.geteuid():
            raise TimeSliceError("vgpud is not root: the driver lets root alone set time slices")
        if not self._sim_dir:
            _call_smi(uuid, number)
        elif device:
            control.tell_time_slice(Path(self._sim_dir), device.index, number)

    def _read(self) -> set[str]:
        """The devices whose length may be set. A damaged file names none: the next boot has the defaults anyway."""
        try:
            found = json.loads(self._record.read_text())
        except (OSError, ValueError):
            return set()
        return {uuid for uuid in found if isinstance(uuid, str)} if isinstance(found, list) else set()

    def _write(self, uuids: set[str]) -> None:
        private_files.replace(self._record, json.dumps(sorted(uuids)))


def _search_path() -> str:
    """Absolute folders only: in others root would run what a user has put there."""
    folders = f"{os.environ.get('PATH', '')}:{_SMI_PLACES}".split(":")
    return ":".join(folder for folder in folders if Path(folder).is_absolute())


def _call_smi(uuid: str, number: int) -> None:
    """Raises TimeSliceError."""
    program = shutil.which("nvidia-smi", path=_search_path())
    if program is None:
        raise TimeSliceError("there is no nvidia-smi, which alone sets it: install the driver's utilities")
    env = {key: value for key, value in os.environ.items() if not key.startswith(("LD_", "VGPU_"))}
    command = [program, "compute-policy", "-i", uuid, "--set-timeslice", str(number)]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SMI_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise TimeSliceError(f"nvidia-smi does not answer within {SMI_S:.0f} s: see dmesg") from error
    except OSError as error:
        raise TimeSliceError(f"{program} cannot be started: {error.strerror}") from error
    said = (done.stdout + done.stderr).strip()
    if done.returncode or "not supported" in said.lower():
        last = said.splitlines()[-1] if said else f"exit code {done.returncode}"
        raise TimeSliceError(f"the driver does not take it: {last}")
