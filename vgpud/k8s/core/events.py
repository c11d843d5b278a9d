"""Events, which go into step(), and commands, which come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vgpud.k8s.core.model import Asked, Gpu, Granted, Known, Ref, Result
from vgpud.k8s.core.publication import Publication
from vgpud.k8s.core.published import Changes

# ---- events ----


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """vgpud's devices and claims, as they are now."""

    gpus: tuple[Gpu, ...]
    claims: tuple[Known, ...]


@dataclass(frozen=True, slots=True)
class NodeLost:
    """vgpud does not answer. Slices continue without it."""


@dataclass(frozen=True, slots=True)
class Registered:
    """kubelet has registered this driver: it calls it from now on."""


@dataclass(frozen=True, slots=True)
class Leads:
    """No other driver publishes this node's devices: this one does."""


@dataclass(frozen=True, slots=True)
class Called:
    """kubelet asks to prepare a claim, or to end it (`ending`). call: the number that Answer names."""

    call: int
    ref: Ref
    ending: bool = False


@dataclass(frozen=True, slots=True)
class ClaimRead:
    """The API server's answer about a claim; None: there is none. error: it could not be asked."""

    uid: str
    claim: Mapping[str, Any] | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class SliceMade:
    """vgpud's answer to MakeSlice. full: it has no free capacity, so an allocation on this node is out of date; absent:
    there is no answer."""

    uid: str
    slice_name: str = ""
    granted: tuple[Granted, ...] = ()
    error: str = ""
    full: bool = False
    absent: bool = False


@dataclass(frozen=True, slots=True)
class SliceEnded:
    """vgpud's answer to EndSlice."""

    uid: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class PodUnknown:
    """A container of a pod that vgpud does not know of the claim waits to be admitted."""

    slice_name: str


@dataclass(frozen=True, slots=True)
class PoolSeen:
    """All ResourceSlices of this node and driver, as the API server has them. is_from_list: read as a whole just now,
    and not one after another by a watch, which may lag behind. server: its version, major and minor; None: as it
    was."""

    slices: tuple[Mapping[str, Any], ...]
    is_from_list: bool = False
    server: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Published:
    """The answer to Publish. written_generations: (name, pool generation) of what was stored, also before an error;
    dropped_fields: what the server did not store."""

    dropped_fields: tuple[str, ...] = ()
    error: str = ""
    written_generations: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class StatusWritten:
    """The answer to WriteStatus."""

    uid: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class PublicationReported:
    """The answer to ReportPublication."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class Tick:
    """Some time has gone by."""


Event = (
    NodeSeen
    | NodeLost
    | Registered
    | Leads
    | Called
    | ClaimRead
    | SliceMade
    | SliceEnded
    | PodUnknown
    | PoolSeen
    | Published
    | StatusWritten
    | PublicationReported
    | Tick
)

# ---- commands ----


@dataclass(frozen=True, slots=True)
class ReadClaim:
    ref: Ref


@dataclass(frozen=True, slots=True)
class MakeSlice:
    """Idempotent: vgpud has one slice for a claim."""

    requested_claim: Asked


@dataclass(frozen=True, slots=True)
class EndSlice:
    uid: str


@dataclass(frozen=True, slots=True)
class Answer:
    """To a call. error: one line that kubelet shows in the pod's events; else the devices and, for their containers,
    CDI devices."""

    call: int
    uid: str
    error: str = ""
    results: tuple[Result, ...] = ()
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteStatus:
    """Into the claim's status.devices, for `kubectl describe`. Conditions without a time began now."""

    ref: Ref
    devices: Sequence[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Publish:
    changes: Changes


@dataclass(frozen=True, slots=True)
class ReportPublication:
    """To the node's vgpud, for people who look there."""

    publication: Publication


@dataclass(frozen=True, slots=True)
class Health:
    """The complete list for kubelet: (device, healthy, message)."""

    devices: tuple[tuple[str, bool, str], ...]


@dataclass(frozen=True, slots=True)
class Report:
    """An Event of Kubernetes about a claim or a pod. subject: of that kind; note: one line."""

    kind: str  # ResourceClaim or Pod
    subject: Ref
    reason: str
    note: str
    is_warning: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)


Command = ReadClaim | MakeSlice | EndSlice | Answer | WriteStatus | Publish | ReportPublication | Health | Report | Log
