"""The caller of the method that runs, known to all code under it (a context variable)."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from vgpud.core.model import ANYONE, Asker


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of the method that runs."""

    uid: int
    gid: int
    gids: tuple[int, ...]  # further groups
    pid: int  # 0 = it has ended, or lives where we cannot see it
    admin: bool
    start_ticks: int = 0  # of that process: processes.open_process(pid, start_ticks) never is another one
    remote: bool = False  # connected over TLS: there is no process of the caller's on this machine
    certificate: str = ""  # SHA-256 of the certificate of the connection, "" on the unix socket
    token: str = ""  # id of the token that the call came with

    def owns(self, owner_uid: int) -> bool:
        """Whether they may change what belongs to this user."""
        return self.admin or owner_uid == self.uid

    def sees(self, owner_uid: int) -> bool:
        """Whether the caller is shown it: their own things, and what is open to every user."""
        return self.owns(owner_uid) or owner_uid == ANYONE

    @property
    def asker(self) -> Asker:
        return Asker(self.uid, (self.gid, *self.gids), self.admin)


_caller: ContextVar[Caller] = ContextVar("caller")


def caller() -> Caller:
    """Of the method that runs. Raises LookupError elsewhere."""
    return _caller.get()


def set_caller(who: Caller) -> None:
    """For the rest of this task, and for tasks that it starts."""
    _caller.set(who)
