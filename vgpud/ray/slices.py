"""Slices of Ray's workers at this node's daemon: pending ones, which end with the worker's process."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from vgpud.api.slice_messages import spec_view
from vgpud.client import calls
from vgpud.client.connection import Connection
from vgpud.core.units import format_value, parse_whole
from vgpud.errors import ExitCode, VgpudError
from vgpud.ray.size import Size
from vgpud.v1alpha1 import vgpud_pb2 as pb


@dataclass(frozen=True)
class Made:
    """A pending slice, and what a program in it must know of the node."""

    item: pb.Slice
    node: pb.Node
    uuids: tuple[str, ...]  # of the node's devices, by index


def make(size: Size) -> Made:
    """Makes the slice of this process. Raises VgpudError."""
    with Connection() as connection:
        _check_local(connection)
        node = connection.send(calls.node())
        devices = connection.all(calls.devices())
        return Made(_create(connection, size, "ray"), node, tuple(device.uuid for device in devices))


def trial(size: Size) -> None:
    """Makes such a slice and removes it. Raises VgpudError with the reason why there can be none here."""
    with Connection() as connection:
        _check_local(connection)
        made = _create(connection, size, "ray-trial")
        connection.send(calls.delete_slice(made.name, force=False))


def _check_local(connection: Connection) -> None:
    if connection.remote:
        text = f"{connection.target} is another machine's daemon: each node of the cluster needs its own vgpud"
        raise VgpudError(text, ExitCode.USAGE)


def _create(connection: Connection, size: Size, what: str) -> pb.Slice:
    name = f"{what}-{os.getpid()}-{secrets.token_hex(2)}"  # in containers, pids are the same
    call = calls.create_slice(
        name,
        spec_view(size.spec),
        ephemeral=True,
        cdi_device=False,
        queue=size.queue,
        pending=True,
    )
    return connection.send(call)


def visible(visible_devices: str | None, uuids: Sequence[str]) -> str:
    """CUDA_VISIBLE_DEVICES of a worker before it has a task: the node's devices by UUID, or those of them that the
    raylet was started with. Ray then gives the worker entries of this list, which name devices whatever order CUDA
    counts them in. Raises VgpudError."""
    if visible_devices is None:
        return ",".join(uuids)
    return ",".join(_uuid(entry.strip(), uuids) for entry in visible_devices.split(",") if entry.strip())


def _uuid(entry: str, uuids: Sequence[str]) -> str:
    index = parse_whole(entry, len(uuids) - 1)
    found = [] if index is None else [uuids[index]]
    if entry.upper().startswith("GPU-"):
        found = [uuid for uuid in uuids if uuid.lower().startswith(entry.lower())]
    if len(found) == 1:
        return found[0]
    have = f"this node's vgpud has {', '.join(uuids) or 'no devices'}"
    text = f"the raylet's CUDA_VISIBLE_DEVICES has {format_value(entry)}: {have}"
    raise VgpudError(f"{text}; start the raylet with their indices or UUIDs", ExitCode.USAGE)
