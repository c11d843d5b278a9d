"""Whether what a held job waits for has happened, as squeue shows it.

Slurm looks at the dependencies of held jobs about once a minute, which is long for short jobs. The usual ones are
decided here from the states of all jobs; of the others, and of jobs that squeue does not show any more, Slurm's own
word is waited for. Slurm looks again itself before it starts a job that is released: nothing starts too early.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from vgpud.cluster.core.model import Phase, SlurmJob

#: a job, all elements of an array, or one of them; what is not fulfilled yet is said behind it
_PART = re.compile(r"(afterok|afterany|afternotok):(\d+)(?:_(\d+|\*))?\(unfulfilled\)")


class Ends:
    """How the jobs of one look have ended."""

    def __init__(self, jobs: Sequence[SlurmJob]) -> None:
        self._jobs = jobs
        self._by_number: dict[str, list[SlurmJob]] | None = None

    def fulfil(self, dependency: str) -> bool:
        """Whether all parts of a dependency are fulfilled, as far as that is known here."""
        return all(self._is_fulfilled(part) for part in dependency.split(","))

    def _is_fulfilled(self, part: str) -> bool:
        found = _PART.fullmatch(part)
        if found is None:
            return False
        kind, number, index = found.groups()
        jobs = self._of(number)
        if index not in (None, "*"):
            jobs = [job for job in jobs if job.key == f"{number}_{index}"]
        if not jobs or any(job.phase is not Phase.ENDED for job in jobs):
            return False
        completed = [job.state == "COMPLETED" for job in jobs]
        return kind == "afterany" or (all(completed) if kind == "afterok" else not any(completed))

    def _of(self, number: str) -> list[SlurmJob]:
        if self._by_number is None:
            self._by_number = {}
            for job in self._jobs:
                self._by_number.setdefault(job.key.partition("_")[0], []).append(job)
        return self._by_number.get(number, [])
