"""Events and commands of the device plugin that the DRA driver does not have."""

from __future__ import annotations

from dataclasses import dataclass

from vgpud.k8s.core.events import (
    EndSlice,
    Log,
    MakeSlice,
    NodeLost,
    NodeSeen,
    PublicationReported,
    ReportPublication,
    SliceEnded,
    SliceMade,
    Tick,
)

#: (inode, time of its creation) of kubelet's socket: another one is that of a kubelet that has just started
Socket = tuple[int, int]

# ---- events ----


@dataclass(frozen=True, slots=True)
class AllocateCalled:
    """kubelet gives devices to a container. call: the number that Allocated names; uid: random, for the slice."""

    call: int
    uid: str
    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KubeletSeen:
    """How things are between kubelet and the plugin; reported every second."""

    socket: Socket | None  # None: kubelet does not run
    serving: bool  # the plugin's own socket is there; a kubelet that starts removes it
    is_watched: bool  # kubelet listens for changes of devices


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to Register."""

    socket: Socket
    error: str = ""


@dataclass(frozen=True, slots=True)
class PodsListed:
    """The answer to ListPods: ids of the devices that pods have. None: kubelet could not be asked."""

    ids: frozenset[str] | None


Event = (
    NodeSeen
    | NodeLost
    | AllocateCalled
    | SliceMade
    | SliceEnded
    | KubeletSeen
    | Registered
    | PodsListed
    | PublicationReported
    | Tick
)

# ---- commands ----


@dataclass(frozen=True, slots=True)
class Allocated:
    """To a call. error: one line that kubelet shows in the pod's status; else the slice, whose CDI device it gets."""

    call: int
    error: str = ""
    slice_name: str = ""


@dataclass(frozen=True, slots=True)
class ListDevices:
    """The complete list for kubelet: (id, healthy)."""

    devices: tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class Register:
    """With the kubelet whose socket this is."""

    socket: Socket


@dataclass(frozen=True, slots=True)
class ListPods:
    """Asks kubelet which pods have which devices."""


Command = MakeSlice | EndSlice | Allocated | ListDevices | Register | ListPods | ReportPublication | Log
