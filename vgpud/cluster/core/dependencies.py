"""Whether what a held job waits for has happened, as squeue shows it.

Slurm looks at the dependencies of held jobs about once a minute, which is long for short jobs. The usual ones are
decided here from the states of all jobs; of the others, and of jobs that squeue does not show any more, Slurm's own
word is waited for. Slurm looks again itself before it starts a job that is released: nothing starts too early.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from vgpud.cluster.core.model import Phase, SlurmJob

#: a job, all elements of an array, or one of them; what is not fulfilled yet is said behind it
_PART = re.compile(r"(afterok|afterany|afternotok):(\d+)(?:_(\d+|\*))?\(unfulfilled\)")


_CONTINUES, _COMPLETED, _FAILED = "continues", "completed", "failed"


class Ends:
    """How the jobs of one look have ended. Each job is looked at once, however many others wait for it."""

    def __init__(self, jobs: Collection[SlurmJob]) -> None:
        self._jobs = jobs
        self._ways: dict[str, set[str]] = {}  # of jobs and elements of arrays, and of all elements of each array

    def fulfil(self, dependency: str) -> bool:
        """Whether all parts of a dependency are fulfilled, as far as that is known here."""
        return all(self._is_fulfilled(part) for part in dependency.split(","))

    def _is_fulfilled(self, part: str) -> bool:
        found = _PART.fullmatch(part)
        if found is None:
            return False
        kind, number, index = found.groups()
        ways = self._of(number if index in (None, "*") else f"{number}_{index}")
        if not ways or _CONTINUES in ways:
            return False
        return kind == "afterany" or ways == {_COMPLETED if kind == "afterok" else _FAILED}

    def _of(self, name: str) -> set[str]:
        if not self._ways:
            for job in self._jobs:
                way = _CONTINUES
                if job.phase is Phase.ENDED:
                    way = _COMPLETED if job.state == "COMPLETED" else _FAILED
                for one in {job.key, job.key.partition("_")[0]}:
                    self._ways.setdefault(one, set()).add(way)
        return self._ways.get(name, set())
