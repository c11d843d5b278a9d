"""Asks the simulated devices' server for what tests need (struct sim_request of shim/simgpu/wire.h)."""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path

from vgpud.errors import DriverError
from vgpud.simdevice import state_page

#: magic, version, kind, device, context, reserved, bytes; the rest is for other requests
REQUEST = struct.Struct("=IIIIIIQ32x")
#: magic, status (0 or -errno); the rest is for other requests
REPLY = struct.Struct("=Ii56x")
XID, MODE, TIME_SLICE = 13, 19, 24  # SIM_REQUEST_XID, SIM_REQUEST_MODE, SIM_REQUEST_TIME_SLICE
#: what can have a whole device, as enum sim_mode counts them
MODES = ("shared", "exclusive", "mig", "mps")


def tell_xid(folder: Path, device: int, xid: int) -> None:
    """Has NVML on the simulated devices of this folder report a fault. Raises DriverError when the server refuses."""
    _tell(folder, XID, device, xid, f"XID {xid}")


def tell_mode(folder: Path, device: int, mode: str) -> None:
    """Has NVML there say that a device is in one of MODES. Raises DriverError when the server refuses."""
    _tell(folder, MODE, device, MODES.index(mode), f"mode {mode}")


def tell_time_slice(folder: Path, device: int, number: int) -> None:
    """Gives a device time slices of a length, by number as `nvidia-smi` counts them. Raises DriverError when the server
    refuses."""
    _tell(folder, TIME_SLICE, device, number, f"time slice {number}")


def _tell(folder: Path, kind: int, device: int, number: int, what: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        try:
            link.connect(str(folder / state_page.SOCKET_NAME))
            link.send(REQUEST.pack(state_page.MAGIC, state_page.VERSION, kind, device, 0, 0, number))
            answer = link.recv(REPLY.size)
        except OSError as error:
            raise DriverError(f"the simulated device in {folder} does not answer: {error}") from error
    status = REPLY.unpack(answer)[1] if len(answer) == REPLY.size else -1
    if status < 0:
        raise DriverError(f"the simulated device in {folder} refuses {what}: {os.strerror(-status)}")
