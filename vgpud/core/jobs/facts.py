"""What the shells exchange about jobs: what is to be started, and what is known of a job besides the core's Job.

The API makes a Submission of a request, the job controller (daemon/jobs/controller.py) keeps it, the runner
(jobs/runner.py) starts its Launch.
"""

from __future__ import annotations

from dataclasses import dataclass

from vgpud.core.jobs.container_parts import NO_PARTS, ContainerParts
from vgpud.core.jobs.model import NEVER_NS, Job, JobSpec, JobState


@dataclass(frozen=True, slots=True)
class Predicted:
    """What the submitter's client predicted of the model: kept with what is measured, never decided upon by itself."""

    model: str
    device: str  # for which
    utilisation: tuple[float, float, float]  # of one device, 0..1: value, low, high
    sm_activity: tuple[float, float, float]
    memory_bytes: tuple[float, float, float]
    out_of_range: bool = False  # of what the predictor knows: only the features are worth keeping
    features: tuple[tuple[str, float], ...] = ()  # sorted by name


@dataclass(frozen=True, slots=True)
class NoticeTo:
    """Where a user wants to be notified; "" and () = not there."""

    mail: str = ""
    webhook: str = ""
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Launch:
    """JobSpec.run: the program and its user. Its ids are the peer credentials of the socket, never from a message."""

    uid: int
    gid: int
    gids: tuple[int, ...]
    command: tuple[str, ...]
    image: str
    directory: str  # absolute
    environment: tuple[tuple[str, str], ...]  # sorted by name
    umask: int
    #: as getrlimit(2) calls them, below RLIMIT_: (nofile, soft, hard), -1 = none
    limits: tuple[tuple[str, int, int], ...]
    log: str  # absolute; %j is the job's id, %a its index in its array, %% a percent sign
    batch: int = 0  # global batch of elastic workers; 0 = the program's own business
    batch_max: int = 0  # it grows with the workers up to this; 0 = it stays
    prediction: Predicted | None = None
    notice: NoticeTo | None = None
    terminal: bool = False  # it runs at one, which its user joins by AttachJob
    signal: str = ""  # one of signals.SIGNALS, for JobSpec.signal_lead_ns; "" = none
    grace_ms: int = -1  # from SIGTERM to SIGKILL; -1 = the site's
    session: str = ""  # what serves its page, one of session.PROGRAMS; "" = it is no session
    session_ports: tuple[str, ...] = ()  # names of its further ports
    idle_after_ns: int = 0  # a session that is not used for so long is ended or paused; 0 = never
    environment_name: str = ""  # of the site's list, from which it has its image and defaults; "" = none
    parts: ContainerParts = NO_PARTS  # what of the node its container is given
    site_parts: ContainerParts = NO_PARTS  # the same by its environment

    @property
    def words_bytes(self) -> int:
        """What its command and its environment take, about."""
        return sum(map(len, self.command)) + sum(len(name) + len(value) for name, value in self.environment)

    def log_path(self, job_id: int, index: int) -> str:
        """Where this job's output goes."""
        parts = (part.replace("%j", str(job_id)).replace("%a", str(index)) for part in self.log.split("%%"))
        return "%".join(parts)


@dataclass(frozen=True, slots=True)
class Submission:
    """A request to queue one job or an array of them."""

    spec: JobSpec  # of the first one: `index` is its index in the array, 0 = no array; queue, uid and run are filled in
    count: int  # jobs of the array, 1 without
    held: bool
    request_id: str  # the same from the same uid within 10 minutes gets the first answer; "" = none
    fingerprint: str  # of the request: another one under the same id is refused
    indices: tuple[int, ...] = ()  # of the array's jobs, where they are not consecutive


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The jobs that a list has."""

    has_ended_jobs: bool = False  # jobs that have ended as well
    uid: int | None = None  # None: of all users
    queue: str = ""  # "": of all queues
    states: tuple[JobState, ...] = ()  # (): in any
    since_ns: int = 0  # jobs that had ended before are left out

    def wants(self, job: Job) -> bool:
        if job.state.is_final and not (self.has_ended_jobs and job.ended_ns >= self.since_ns):
            return False
        if self.uid not in (None, job.spec.uid) or self.queue not in ("", job.spec.queue):
            return False
        return not self.states or job.state in self.states


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a job beside the core's Job."""

    slices: tuple[str, ...] = ()  # of its members, while it has them
    device_indices: tuple[int, ...] = ()
    position: int = 0  # in its queue, from 1; 0 = does not wait
    estimated_start_ns: int = NEVER_NS  # of the queue's clock (wall time); NEVER_NS = not known
    granted: int = 0  # milli-GPU x ns
    used_ns: int = 0  # device time, by the arbiter
    cpu_ns: int = 0
    ram_peak_bytes: int = 0
    samples_per_second: float = 0.0  # as its program reports, or its launches; 0 = not known
    measured_milli: int = -1  # of each of its devices, in the last minute; -1 = not measured
    estimated_ns: int = 0  # that jobs like it took, as often longer as shorter; 0 = not known
    session_port: int = 0  # that its present attempt was given; 0 = none
    named_ports: tuple[tuple[str, int], ...] = ()  # its further ones, by name
    session_used_ns: int = -1  # when a session that is watched was last used; -1 = not known


@dataclass(frozen=True, slots=True)
class Fact:
    """One sentence about a job, from its trail (`kind` is that of the machine's note) or of an explanation."""

    at_ns: int  # -1 = it holds now
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class QueueNow:
    """What a queue has beside its QueueSpec."""

    members: tuple[str, ...] = ()  # uid:1000, gid:1000: users whose default queue it is
    used_milli: int = 0  # by jobs and by slices made otherwise
    running: int = 0
    pending: int = 0
    history: int = 0  # milli-GPU x ns, halved every half-life


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A line of the accounting: of a job, of a slice made otherwise, or a sum. Amounts of time are milli-GPU x ns."""

    queue: str  # "" in a sum over queues
    uid: int  # -1 in a sum over users
    requested_service: int
    granted: int
    used: int
    jobs: int = 0
    job_id: int = 0  # 0 = a slice made otherwise, or a sum
    slice: str = ""
    # of one job
    submitted_ns: int = -1
    started_ns: int = -1  # for the first time
    ended_ns: int = -1
    gpus_milli: int = 0  # of each member
    members: int = 0
    ran_ns: int = 0
    state: str = ""
    # of the slice of a Kubernetes claim
    namespace: str = ""
    pod: str = ""
    # between host and devices
    copy_to_device_bytes: int = 0
    copy_from_device_bytes: int = 0
