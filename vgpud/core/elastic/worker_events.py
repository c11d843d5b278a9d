"""What happens to a worker group, and what its step wants done about it.

Commands are carried out in their order, one group's at a time; Start is answered by Started or StartFailed.
"""

from __future__ import annotations

from dataclasses import dataclass

from vgpud.core.elastic.worker_group import Membership, ProgressReport
from vgpud.core.jobs.model import Place, Placement

# ---- events ----


@dataclass(frozen=True, slots=True)
class Begin:
    """A new attempt begins with all of its workers."""


@dataclass(frozen=True, slots=True)
class Started:
    worker: int


@dataclass(frozen=True, slots=True)
class StartFailed:
    """Nothing of it runs. Of a worker of Begin this is not said: the whole attempt is abandoned."""

    worker: int
    why: str


@dataclass(frozen=True, slots=True)
class WorkerEnded:
    """All processes of a worker have gone."""

    worker: int
    exit_code: int
    why: str = ""
    is_stopped: bool = False  # it ended because it was told to
    is_lost: bool = False  # with the machine
    cpu_ns: int = 0
    ram_peak_bytes: int = 0

    @property
    def failed(self) -> bool:
        return bool(self.exit_code) or self.is_lost


@dataclass(frozen=True, slots=True)
class Adopted:
    """The daemon was restarted: what became of the live workers. The shell says next, of each in `ended_workers`,
    WorkerEnded, and of each in `unstarted_workers` Unstarted."""

    running: tuple[int, ...] = ()
    ended_workers: tuple[WorkerEnded, ...] = ()
    unstarted_workers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Unstarted:
    """A worker that was to start when the former daemon was killed."""

    worker: int


@dataclass(frozen=True, slots=True)
class Reconcile:
    """The job runs again, or was found running: its workers may be others than the queue knows of."""


@dataclass(frozen=True, slots=True)
class Resize:
    """Answered by Resized."""

    placement: Placement
    why: str


@dataclass(frozen=True, slots=True)
class StopAll:
    """The job shall end."""


@dataclass(frozen=True, slots=True)
class Straggling:
    """A worker is persistently slower than the others. `place`: where a stand-in fits; None: nowhere."""

    worker: int
    why: str
    place: Place | None


@dataclass(frozen=True, slots=True)
class StreamOpened:
    """A worker's first message: from now on it is ready."""

    report: ProgressReport


@dataclass(frozen=True, slots=True)
class StreamClosed:
    worker: int


@dataclass(frozen=True, slots=True)
class Reported:
    """A further message."""

    report: ProgressReport


@dataclass(frozen=True, slots=True)
class MembershipSaved:
    """The disk has this generation, or cannot take it: it is announced all the same."""

    generation: int


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed: due when LiveGroup.next_deadline_ns() is."""


Event = (
    Begin
    | Started
    | StartFailed
    | WorkerEnded
    | Adopted
    | Unstarted
    | Reconcile
    | Resize
    | StopAll
    | Straggling
    | StreamOpened
    | StreamClosed
    | Reported
    | MembershipSaved
    | Tick
)

# ---- commands ----


@dataclass(frozen=True, slots=True)
class Save:
    """The group has changed: the store shall have it before a Start that follows is carried out."""


@dataclass(frozen=True, slots=True)
class Start:
    worker: int


@dataclass(frozen=True, slots=True)
class Stop:
    """SIGTERM, the job's grace, SIGKILL. Answered by WorkerEnded if it runs."""

    worker: int


@dataclass(frozen=True, slots=True)
class Tell:
    """To the worker's stream, if it has one; only the newest message counts."""

    worker: int
    membership: Membership


@dataclass(frozen=True, slots=True)
class Announce:
    """Answered by MembershipSaved as soon as the disk has the group."""

    generation: int


@dataclass(frozen=True, slots=True)
class Resized:
    """The queue learns what the job has now, and, if that is not what it asked for, why."""

    placement: Placement
    why: str


@dataclass(frozen=True, slots=True)
class Note:
    """An entry of the event log that users read."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Progress:
    """A worker has reported steps or samples."""

    report: ProgressReport


@dataclass(frozen=True, slots=True)
class Joined:
    """All members of the newest membership work in it."""

    members: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StartAll:
    """Nothing of the attempt has begun: it begins as a new one does."""


@dataclass(frozen=True, slots=True)
class Ended:
    """No worker is left: the attempt has ended. The result is in the group."""


Command = Save | Start | Stop | Tell | Announce | Resized | Note | Progress | Joined | StartAll | Ended
