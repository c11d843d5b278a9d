"""Nodes that do not respond, or are asked to register, which has the same effect.

Slurm starts jobs there all the same, sometimes, and sends such a start 10 s later. So jobs are released to them later
(pauses.py), and one that was requeued meanwhile must not run when its former start is sent (reruns.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vgpud.cluster.core.model import SlurmNode
from vgpud.core.jobs.model import SECOND_NS

#: a start that could not be sent for so long is given up by Slurm (ResumeTimeout, 60 s by default)
KEPT_NS = 300 * SECOND_NS


class Silence:
    """From look to look."""

    def __init__(self) -> None:
        self._spans: dict[str, list[tuple[int, int]]] = {}  # by node: from and until which look
        self._last_ns = 0  # the look before
        self.nodes: frozenset[str] = frozenset()

    def look(self, nodes: Sequence[SlurmNode], asked_nodes: set[str], asked_at_work: set[str], now_ns: int) -> None:
        """`asked_nodes`: nodes that will be silent after this look; `asked_at_work`: those of them on which Slurm may
        have started something already."""
        quiet = {node.name for node in nodes if not node.responds}
        self.nodes = frozenset(quiet | asked_nodes)
        quiet |= {node.name for node in nodes if node.is_off}
        kept = {name: [one for one in spans if now_ns - one[1] < KEPT_NS] for name, spans in self._spans.items()}
        self._spans = {name: spans for name, spans in kept.items() if spans}
        for name in quiet:
            spans = self._spans.setdefault(name, [])
            begin_ns = spans.pop()[0] if spans and spans[-1][1] >= self._last_ns else now_ns
            spans.append((begin_ns, now_ns))
        for name in asked_at_work - quiet:
            self._spans.setdefault(name, []).append((now_ns + 1, now_ns + 1))
        self._last_ns = now_ns

    def was(self, names: Iterable[str], since_ns: int, until_ns: int) -> bool:
        """Whether one of these nodes was silent at some time between these."""
        spans = (span for name in names for span in self._spans.get(name, ()))
        return any(begin_ns <= until_ns and since_ns <= end_ns for begin_ns, end_ns in spans)
