"""First in, first out, without preemption; whether jobs may pass the first one that does not fit is decided by the
queue.

The baseline of every paper, and the default that users expect.
"""

from __future__ import annotations

from vgpud.core.jobs.model import SECOND_NS, Job
from vgpud.core.policy.base import Key, Plain


class Fifo(Plain):
    def __init__(self) -> None:
        self.name = "fifo"
        self.preempts = False

    def key(self, job: Job, now_ns: int) -> Key:
        return (job.submitted_ns,)

    def describe(self, job: Job, now_ns: int) -> str:
        return f"was submitted {max(0, now_ns - job.submitted_ns) // SECOND_NS} s ago"
