"""What slurmctld has forgotten and its nodes have not.

slurmctld saves what it did some seconds later (SAVE_MAX_WAIT, 5 s). One that is killed before that starts again from an
older state: a job that it had started waits again while its program runs, one that has ended seems to run, and numbers
of jobs are used a second time. The nodes know better, and when a node registers, slurmctld asks for its jobs and ends
those that should not be there. So after each start of slurmctld nothing is started on a node that has not registered,
and each node is asked to register at once: until it has, it counts as one that does not respond (silence.py). One that
does not register, such as a drained one that is off, is awaited as long as Slurm would await it by default. What should
run on a node and does not, slurmctld looks for only in jobs that it has known for a while: so nodes are asked again
later. A program that still ran where its job was started again has drained the node: when it registers, that is over.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from vgpud.cluster.core.model import Phase, Register, SlurmJob, SlurmNode
from vgpud.cluster.core.silence import Silence
from vgpud.core.jobs.model import SECOND_NS

#: what slurmctld ends on a node that has registered is gone then; and Slurm's nodes compare whole seconds
ABORT_NS = 2 * SECOND_NS
#: a node is awaited for so long: the default of SlurmdTimeout, after which Slurm starts its jobs elsewhere
AWAITED_NS = 300 * SECOND_NS
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
        self._awaited_ns: dict[str, int] = {}  # nodes that have not registered: since when
        self._registered_ns: dict[str, int] = {}  # those that have since: when that was first seen
        self._resumed_ns: dict[str, int] = {}
        self._missed: set[tuple[int, str]] = set()  # when nodes are to be asked for jobs
        self._overdue: set[str] = set()  # those that first have to take a start
        self._resumed_later: set[str] = set()  # nodes that appeared without a start of slurmctld: nothing was forgotten
        self._known: set[str] | None = None  # nodes that had registered; None: there was no look before
        self.restarted_ns = 0  # when nodes were last seen that slurmctld had forgotten: it must have been started
        self.unsure: frozenset[str] = frozenset()  # nodes where something may run that slurmctld does not know of
        self.silence = Silence()

    def look(
        self, nodes: Sequence[SlurmNode], jobs: Iterable[SlurmJob], now_ns: int, starting: Collection[str] = ()
    ) -> list[Register]:
        """Returns which nodes are to be asked. `starting`: nodes on which Slurm may start a job at any moment."""
        awaited = {node.name for node in nodes if node.to_register}
        new = awaited - self._awaited_ns.keys()
        self._registered_ns.update(dict.fromkeys(self._awaited_ns.keys() - awaited, now_ns))
        self._registered_ns = {name: at for name, at in self._registered_ns.items() if now_ns - at < ABORT_NS}
        self._awaited_ns = {name: self._awaited_ns.get(name, now_ns) for name in awaited}
        late = {name for name, since_ns in self._awaited_ns.items() if now_ns - since_ns >= AWAITED_NS}
        registered = {node.name for node in nodes if node.is_registered}
        is_first, is_restarted = self._known is None, bool((self._known or set()) & awaited)
        is_restarted |= is_first and not registered
        if is_restarted:
            self.restarted_ns = now_ns
            # one whose slurmd was started meanwhile has registered with the jobs of that moment
            self._registered_ns.update(dict.fromkeys(registered, now_ns))
        if is_restarted or is_first:
            # slurmctld has just been started; or this controller, which does not know what was forgotten before
            self._missed = {(now_ns + tries * MISSED_NS, node.name) for node in nodes for tries in (1, 2)}
            self._resumed_later.clear()
        else:
            self._resumed_later = (self._resumed_later | new) & awaited
        self._known = registered
        self.unsure = frozenset((awaited - late - self._resumed_later) | self._registered_ns.keys())
        new |= registered if is_restarted else set()
        having = self._having_jobs(nodes, jobs, now_ns, starting)
        asked = (
            ("slurmctld was started: before jobs start, these register", self._awake(nodes, new)),
            (f"drained by Slurm ({DUPLICATE}), and resumed", self._find_nodes_to_resume(nodes, now_ns)),
            ("they are to say whether all jobs still run", having),
        )
        self.silence.look(nodes, self._overdue.union(*(found for _, found in asked)), having, now_ns)
        return [Register(tuple(sorted(found)), f"{why}: {','.join(sorted(found))}") for why, found in asked if found]

    def _awake(self, nodes: Sequence[SlurmNode], new: set[str]) -> set[str]:
        """Those that are drained register by themselves, some seconds later."""
        return {node.name for node in nodes if node.name in new and not node.drained}

    def _find_nodes_to_resume(self, nodes: Sequence[SlurmNode], now_ns: int) -> set[str]:
        drained = {node.name for node in nodes if node.reason == DUPLICATE and node.drained}
        self._resumed_ns = {name: at for name, at in self._resumed_ns.items() if name in drained}
        found = {name for name in drained if now_ns - self._resumed_ns.get(name, -REPEAT_NS) >= REPEAT_NS}
        self._resumed_ns.update(dict.fromkeys(found, now_ns))
        return found

    def _having_jobs(
        self, nodes: Sequence[SlurmNode], jobs: Iterable[SlurmJob], now_ns: int, starting: Collection[str]
    ) -> set[str]:
        """Each in two looks, as the order may be lost, and not before it answers, nor while it has to take a start."""
        having = {name for job in jobs if job.phase is Phase.RUNS for name in job.node_names}
        ready = {node.name for node in nodes if node.is_registered and node.answers and node.name not in starting}
        later = having - ready
        due = {
            name: at_ns for at_ns, name in sorted(self._missed, reverse=True) if at_ns <= now_ns and name not in later
        }
        self._missed -= {(at_ns, name) for name, at_ns in due.items()}
        overdue = {name for at_ns, name in self._missed if at_ns <= now_ns}
        self._overdue = (overdue & having).intersection(starting)
        return due.keys() & having
