"""How tests are spread over the workers of pytest-xdist: by file, the longest files first, and tests marked `alone` at
the end, on the only worker that is left.
"""

from __future__ import annotations

import ast
import functools
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: folders whose tests use what a machine has once: engines, their networks and images, the CDI directories; PyTorch,
#: for which the other workers do not wait
ONE_AT_A_TIME = ("tests/containers/", "tests/oci/", "tests/pytorch/")
#: units of their own in such a folder, each named by its first file: a worker has engines, images and a daemon of its
#: own, and the folder as a whole would be waited for by all others -> the further files of the unit
APART: dict[str, tuple[str, ...]] = {
    "tests/containers/test_images.py": (),
    "tests/containers/test_lifecycle.py": (
        "tests/containers/test_job_images.py",
        "tests/containers/test_restarts.py",
        "tests/containers/test_run.py",
        "tests/containers/test_setup.py",
    ),
}
#: folders whose tests read the same sources, which one worker then parses once
READ_ONCE = ("tests/rules/",)
#: the unit of work that is run last
ALONE = "alone"
#: a test that is marked slow is as long as so many others
SLOW = 50
#: units that take longer than the number of their tests says, in tests of the usual length (half a second on two busy
#: processors), by the list that CI prints. Begun at the end, such a unit is waited for by all other workers
LONG = {
    "tests/containers/test_images.py": 1000,
    "tests/containers/test_lifecycle.py": 600,
    "tests/containers/": 500,
    "tests/console/test_browser.py": 400,
    "tests/rules/": 400,
    "tests/shim/test_ledger_sanitized.py": 300,
    "tests/test_c.py": 300,
    "tests/elastic/test_workers.py": 300,
    "tests/benchmarks/test_rivals.py": 250,
    "tests/faults/test_killed.py": 250,
    "tests/clients/gpu/test_matrix.py": 200,
    "tests/test_package.py": 200,
    "tests/predict/test_torch.py": 200,
    "tests/sim/test_sanitized_driver.py": 200,
    "tests/arbiter/test_bounds.py": 160,
    "tests/ray/test_cluster.py": 160,
    "tests/arbiter/test_equality.py": 160,
    "tests/tools/test_deb.py": 150,
    "tests/benchmarks/test_elastic_queue.py": 150,
    "tests/benchmarks/test_cifar.py": 150,
    "tests/predict/test_collect.py": 130,
    "tests/client/test_examples.py": 130,
    "tests/cluster/test_acceptance.py": 130,
    "tests/arbiter/test_hostile.py": 120,
    "tests/test_world.py": 110,
}


@functools.cache
def _marked_functions(path: str, mark: str) -> frozenset[str]:
    """Functions of a file that have a mark; "" for all of it. The controller imports no tests: it reads the text."""
    text, wanted = Path(path).read_text(), f"pytest.mark.{mark}"
    if wanted not in text:
        return frozenset()

    def is_mark(node: ast.expr) -> bool:
        return ast.unparse(node) == wanted

    body = ast.parse(text).body
    marked = {n.name for n in body if isinstance(n, ast.FunctionDef) and any(map(is_mark, n.decorator_list))}
    values = [n.value for n in body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "pytestmark"]
    whole = [mark for value in values for mark in (value.elts if isinstance(value, ast.List) else [value])]
    return frozenset(marked | ({""} if any(map(is_mark, whole)) else set()))


class ByFile(LoadScopeScheduling):
    """A unit of work is a file, a folder of ONE_AT_A_TIME without its files in APART, files of APART, a folder of
    READ_ONCE, or all tests that are marked alone."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self._lengths: dict[str, int] = {}

    def _has_mark(self, nodeid: str, mark: str) -> bool:
        path, _, test = nodeid.partition("::")
        return bool(_marked_functions(str(self.config.rootpath / path), mark) & {"", test.partition("[")[0]})

    def _split_scope(self, nodeid: str) -> str:
        if self._has_mark(nodeid, ALONE):
            return ALONE
        path = nodeid.partition("::")[0]
        if unit := next((unit for unit, files in APART.items() if path in (unit, *files)), None):
            return unit
        return next((folder for folder in (*ONE_AT_A_TIME, *READ_ONCE) if path.startswith(folder)), path)

    def _length(self, unit: str) -> int:
        if unit not in self._lengths:
            slow = (SLOW if self._has_mark(nodeid, "slow") else 1 for nodeid in self.workqueue[unit])
            self._lengths[unit] = max(sum(slow), LONG.get(unit, 0))
        return self._lengths[unit]

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self.workqueue:  # other workers have had a second unit before this one's first
            node.shutdown()
            return
        self.workqueue.move_to_end(max(self.workqueue, key=self._length), last=False)
        if ALONE in self.workqueue:
            self.workqueue.move_to_end(ALONE)
            if len(self.workqueue) == 1 and len(self.nodes) > 1:  # the last worker gets it when the others have ended
                if any(not other.shutting_down for other in self.nodes if other is not node):
                    node.shutdown()
                return
        super()._assign_work_unit(node)
        if self._pending_of(self.assigned_work[node]) < 2:
            # A worker begins a test when it knows the next one, or that there is none.
            self._reschedule(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node in self.registered_collections:  # else it takes another's place, and has still to collect
            super()._reschedule(node)

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        """A worker in another's place may find that files were edited meanwhile: it goes, else all wait for it."""
        super().add_node_collection(node, collection)
        if node not in self.registered_collections:
            node.shutdown()

    def remove_node(self, node: WorkerController) -> str | None:
        """A test that its worker has not survived has failed: xdist would give it to worker after worker, and hang."""
        units = self.assigned_work[node]
        left = [(unit, nodeid) for unit in units.values() for nodeid, completed in unit.items() if not completed]
        crashed = None
        if left:
            unit, crashed = left[0]
            unit[crashed] = True
        for name in [name for name, unit in units.items() if all(unit.values())]:
            del units[name]  # xdist would give it to a worker, which would wait for ever for its first test
        super().remove_node(node)
        if self.workqueue and len(self.nodes) == 1:
            self._reschedule(self.nodes[0])
        return crashed


def pytest_sessionstart(session: pytest.Session) -> None:
    """With --reruns a worker sends two short messages for each test, and TCP holds the second one back until the first
    is acknowledged, which takes 40 ms: over ten thousand tests the workers would wait for seven minutes together."""
    if connection := getattr(session.config.failures_db, "sock", None):  # type: ignore[attr-defined]
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return ByFile(config, log)
