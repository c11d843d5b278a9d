"""AttachJob between a fake queue and fake terminals: viewers that are late, and keepers that are gone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from vgpud.api import terminals
from vgpud.api.job_backend import JobBackend
from vgpud.api.rpc import RefusedError
from vgpud.api.terminals import Viewing, _Viewer
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import Ask, Job, JobSpec, JobState
from vgpud.core.jobs.terminal import Heard, Kind
from vgpud.core.model import Spec
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

PATIENCE_S = 60.0


class FakeTerminal:
    """One that says what the test sets."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Heard] = asyncio.Queue()

    async def hear(self) -> Heard:
        return await self.messages.get()

    async def type(self, keys: bytes) -> None: ...
    async def resize(self, rows: int, columns: int) -> None: ...
    def close(self) -> None: ...


class FakeBackend:
    """One job that runs; `terminals`: what joining it finds, one after the other."""

    def __init__(self, *terminals: FakeTerminal) -> None:
        run = Launch(1000, 1000, (1000,), ("bash",), "", "/tmp", (), 18, (), "/tmp/x", terminal=True)
        self.present = Job(7, JobSpec(Ask(Spec(500)), uid=1000, run=run), 0, state=JobState.RUNNING, attempt=1)
        self.terminals = list(terminals)

    async def job(self, job_id: int) -> Job | None:
        return self.present

    def since(self, after: int) -> tuple[int, Any]:
        return 0, ()

    async def wait(self, after: int, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)

    def join_terminal(self, job: Job) -> FakeTerminal | None:
        return self.terminals.pop(0) if self.terminals else None

    def note(self, kind: str, job: Job, text: str) -> None: ...


class Call:
    """One viewer's call."""

    def __init__(self, viewing: Viewing, uid: int) -> None:
        reading = asyncio.create_task(asyncio.sleep(PATIENCE_S))
        self.answers = viewing._messages(7, _Viewer(uid), reading)

    async def until(self, words: str) -> str:
        """The text of the next notice, or "replay"; others are passed over."""
        async for answer in self.answers:
            found = "replay" if answer.HasField("replay") else answer.notice
            if words in found and found:
                return found
        raise AssertionError(f"no {words!r}")


def viewing(backend: FakeBackend) -> Viewing:
    async def find(job_id: int) -> Job:
        return backend.present

    def show(job: Job) -> pb.Job:
        return pb.Job(job_id=job.job_id, state=words.JOB_STATE.to_number(job.state.value))

    parts: Any = backend
    return Viewing(JobBackend("n1", parts, parts, parts, parts, parts, parts, parts), find, show)


def test_a_viewer_that_was_not_notified_that_another_has_joined() -> None:
    """Its keeper could not notify it, and it does not take the terminal back."""

    async def both() -> None:
        old, new, third = FakeTerminal(), FakeTerminal(), FakeTerminal()
        backend = FakeBackend(old, new, third)
        there = viewing(backend)
        first, second = Call(there, 1000), Call(there, 0)
        old.messages.put_nowait(Heard(Kind.REPLAY))
        new.messages.put_nowait(Heard(Kind.REPLAY))
        await first.until("replay")
        await second.until("replay")
        old.messages.put_nowait(Heard(Kind.ENDED))
        assert await first.until("joined") == "uid 0 has joined the terminal of job 7 from elsewhere"
        assert [answer async for answer in first.answers] == []
        assert backend.terminals == [third], "it was not joined again"
        await second.answers.aclose()

    asyncio.run(asyncio.wait_for(both(), PATIENCE_S))


def test_a_terminal_whose_keeper_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its job runs on: the call ends with a sentence, instead of waiting for ever."""
    monkeypatch.setattr(terminals, "GONE_S", 0.05)

    async def one() -> None:
        await Call(viewing(FakeBackend()), 1000).until("nothing")

    with pytest.raises(RefusedError, match="job 7 runs, and its terminal is gone"):
        asyncio.run(asyncio.wait_for(one(), PATIENCE_S))
