"""Devices and slices of the core as tests need them: each says what matters to it, and takes the rest as it is here."""

from __future__ import annotations

from typing import Any

from vgpud.core.model import Device, Share, Slice, Spec
from vgpud.core.origins import User

MIB, GIB = 1 << 20, 1 << 30


def make_device(index: int = 0, **fields: Any) -> Device:
    """GPU-0 and so on: simulated, of 80 GiB; fields: what else it is, or has."""
    known: dict[str, Any] = {"uuid": f"GPU-{index}", "name": "SIM", "pci_bus_id": f"0:{index}", "sm_count": 132}
    known |= {"is_simulated": True, "memory_bytes": 80 * GIB, "context_bytes": 512 * MIB, "granule_bytes": 2 * MIB}
    return Device(**known | {"index": index} | fields)


def make_small_device(index: int = 0, **fields: Any) -> Device:
    """Of 16 GiB, in granules of a mebibyte and with contexts as small: shares are round numbers."""
    return make_device(index, **{"memory_bytes": 16 * GIB, "context_bytes": MIB, "granule_bytes": MIB} | fields)


def make_slice(name: str = "a", *shares: Share, milli: int = 500, **fields: Any) -> Slice:
    """Of root's, with these shares, or with as much of GPU-0 as it asks for and half a gibibyte; fields: what else."""
    given = shares or (Share("GPU-0", milli, milli, GIB // 2, GIB // 2),)
    known = {"uid": f"uid-{name}", "serial": 1, "spec": Spec(milli), "owner_uid": 0}
    return Slice(**{"origin": User(name), "shares": given, "created_wall_ns": 0} | known | fields)
