"""Notifications of many users: one user's slow ones delay no other user's."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from vgpud.core.jobs.facts import Launch, NoticeTo
from vgpud.core.jobs.model import Ask, Job, JobSpec
from vgpud.core.model import Spec
from vgpud.daemon.jobs import notices as shell


def job_of(uid: int) -> Job:
    notice = NoticeTo(webhook=f"http://127.0.0.1:1/{uid}")
    launch = Launch(uid, uid, (), ("true",), "", "/", (), 0o22, (), "/l", notice=notice)
    return Job(uid, replace(JobSpec(Ask(Spec(500))), uid=uid, run=launch), 0)


class Notes:
    def __init__(self) -> None:
        self.entries: list[tuple[int, str]] = []

    def note(self, kind: str, job: Job, text: str) -> None:
        self.entries.append((job.spec.uid, text))


def test_one_users_slow_notifications_delay_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three users whose webhooks never answer, with as many notifications as they may have; and then another user's."""
    notes = Notes()

    async def use() -> None:
        never = asyncio.Event()
        slow: list[str] = []

        async def post_webhook(words: object, environment: dict[str, str]) -> str:
            if environment["VGPU_NOTICE_URL"].endswith("/9"):
                return "quick"
            slow.append(environment["VGPU_NOTICE_URL"])
            await never.wait()
            return ""

        monkeypatch.setattr(shell.Notifier, "_post_webhook", staticmethod(post_webhook))
        notifier = shell.Notifier(notes, tmp_path / "notices", tmp_path / "none.sock")
        held = [asyncio.create_task(notifier.notify(job_of(uid), "end")) for uid in (1, 2, 3) for _ in range(400)]
        for _ in range(5):
            await asyncio.sleep(0)
        other = asyncio.create_task(notifier.notify(job_of(9), "end"))
        for _ in range(20):
            await asyncio.sleep(0)
        assert other.done()
        assert slow, "they have begun"
        never.set()
        await asyncio.gather(*held)
        assert notifier._users == {}
        notifier.close()

    asyncio.run(use())
    assert (9, "quick") in notes.entries
    left_out = [uid for uid, text in notes.entries if text.endswith("was left out")]
    assert set(left_out) == {1, 2, 3}, "what no user can use up is left"
