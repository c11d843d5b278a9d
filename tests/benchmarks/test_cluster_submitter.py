"""What the acceptance run of the queue over many nodes submits again after a slurmctld that forgot it."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.cluster.acceptance.site import Folder
from benchmarks.cluster.acceptance.submitter import Submitter
from benchmarks.cluster.acceptance.workload import Submission
from tests.daemon.node import wait_until

FIRST = Submission("j000", 0.0, "teaching", "shard:500", 1, (2000,))
AFTER = Submission("j001", 0.0, "research", "gpu:1", 1, (3000,), after=("j000",))


class Forgetful:
    """A site whose slurmctld ends when it has answered the first submission."""

    def __init__(self) -> None:
        self.cluster = self
        self.numbers: dict[str, str] = {}
        self.after: dict[str, list[str]] = {}
        self.submitter: Submitter | None = None
        self.is_gone = False

    def submit(self, one: Submission, folder: Folder, after: list[str]) -> list[str]:
        return ["sbatch", one.name, *after]

    def call(self, program: str, *words: str, user: str = "", check: bool = True) -> Any:
        if program == "sbatch":
            name, *self.after[words[0]] = words
            number = self.numbers[name] = f"{len(self.numbers) + 1}"
            if number == "1":
                wait_until(lambda: self.submitter)
                assert self.submitter
                self.submitter.slurmctld_goes()
                self.is_gone = True
            return subprocess.CompletedProcess((), 0, number, "")
        lines = [f"{number} {name}" for name, number in self.numbers.items()]
        return subprocess.CompletedProcess((), 0, "\n".join(lines), "")


def test_a_forgotten_job_is_submitted_again_before_those_that_come_after_it(tmp_path: Path) -> None:
    """Its number is another job's by then."""
    site: Any = Forgetful()
    site.submitter = made = Submitter(site, Folder(tmp_path), (FIRST, AFTER), time.monotonic())
    try:
        wait_until(lambda: site.is_gone)
        site.numbers = {"other": "1"}
        made.slurmctld_was_killed(time.monotonic() + 1)  # whenever the answer came, it was before
        wait_until(lambda: made.is_done)
    finally:
        made.stop()
    assert made.error is None and made.forgotten_jobs == ["j000"]
    assert site.numbers == {"other": "1", "j000": "2", "j001": "3"} and site.after["j001"] == ["2"]
