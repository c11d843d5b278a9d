"""The mailboxes of all workers with an open stream: what is still to be sent to each."""

from __future__ import annotations

from vgpud.api.workers import Mailbox
from vgpud.core.elastic.worker_group import Membership
from vgpud.core.model import Denied, Reason


class Mailboxes:
    """One for a worker of a job."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[int, int], Mailbox] = {}  # by job and worker

    def open(self, job_id: int, worker: int) -> Mailbox:
        """An empty one. The worker's former one, if it has any, is closed."""
        key = job_id, worker
        if before := self._boxes.pop(key, None):
            before.close()
        mailbox = self._boxes[key] = Mailbox(*key)
        return mailbox

    def remove(self, mailbox: Mailbox) -> bool:
        """Whether it was its worker's: else another stream has taken its place."""
        key = mailbox.job_id, mailbox.worker
        if self._boxes.get(key) is not mailbox:
            return False
        del self._boxes[key]
        return True

    def put(self, job_id: int, worker: int, message: Membership) -> None:
        """Nothing, if the worker has no stream: it gets its membership when it opens one."""
        if mailbox := self._boxes.get((job_id, worker)):
            mailbox.put(message)

    def end_attempt(self, job_id: int, attempt: int) -> None:
        """Ends the streams of all workers of the job."""
        ended = ended_refusal(job_id, attempt)
        for key in [key for key in self._boxes if key[0] == job_id]:
            self._boxes.pop(key).put(ended)


def ended_refusal(job_id: int, attempt: int) -> Denied:
    return Denied(Reason.PRECONDITION, f"attempt {attempt} of job {job_id} has ended")
