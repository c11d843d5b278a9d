"""Highest priority first, as users and admins have set them; between equals first in, first out.

The default of batch systems: Slurm's priority/basic, without aging and fair share.
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
