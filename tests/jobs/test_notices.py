"""What carries a notification out: its words, its variables, and that no field of a job reaches a shell."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vgpud.core.jobs.facts import Launch, NoticeTo
from vgpud.core.jobs.model import Ask, Job, JobSpec, JobState
from vgpud.core.model import Spec
from vgpud.jobs import notices

HOSTILE = "$(touch /tmp/x); `id`\nBcc: eve@example.org"


def job(notice: NoticeTo | None, **fields: object) -> Job:
    launch = Launch(
        1000, 1001, (44,), ("true",), "", "/", (("SECRET", "x"),), 0o22, (("nofile", 9, 9),), "/l", notice=notice
    )
    made = Job(7, JobSpec(Ask(Spec(500)), name=HOSTILE, uid=1000, run=launch), 0, state=JobState.FAILED)
    made.reason, made.exit_code = HOSTILE, 3
    return made


def test_each_way_is_a_program_of_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notices, "SENDMAIL", ("/none", "/bin/true"))
    asked = NoticeTo("ann@example.org", "https://example.org/h", ("/bin/tell", "a b"))
    made = notices.attempts_of(job(asked), "failure", 5)
    assert [(a.job_id, a.number, a.uid, a.gid, a.groups) for a in made] == [(7, n, 1000, 1001, (44,)) for n in (5, 6)]
    assert all((a.ram_bytes, a.pids_max, a.limits) == (256 << 20, 64, (("nofile", 9, 9),)) for a in made)
    tell, mail = (a.members[0] for a in made)
    assert tell.argv == ("/bin/tell", "a b")
    assert mail.argv[0] == "/bin/sh" and mail.argv[3:] == ("/bin/true", "ann@example.org")
    for member in (tell, mail):
        assert not any(HOSTILE in word or "touch" in word for word in member.argv), "fields are variables only"
        assert "SECRET" not in member.environment
        assert member.environment["VGPU_JOB_NAME"] == HOSTILE
        assert (member.environment["VGPU_EVENT"], member.environment["VGPU_JOB_EXIT_CODE"]) == ("failure", "3")


def test_a_webhook_is_posted_by_a_program_that_becomes_the_user() -> None:
    made = notices.post_of(job(NoticeTo(webhook="https://example.org/h")), "end")
    assert made is not None
    words, environment = made
    assert words[-3:] == ["1000", "1001", "44"]
    assert not any("example.org" in word for word in words), "every user can read arguments"
    assert environment["VGPU_NOTICE_URL"] == "https://example.org/h"
    assert json.loads(environment["VGPU_NOTICE_BODY"])["job_name"] == HOSTILE
    assert not any("touch" in word for word in words)
    assert notices.post_of(job(NoticeTo(mail="ann")), "end") is None


def test_a_field_begins_no_header_of_a_mail() -> None:
    text = notices.mail_of(notices.fields_of(job(None), "failure"))
    head, _, body = text.partition("\n\n")
    assert head.splitlines()[0] == "Subject: vgpu job 7 has failed"
    assert not any(line.startswith("Bcc") for line in text.splitlines())
    assert "job_state: failed" in body.splitlines()


def test_nothing_is_run_where_nothing_was_asked_for() -> None:
    assert notices.attempts_of(job(None), "end", 1) == []


def test_mail_without_a_mail_system_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(notices, "SENDMAIL", (os.fspath(tmp_path / "sendmail"),))
    with pytest.raises(notices.NoticeError, match="which is not there: install one, or use a webhook"):
        notices.attempts_of(job(NoticeTo(mail="ann")), "end", 1)
