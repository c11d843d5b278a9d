"""Submits the jobs at their times, as their users, and again what slurmctld has forgotten.

slurmctld saves what it has accepted some seconds later. One that is killed before that has forgotten a job that it has
given a number, and gives the number away again: its users would look for it, and so does this. A job that comes after
others is submitted when it is known what their numbers are, not while slurmctld is away: it would come after the job
that has the number then.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence

from benchmarks.cluster.acceptance.site import PARTITION, Folder, Site
from benchmarks.cluster.acceptance.workload import Submission

#: slurmctld saves within 5 s; what it accepted longer before its death is known
SAVED_S = 30.0
TRIES_S = 120.0
TURN_S = 0.2
CHAINING_S = 0.02
AGAIN_S = 0.5


class Submitter:
    """A thread. `begin_s`: of time.monotonic(), when time is 0 for the submissions."""

    def __init__(self, site: Site, folder: Folder, submissions: Sequence[Submission], begin_s: float) -> None:
        self._site, self._folder, self._submissions = site, folder, submissions
        self._begin_s = begin_s
        self._ids: dict[str, str] = {}
        self._accepted_s: dict[str, float] = {}
        self._killed_s = 0.0  # when slurmctld was killed; 0 = not since the last look
        self._is_away = self._is_chaining = False  # slurmctld; this, by sbatch with numbers of other jobs
        self.forgotten_jobs: list[str] = []
        self.refused_calls = 0  # calls of sbatch without an answer
        self.late_s = 0.0  # the latest one, of those that were answered at once
        self.error: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="submitter", daemon=True)
        self._thread.start()

    def slurmctld_goes(self) -> None:
        """It is killed next. Waits for the answer to a job that comes after others."""
        self._is_away = True
        while self._is_chaining and not self._stopped.wait(CHAINING_S):
            pass

    def slurmctld_was_killed(self, at_s: float) -> None:
        """It runs again, and may have forgotten what it accepted before this time."""
        self._killed_s, self._is_away = at_s, False

    @property
    def is_done(self) -> bool:
        """Whether all have been accepted, and none is known to have been forgotten."""
        return len(self._ids) == len(self._submissions) and not self._killed_s

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            for one in self._submissions:
                due_s = self._begin_s + one.at_s
                while (left_s := due_s - time.monotonic()) > 0:
                    if self._stopped.wait(min(left_s, TURN_S)):
                        return
                    self._look_back()
                self._submit(one)
            while not self._stopped.wait(TURN_S):
                self._look_back()
        except BaseException as error:
            self.error = error

    def _submit(self, one: Submission) -> None:
        due_s, tries_until_s = self._begin_s + one.at_s, time.monotonic() + TRIES_S
        is_first = one.name not in self.forgotten_jobs
        while not self._stopped.is_set():
            self._is_chaining = bool(one.after)
            try:
                may_submit = not (one.after and (self._is_away or self._killed_s))
                done = self._sbatch(one) if may_submit else None
            finally:
                self._is_chaining = False
            if not may_submit:
                self._stopped.wait(TURN_S)
                self._look_back()
                continue
            if done is not None and done.returncode == 0:
                self._accept(one.name, done.stdout.strip())
                if is_first:
                    self.late_s = max(self.late_s, time.monotonic() - due_s)
                return
            said = done.stderr.strip() if done else "no answer"
            if time.monotonic() > tries_until_s:
                raise RuntimeError(f"sbatch refuses {one.name}: {said}")
            is_first = False
            self.refused_calls += 1
            self._stopped.wait(AGAIN_S)
            self._look_back()  # a job that it comes after may have been forgotten
            known = self._list_jobs() or {}
            if one.name in known:  # it was accepted, and the answer was lost
                self._accept(one.name, known[one.name])
                return

    def _sbatch(self, one: Submission) -> subprocess.CompletedProcess[str] | None:
        after = [self._ids[name] for name in one.after]
        return self._call(*self._site.submit(one, self._folder, after), user=one.user)

    def _accept(self, name: str, number: str) -> None:
        self._ids[name], self._accepted_s[name] = number, time.monotonic()

    def _look_back(self) -> None:
        """After a restart of slurmctld: what it has forgotten is submitted again, in the same order."""
        killed_s = self._killed_s
        if not killed_s:
            return
        known = self._list_jobs()
        if known is None:
            return  # it does not answer yet
        self._killed_s = 0.0
        for one in self._submissions:
            accepted_s = self._accepted_s.get(one.name, 0.0)
            if killed_s - SAVED_S <= accepted_s <= killed_s and one.name not in known:
                self.forgotten_jobs.append(one.name)
                self._submit(one)

    def _list_jobs(self) -> dict[str, str] | None:
        """Jobs that slurmctld has: name -> number; None: it does not answer."""
        done = self._call("squeue", "-h", "-a", "--states=all", f"--partition={PARTITION}", "-o", "%F %j")
        if done is None or done.returncode:
            return None
        pairs = (line.split() for line in done.stdout.splitlines())
        return {name: number for number, name in pairs}

    def _call(self, *command: str, user: str = "") -> subprocess.CompletedProcess[str] | None:
        try:
            return self._site.cluster.call(*command, user=user, check=False)
        except subprocess.TimeoutExpired:
            return None
