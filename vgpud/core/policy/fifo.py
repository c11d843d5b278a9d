"""First in, first out. Nobody is preempted; whether others pass the first that does not fit is the queue's business.

The baseline of every paper, and what people expect who have not chosen anything.
"""

from __future__ import annotations

from vgpud.core.jobs.model import Job
from vgpud.core.policy.base import Key, Plain


class Fifo(Plain):
    def __init__(self) -> None:
        self.name = "fifo"
        self.preempts = False

    def key(self, job: Job, now_ns: int) -> Key:
        return (job.submitted_ns,)
