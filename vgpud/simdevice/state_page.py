"""Reads the state page of the simulated devices' server (struct sim_page of shim/simgpu/wire.h, the file D/state).

Used by the daemon (what a context costs) and by `vgpu sim status`. Only reads; the server is its one writer.
"""

from __future__ import annotations

import struct
import uuid
from dataclasses import dataclass
from pathlib import Path

from vgpud.errors import DriverError

PAGE_NAME = "state"
SOCKET_NAME = "sock"
MAGIC, VERSION = 0x4D495356, 8
DEVICES_MAX = 16
PROCESSES_MAX = 256
#: magic, version, server_pid, device_count, fault_count (and modes, limit_count), started_ns, launch_cost_ns, slice_ns,
#: switch_ns, link_bytes_per_us, model, faults
HEADER = struct.Struct("<IIiII12xQQQQQ256s512x")
#: sequence, sm_count, name, uuid, pci_bus, process_count, memory, context, used, busy, copy_busy, decided, most,
#: most_launches, launches, launch_ns, copy_ns, copy_bytes (3), flops, parent, number, slices, nvlink_group, compute
#: capability (2), time_slice; processes
DEVICE = struct.Struct("<II64s16sII14Qd7I4x")
#: pid, contexts, used_bytes, busy_ns, program
PROCESS = struct.Struct("<iIQQ32s")


@dataclass(frozen=True, slots=True)
class PageDevice:
    """One simulated device as its server shows it."""

    name: str
    uuid: str
    sm_count: int
    processes: int
    memory_bytes: int
    context_bytes: int
    used_bytes: int
    busy_ns: int  # SM time since the server started
    process_used_bytes: dict[int, int]  # pid, as the server sees it -> bytes
    most_bytes: int  # used_bytes at its highest
    most_launches: int  # launches before that
    launches: int  # kernels and fills
    launch_ns: int  # the time that they take, at any speed of the simulation
    copy_ns: int
    to_device_bytes: int  # copied
    from_device_bytes: int
    on_device_bytes: int
    flops: float  # operations of the kernels whose number is known
    time_slice: int  # 0 to 3: default, short, medium, long
    sequence: int  # odd: the server was writing


@dataclass(frozen=True, slots=True)
class Page:
    """The server's pid and its devices, by index."""

    server_pid: int
    link_bytes_per_us: int  # of each link between host and device
    devices: tuple[PageDevice, ...]


def read(page: Path) -> Page:
    """Reads a state page. Raises DriverError when it cannot be read or is of another version."""
    try:
        raw = page.read_bytes()
        magic, version, pid, count, _, _, _, _, _, link_bytes_per_us, *_rest = HEADER.unpack_from(raw)
        stride, left = divmod(len(raw) - HEADER.size, DEVICES_MAX)
        if (magic, version, left) != (MAGIC, VERSION, 0) or count > DEVICES_MAX:
            text = "is of another version of the simulated device: start it with this release's vgpu"
            raise DriverError(f"{page} {text}")
        devices = (_device(raw, HEADER.size + index * stride) for index in range(count))
        return Page(pid, link_bytes_per_us, tuple(devices))
    except (OSError, struct.error) as error:
        raise DriverError(f"cannot read the simulated device's page {page}: {error}") from error


def _device(raw: bytes, offset: int) -> PageDevice:
    sequence, sm_count, name, raw_uuid, _, processes, *numbers = DEVICE.unpack_from(raw, offset)
    memory, context, used, busy, _, _, *work, parent, _, _, _, _, _, time_slice = numbers
    most, most_launches, launches, launch_ns, copy_ns, to_device, from_device, on_device, flops = work
    first = offset + DEVICE.size
    rows = [PROCESS.unpack_from(raw, first + index * PROCESS.size) for index in range(PROCESSES_MAX)]
    return PageDevice(
        name=name.split(b"\0", 1)[0].decode("utf-8", "replace"),
        uuid=f"{'MIG' if parent else 'GPU'}-{uuid.UUID(bytes=raw_uuid)}",
        sm_count=sm_count,
        processes=processes,
        memory_bytes=memory,
        context_bytes=context,
        used_bytes=used,
        busy_ns=busy,
        process_used_bytes={row[0]: row[2] for row in rows if row[0]},
        most_bytes=most,
        most_launches=most_launches,
        launches=launches,
        launch_ns=launch_ns,
        copy_ns=copy_ns,
        to_device_bytes=to_device,
        from_device_bytes=from_device,
        on_device_bytes=on_device,
        flops=flops,
        time_slice=time_slice,
        sequence=sequence,
    )
