"""How tests are spread over the workers of pytest-xdist: by file, and files with a test marked `alone` at the end, on
the only worker that is left.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

#: folders whose tests use what a machine has once: engines, their networks and images, the CDI directories
ONE_AT_A_TIME = ("tests/containers/", "tests/oci/")
#: the unit of work that is run last
ALONE = "alone"


@functools.cache
def _alone(path: str) -> bool:
    """The controller, which imports no tests, sees the mark in the text."""
    return "pytest.mark.alone" in Path(path).read_text()


class ByFile(LoadScopeScheduling):
    """A unit of work is a file, a folder of ONE_AT_A_TIME, or all files with a test that is marked alone."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.split("::")[0]
        if _alone(str(self.config.rootpath / path)):
            return ALONE
        return next((folder for folder in ONE_AT_A_TIME if path.startswith(folder)), path)

    def _assign_work_unit(self, node: WorkerController) -> None:
        if ALONE in self.workqueue:
            self.workqueue.move_to_end(ALONE)
            if len(self.workqueue) == 1 and len(self.nodes) > 1:  # the last worker gets it when the others have ended
                if any(not other.shutting_down for other in self.nodes if other is not node):
                    node.shutdown()
                return
        super()._assign_work_unit(node)

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
        units = self.assigned_work[node].values()
        left = [(unit, nodeid) for unit in units for nodeid, completed in unit.items() if not completed]
        crashed = None
        if left:
            unit, crashed = left[0]
            unit[crashed] = True
        super().remove_node(node)
        if self.workqueue and len(self.nodes) == 1:
            self._reschedule(self.nodes[0])
        return crashed


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return ByFile(config, log)
