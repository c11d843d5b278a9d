"""Highest priority first, as users and admins have given them; between equals first in, first out.

What batch systems do when they are told to do nothing more: with aging and fair share left out, Slurm's priority/basic.
"""

from __future__ import annotations

from vgpud.core.jobs.model import Job
from vgpud.core.policy.base import Key, Plain


class Priority(Plain):
    def __init__(self, name: str, *, preempts: bool) -> None:
        self.name = name
        self.preempts = preempts

    def key(self, job: Job, now_ns: int) -> Key:
        return (-job.spec.priority, job.submitted_ns)
