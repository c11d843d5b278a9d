"""What slurmctld has forgotten and its nodes have not.

slurmctld saves what it did some seconds later (SAVE_MAX_WAIT, 5 s). One that is killed before begins again from an
older state: a job that it had started waits again while its program runs, one that has ended seems to run, and numbers
of jobs are given away again. The nodes know better, and when a node registers, slurmctld asks for its jobs and ends
those that should not be there. So after each start of slurmctld nothing is started on a node that has not registered,
and each node is asked to register at once: until it has, Slurm does not start anything there by itself either. What
should run on a node and does not, slurmctld looks for only in jobs that it has known for a while: so nodes are asked
once more later. A program that still ran where its job was started again has drained the node: when it registers, that
is over.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vgpud.cluster.core.model import Phase, Register, SlurmJob, SlurmNode
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS

#: what slurmctld ends on a node that has registered is gone then; and Slurm's nodes compare whole seconds
ABORT_NS = 2 * SECOND_NS
#: after this time a job that is not on its node is missed at the node's next registration: slurmctld waits for
#: BatchStartTimeout (10 s) and 10 s more
MISSED_NS = 25 * SECOND_NS
#: Slurm's reason for draining a node where it has started a job for the second time; no administrator writes that
DUPLICATE = "Duplicate jobid"
#: a node that is still drained is asked again
REPEAT_NS = 30 * SECOND_NS


class Registrations:
    """Of all nodes of the partition, from look to look."""

    def __init__(self) -> None:
        self._awaited_ns: dict[str, int] = {}  # when a node was last seen that had not registered
        self._asked: set[str] = set()  # of those that have not registered: once is enough
        self._resumed_ns: dict[str, int] = {}
        self._missed_ns = NEVER_NS  # when jobs can be missed
        self.unsure: frozenset[str] = frozenset()  # nodes where something may run that slurmctld does not know of

    def begin(self, now_ns: int) -> None:
        """A controller starts: what slurmctld forgot before has not been looked for, as far as is known."""
        self._missed_ns = now_ns + MISSED_NS

    def look(self, nodes: Sequence[SlurmNode], jobs: Iterable[SlurmJob], now_ns: int) -> list[Register]:
        """Returns who is to be asked."""
        awaited = {node.name for node in nodes if node.to_register}
        if awaited:
            self._awaited_ns.update(dict.fromkeys(awaited, now_ns))
            self._missed_ns = now_ns + MISSED_NS
        self._awaited_ns = {name: at for name, at in self._awaited_ns.items() if now_ns - at < ABORT_NS}
        self.unsure = frozenset(self._awaited_ns)
        asked = (
            ("slurmctld was started: before jobs start, these register", self._new(nodes, awaited)),
            (f"drained by Slurm ({DUPLICATE}), and resumed", self._resumed(nodes, now_ns)),
            ("they are to say whether all jobs still run", self._having_jobs(nodes, jobs, now_ns)),
        )
        return [Register(tuple(sorted(found)), f"{why}: {','.join(sorted(found))}") for why, found in asked if found]

    def _new(self, nodes: Sequence[SlurmNode], awaited: set[str]) -> set[str]:
        """Those that are drained register by themselves, some seconds later."""
        new = awaited - self._asked
        self._asked = awaited
        return {node.name for node in nodes if node.name in new and not node.drained}

    def _resumed(self, nodes: Sequence[SlurmNode], now_ns: int) -> set[str]:
        drained = {node.name for node in nodes if node.reason == DUPLICATE and node.drained}
        self._resumed_ns = {name: at for name, at in self._resumed_ns.items() if name in drained}
        found = {name for name in drained if now_ns - self._resumed_ns.get(name, -REPEAT_NS) >= REPEAT_NS}
        self._resumed_ns.update(dict.fromkeys(found, now_ns))
        return found

    def _having_jobs(self, nodes: Sequence[SlurmNode], jobs: Iterable[SlurmJob], now_ns: int) -> set[str]:
        if now_ns < self._missed_ns:
            return set()
        self._missed_ns = NEVER_NS
        having = {name for job in jobs if job.phase is Phase.RUNS for name in job.node_names}
        return having & {node.name for node in nodes if node.offered}
