"""Notifications as they are carried out: as the job's user, with a deadline, by command, webhook and mail."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.runtime.supervisors import USER, end_all
from vgpud.core.jobs.facts import Launch, NoticeTo
from vgpud.core.jobs.model import Ask, Job, JobSpec, JobState
from vgpud.core.model import Spec
from vgpud.daemon.jobs import notices as shell
from vgpud.jobs import notices

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root can run others' programs")]


class Notes:
    """Port: what was noted."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []

    def note(self, kind: str, job: Job, text: str) -> None:
        self.entries.append((kind, text))


@pytest.fixture
def folder() -> Iterator[Path]:
    """A state directory of root's, and in it a home of the user's."""
    made = Path(tempfile.mkdtemp(prefix="vgn-"))
    made.chmod(0o711)
    (made / "home").mkdir()
    os.chown(made / "home", USER, USER)
    yield made
    end_all(made / "notices")
    shutil.rmtree(made, ignore_errors=True)


def run_notices(folder: Path, notice: NoticeTo) -> list[tuple[str, str]]:
    """What was noted until its programs have ended, and all of them forgotten."""
    launch = Launch(USER, USER, (), ("true",), "", "/", (), 0o22, (), "/l", notice=notice)
    job = Job(os.getpid() * 1000, JobSpec(Ask(Spec(500)), name="a; id", run=launch), 0, state=JobState.COMPLETED)
    job.exit_code = 0
    notes = Notes()

    async def run() -> None:
        notifier = shell.Notifier(notes, folder / "notices", folder / "none.sock")
        await notifier.begin()
        await notifier.notify(job, "end")
        notifier.close()

    asyncio.run(asyncio.wait_for(run(), 120))
    assert [path.name for path in (folder / "notices").iterdir() if path.name != ".boot"] == []
    return notes.entries


def test_a_command_runs_as_the_user_with_the_jobs_fields(folder: Path) -> None:
    out = folder / "home/out"
    script = f'echo "$(id -u) $VGPU_EVENT $VGPU_JOB_STATE $VGPU_JOB_NAME" > {out}'
    assert run_notices(folder, NoticeTo(command=("/bin/sh", "-c", script))) == []
    assert out.read_text() == f"{USER} end completed a; id\n"
    assert out.stat().st_uid == USER


def test_a_command_that_fails_is_noted(folder: Path) -> None:
    assert run_notices(folder, NoticeTo(command=("/bin/sh", "-c", "exit 7"))) == [
        ("job.notify_failed", "/bin/sh ended with exit code 7")
    ]


def test_a_command_that_does_not_end_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "DEADLINE_S", 0.2)
    (notification,) = run_notices(folder, NoticeTo(command=("/bin/sh", "-c", "trap '' TERM; sleep 600 & sleep 600")))
    assert notification == ("job.notify_failed", "/bin/sh was ended after 0 s")


def test_a_webhook_gets_the_fields_as_json(folder: Path) -> None:
    got: list[dict[str, str]] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Hook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        assert run_notices(folder, NoticeTo(webhook=f"http://127.0.0.1:{server.server_port}/hook")) == []
    finally:
        server.shutdown()
        server.server_close()
    gone = ("job.notify_failed", "the webhook could not be reached, or refused it")
    assert run_notices(folder, NoticeTo(webhook=f"http://127.0.0.1:{server.server_port}/hook")) == [gone]
    assert [(one["event"], one["job_state"], one["job_name"]) for one in got] == [("end", "completed", "a; id")]


def test_mail_goes_through_sendmail(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, out = folder / "sendmail", folder / "home/mail"
    program.write_text(f'#!/bin/sh\n{{ echo "$@"; cat; }} > {out}\n')
    program.chmod(0o755)
    monkeypatch.setattr(notices, "SENDMAIL", (os.fspath(program),))
    assert run_notices(folder, NoticeTo(mail="ann@example.org")) == []
    lines = out.read_text().splitlines()
    assert lines[:2] == ["-i -- ann@example.org", f"Subject: vgpu job {os.getpid() * 1000} is completed"]
    assert out.stat().st_uid == USER
