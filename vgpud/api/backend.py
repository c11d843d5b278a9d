"""The parts of the daemon that the services of slices, devices and events work on.

Called on the loop; what is not `async` must not wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from vgpud.api.rpc import Observe
from vgpud.api.trace_streams import Tracing
from vgpud.core.events import Event
from vgpud.core.history.points import Point
from vgpud.core.model import Denied, Process, Slice, State
from vgpud.core.observed import Entry, ProcessStats, Reading, SliceStats
from vgpud.core.slices.rotation import RotationStats
from vgpud.v1alpha1 import vgpud_pb2 as pb


class Node(Protocol):
    name: str

    def view(self) -> pb.Node: ...
    def attach_path(self, slice_name: str) -> str: ...


class Machine(Protocol):
    """The state, and what users want changed of it."""

    state: State  # read only

    async def submit(self, event: Event) -> Slice | Denied | None: ...
    async def wait_until_saved(self) -> Denied | None: ...


class Suspension(Protocol):
    async def suspend(self, name: str, evict: bool, *, deadline_s: float) -> Slice | Denied: ...
    async def resume(self, name: str, *, deadline_s: float) -> Slice | Denied: ...


class Rotation(Protocol):
    def stats(self, slice_: Slice) -> RotationStats | None:
        """What its turns cost; None: its memory is never moved."""
        ...


class Counters(Protocol):
    def reading(self, device_uuid: str) -> Reading: ...
    def of_slice(self, slice_: Slice) -> Sequence[SliceStats]: ...
    def of_process(self, process: Process) -> dict[str, ProcessStats]: ...


class Changes(Protocol):
    count: int  # so far

    async def wait(self, timeout_s: float) -> None:
        """Until the next one, or the timeout."""
        ...


class EventLog(Protocol):
    def entries_after(self, sequence: int) -> Sequence[Entry]: ...


class DeviceFiles(Protocol):
    """CDI devices."""

    def why_not(self) -> str: ...
    def why_missing(self, slice_name: str) -> str: ...


class ArbiterTimes(Protocol):
    def change(self, changes: dict[str, int]) -> dict[str, int] | Denied: ...


class Publications(Protocol):
    """What a driver of Kubernetes publishes of the node's devices."""

    def put(self, publication: pb.Publication) -> Denied | None:
        """Keeps it in place of what was said before, or says why not."""
        ...

    def view(self, *, with_reasons: bool) -> pb.Publication:
        """What was said last. with_reasons: also the driver's own words about what is wrong."""
        ...


class JobNames(Protocol):
    def name(self, job_id: int) -> str:
        """Of a job that has slices."""
        ...


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A range of the history in seconds since 1970, and the least time between points in seconds."""

    since_s: float
    until_s: float
    step_s: float


@dataclass(frozen=True, slots=True)
class Course:
    """A part of the history. `points` with their begin in seconds since 1970, in order of time; `spent_ns`: processor
    time that a thread took to read it."""

    name: str
    step_s: int
    points: Sequence[tuple[int, Point]]
    spent_ns: int


class History(Protocol):
    @property
    def is_on(self) -> bool: ...

    async def read(self, kind: str, name: str, uid: int | None, span: TimeSpan) -> Course | None:
        """What was recorded; None: nothing that this user may see, an admin (None) sees all. Raises StoreError."""
        ...


@dataclass(frozen=True)
class Backend:
    node: Node
    machine: Machine
    suspension: Suspension
    rotation: Rotation
    counters: Counters
    changes: Changes
    events: EventLog
    device_files: DeviceFiles
    arbiter_times: ArbiterTimes
    tracing: Tracing
    jobs: JobNames
    history: History
    publications: Publications
    observe: Observe
