"""A Slurm of plain values: starts what is not held on the nodes that it is bound to, in the order of submission.

It chooses devices otherwise than the queue does (from the highest number down), and requeues when a node fails. It
forgets what it did since save() when it is killed (kill()); its nodes do not, and say what runs when they register: at
once when they are asked, or with `draw` some time, asked or not, one by one.
What it shows is what squeue and sinfo show.
"""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass, field

from vgpud.cluster.core.model import (
    Cancel,
    Hold,
    Order,
    Phase,
    Register,
    Release,
    Request,
    Requeue,
    SetComment,
    SlurmJob,
    SlurmNode,
    SlurmSnapshot,
)

SHARDS = 1000


@dataclass
class FakeNode:
    gpus: int
    model: str = ""
    state: str = "idle"
    cpus: int = 64
    shards: int = SHARDS  # of each GPU; 0: this Slurm counts none
    memory_bytes: int = 0  # of each GPU, as the node publishes it
    reason: str = ""
    is_registered: bool = True
    must_register: bool = False  # nothing starts before
    runs: set[str] = field(default_factory=set)  # jobs whose programs run there
    ends_ns: dict[str, int] = field(default_factory=dict)  # of these, what is being ended: when it will be gone
    missed_jobs: set[str] = field(default_factory=set)  # not there at its last registration, and should have been


@dataclass
class FakeJob:
    key: str
    gres: str
    nodes: int = 1
    uid: int = 1000
    account: str = ""
    name: str = "wrap"
    comment: str = ""
    dependency: str = ""
    requeues: bool = True
    state: str = "PENDING"
    priority: int = 0
    user_hold: bool = False
    bound_to: tuple[str, ...] = ()
    has: dict[str, dict[int, int]] = field(default_factory=dict)  # by node: milli of each device
    restarts: int = 0
    starts: int = 0  # that ended or continue: how often its program began
    began: str = ""  # when it did last
    exit_code: int = 0
    controller_text: str = ""

    @property
    def takes(self) -> tuple[int, int]:
        """(devices, milli of each) on each node."""
        kind, *rest = self.gres.removeprefix("gres:").split(":")
        count = int(rest[-1])
        return (1, count) if kind == "shard" else (count, SHARDS)

    @property
    def model(self) -> str:
        words = self.gres.removeprefix("gres:").split(":")
        return words[1] if len(words) == 3 else ""


class FakeSlurm:
    def __init__(self, **gpus: int) -> None:
        self.nodes = {name: FakeNode(count) for name, count in gpus.items()}
        self.jobs: dict[str, FakeJob] = {}
        self.limits: dict[int, int] = {}  # of arrays: elements that run at once
        self.unknown_limits: set[int] = set()  # arrays whose limit the controller could not ask for yet
        self.scripts: dict[str, str] = {}  # what sbatch was given
        self.accounting: str | None = None  # what sacct prints; None: there is no slurmdbd
        self.old = False  # it shows devices of jobs and no sums of nodes, as 22.05 does
        self.deaf = False  # orders are lost: the controller was killed before it gave them
        self.duplicates = 0  # starts of jobs whose programs ran there
        self.saved_jobs = b""
        self.now_ns = 0
        #: starts that a node did not take, by job: of which run, and when each is sent again
        self.unsent: dict[str, tuple[int, int]] = {}
        self.abort_ns = 0  # what should not run on a node that registers is gone so much later
        self.draw: random.Random | None = None

    def submit(self, gres: str, held: bool = True, **fields: object) -> str:
        """As vgpu_cluster.lua has it: held while a controller decides."""
        key = str(fields.pop("key", len(self.jobs) + 1))
        self.jobs[key] = FakeJob(key, f"gres:{gres}", priority=0 if held else 100, **fields)  # type: ignore[arg-type]
        return key

    # ---- what it does by itself ----

    def schedule(self) -> list[str]:
        """Starts what can; returns which jobs. Nodes register after that."""
        started = []
        for job in self.jobs.values():
            ready = job.state == "PENDING" and job.priority and not job.dependency and not self._is_throttled(job)
            if ready and self._start(job):
                started.append(job.key)
        for name, node in self.nodes.items():
            by_itself = self.draw is not None and not node.is_registered
            if (node.must_register or by_itself) and (self.draw is None or self.draw.random() < 0.3):
                self.register(name)
        return started

    def pass_to(self, now_ns: int) -> None:
        """Time passes: what is being ended ends. A start that is sent again after its run has ended is refused, and so
        ends the job's next run."""
        self.now_ns = now_ns
        for key, (restarts, at_ns) in list(self.unsent.items()):
            job = self.jobs[key]
            if at_ns <= now_ns:
                del self.unsent[key]
                if job.state == "RUNNING" and job.restarts != restarts:
                    self.end(key, "FAILED", 1)
        for node in self.nodes.values():
            over = {key for key, at_ns in node.ends_ns.items() if at_ns <= now_ns}
            node.runs -= over
            node.ends_ns = {key: at_ns for key, at_ns in node.ends_ns.items() if key not in over}

    def register(self, name: str) -> None:
        """A node says what runs there: what should not is ended, and what should and does not is missed the second
        time."""
        node = self.nodes[name]
        node.is_registered, node.must_register = True, False
        for key in node.runs:
            if key not in self.jobs or name not in self.jobs[key].has:
                node.ends_ns.setdefault(key, self.now_ns + self.abort_ns)
        self.pass_to(self.now_ns)
        missing = {key for key, job in self.jobs.items() if name in job.has and key not in node.runs}
        for key in missing & node.missed_jobs:
            self.requeue(key)
        node.missed_jobs = missing

    def save(self) -> None:
        self.saved_jobs = pickle.dumps(self.jobs)

    def kill(self) -> None:
        """It is killed (SIGKILL) and started again."""
        self.jobs = pickle.loads(self.saved_jobs)  # noqa: S301  our own
        for node in self.nodes.values():
            node.is_registered = node.must_register = False
            node.missed_jobs.clear()

    def array(self, gres: str, count: int, limit: int = 0, **fields: object) -> list[str]:
        """Elements 0, 1, ... of one array."""
        number = len(self.jobs) + 1
        self.limits[number] = limit
        return [self.submit(gres, key=f"{number}_{index}", **fields) for index in range(count)]

    def _is_throttled(self, job: FakeJob) -> bool:
        """Whether as many elements of its array run as may."""
        number = _array(job)
        limit = self.limits.get(number, 0)
        return 0 < limit <= sum(_array(one) == number and one.state == "RUNNING" for one in self.jobs.values())

    def free(self, name: str) -> list[int]:
        free = [SHARDS] * self.nodes[name].gpus
        for job in self.jobs.values():
            for index, milli in job.has.get(name, {}).items():
                if index < len(free):
                    free[index] -= milli
        return free

    def _start(self, job: FakeJob) -> bool:
        names = job.bound_to or tuple(sorted(self.nodes))
        found: dict[str, dict[int, int]] = {}
        for name in names:
            node = self.nodes.get(name)
            if node is None or node.must_register or node.state not in ("idle", "mixed", "allocated"):
                continue
            if job.model and job.model != node.model:
                continue
            count, milli = job.takes
            devices = [i for i in reversed(range(node.gpus)) if self.free(name)[i] >= milli]
            if len(devices) >= count and len(found) < job.nodes:
                found[name] = dict.fromkeys(devices[:count], milli)
        if len(found) < job.nodes:
            return False
        there = [name for name, node in self.nodes.items() if job.key in node.runs]
        if there:
            assert set(there) <= set(found), f"job {job.key} would run twice: on {there} and {sorted(found)}"
            self.duplicates += 1
            self.requeue(job.key)
            for name in there:
                self.nodes[name].state, self.nodes[name].reason = "draining", "Duplicate jobid"
            return False
        job.has, job.state, job.starts, job.began = found, "RUNNING", job.starts + 1, str(self.now_ns)
        for name in found:
            self.nodes[name].runs.add(job.key)
        assert all(min(self.free(name)) >= 0 for name in found), "more is given than there is"
        return True

    def end(self, key: str, state: str = "COMPLETED", exit_code: int = 0) -> None:
        job = self.jobs[key]
        job.state, job.exit_code, job.has = state, exit_code, {}
        self._is_over(key)

    def _is_over(self, key: str) -> None:
        for node in self.nodes.values():
            node.runs.discard(key)
            node.ends_ns.pop(key, None)

    def requeue(self, key: str) -> None:
        """As after a failure of its node, or scontrol requeue: with its usual priority."""
        job = self.jobs[key]
        job.state, job.has, job.restarts, job.priority = "PENDING", {}, job.restarts + 1, 100
        self._is_over(key)

    def fail(self, name: str) -> None:
        self.nodes[name].state = "down*"
        for job in self.jobs.values():
            if name in job.has:
                self.requeue(job.key)

    # ---- its commands ----

    def tell(self, order: Order) -> None:
        if self.deaf:
            return
        if isinstance(order, Register):
            for name in order.nodes:
                node = self.nodes[name]
                node.must_register, node.reason = True, ""
                node.state = "idle" if node.state in ("draining", "drained") else node.state
            return
        job = self.jobs[order.key]
        waits = job.state == "PENDING"
        match order:
            case Release(_, nodes) if waits:
                job.bound_to, job.priority, job.user_hold = nodes, 100, False
            case Hold() if waits:
                job.bound_to, job.priority = (), 0
            case Requeue() if job.state in ("RUNNING", "COMPLETED", "FAILED"):
                self.requeue(job.key)
                job.priority = 0
            case Cancel():
                self.end(job.key, "CANCELLED")
            case SetComment(_, text):
                job.controller_text = text

    # ---- what it shows ----

    def snapshot(self) -> SlurmSnapshot:
        return SlurmSnapshot(
            tuple(self._show_job(job) for job in self.jobs.values()),
            tuple(self._node(name, node) for name, node in self.nodes.items()),
        )

    def _show_job(self, job: FakeJob) -> SlurmJob:
        held = job.priority == 0 and job.state == "PENDING"
        shown = SlurmJob(
            job.key,
            state=job.state,
            held=job.priority == 0,
            user_held=held and job.user_hold,
            uid=job.uid,
            account=job.account,
            request=Request(job.gres, job.nodes, comment=job.comment),
            node_names=tuple(sorted(job.has)),
            dependency=job.dependency,
            requeues=job.requeues,
            restarts=job.restarts,
            start=job.began,
            exit_code=job.exit_code,
            array_limit=None if _array(job) in self.unknown_limits else self.limits.get(_array(job), 0),
            devices=tuple(
                (name, at, milli) for name, has in job.has.items() for at, milli in sorted(has.items()) if self.old
            ),
        )
        assert shown.phase is not Phase.RUNS or job.has
        return shown

    def _node(self, name: str, node: FakeNode) -> SlurmNode:
        used = () if self.old else tuple(SHARDS - free for free in self.free(name))
        shards = node.shards * node.gpus
        more = {"memory_bytes": node.memory_bytes, "is_registered": node.is_registered, "reason": node.reason}
        return SlurmNode(name, node.state, node.gpus, node.model, shards, node.cpus, used, **more)


def _array(job: FakeJob) -> int:
    """The number of its array; 0 = it is in none."""
    number, is_element, _ = job.key.partition("_")
    return int(number) if is_element else 0
