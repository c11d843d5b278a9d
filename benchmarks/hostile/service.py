"""Attackers of the daemon itself: a user who hoards attaches, and one who reads without end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from benchmarks.hostile import users
from benchmarks.hostile.attacker import Attacker
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb

HOARDED_SLICES = 4
MILLI = 5
MEM_BYTES = 1 << 30


def make_slice(own: OwnSystem, name: str, uid: int) -> str:
    """Makes a small slice of a user and returns the path of its socket."""
    spec = pb.SliceSpec(gpus_milli=MILLI, mem_min_bytes=MEM_BYTES, mem_max_bytes=MEM_BYTES)
    with own.client() as client:
        return client.send(calls.create_slice(name, spec, ephemeral=False, owner_uid=uid)).attach_socket


@contextlib.contextmanager
def hoard(own: OwnSystem) -> Iterator[Attacker]:
    """The user who hoards attaches, beside another user and root who attach now and then. Raises PartError."""
    sockets = [make_slice(own, f"hoard-{number}", users.ATTACKER_UID) for number in range(HOARDED_SLICES)]
    whose = {"another user's attach": users.NEIGHBOUR_UID, "root's attach": os.geteuid()}
    probes = {
        name: users.start(own, "neighbour", str(uid), "attach", make_slice(own, f"neighbour-{uid}", uid))
        for name, uid in whose.items()
    }
    attacker = "the attacker's own attach"
    probes[attacker] = users.start(own, "neighbour", str(users.ATTACKER_UID), "attach", sockets[0])
    rates = {"accepted": "attaches", "refused": "refused attaches"}
    levels = {"held": "attaches held at a time"}
    yield Attacker(users.start(own, "hoarder", *sockets), rates, levels, probes, {attacker})


@contextlib.contextmanager
def read(own: OwnSystem) -> Iterator[Attacker]:
    """The user who reads without end, beside root who lists slices and submits jobs. Raises PartError."""
    probe_types = {"root's ListSlices": "list", "root's SubmitJob": "submit"}
    probes = {name: users.start(own, "neighbour", "0", kind, own.host) for name, kind in probe_types.items()}
    attacker = "the attacker's own ListSlices"
    probes[attacker] = users.start(own, "neighbour", str(users.ATTACKER_UID), "list", own.host)
    rates = {"watched": "messages of watches", "listed": "answers of ListJobs", "refused": "refused calls"}
    yield Attacker(users.start(own, "reader", own.host), rates, {}, probes, {attacker})
