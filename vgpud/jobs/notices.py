"""What carries a notification out: a program that runs as the job's user, as an attempt of a job does.

The fields of the job reach it by its environment only, so that no shell and no option parser sees them.
"""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Mapping
from pathlib import Path

from vgpud.core.jobs.facts import Launch, NoticeTo
from vgpud.core.jobs.model import Job
from vgpud.jobs.messages import Attempt, Member

#: of one notification
RAM_BYTES, PIDS_MAX, CPU_MILLI, GRACE_MS = 256 << 20, 64, 1000, 1000
#: where a mail system puts it; the first that is there
SENDMAIL = ("/usr/sbin/sendmail", "/usr/lib/sendmail")
_POST = Path(__file__).with_name("post.py")
#: the address is an argument behind --, the text a variable: neither is looked into by the shell
_MAIL_SCRIPT = 'printf %s "$VGPU_NOTICE_MAIL" | exec "$0" -i -- "$1"'


class NoticeError(Exception):
    """It cannot be carried out here; one line for people."""


def attempts_of(job: Job, event: str, number: int) -> list[Attempt]:
    """A program for the user's command and one for mail, with numbers from `number` on. Raises NoticeError."""
    launch = job.spec.run
    if not isinstance(launch, Launch) or launch.notice is None:
        return []
    fields = fields_of(job, event)
    commands = _commands(launch.notice, fields)
    environment = _environment(launch) | fields
    return [
        Attempt(
            job_id=job.job_id,
            number=number + at,
            uid=launch.uid,
            gid=launch.gid,
            groups=launch.gids,
            directory="/",
            umask=0o077,
            members=(Member(argv, environment | more),),
            limits=launch.limits,
            cpu_milli=CPU_MILLI,
            ram_bytes=RAM_BYTES,
            pids_max=PIDS_MAX,
            grace_ms=GRACE_MS,
        )
        for at, (argv, more) in enumerate(commands)
    ]


def post_of(job: Job, event: str) -> tuple[list[str], dict[str, str]] | None:
    """(words, environment) of the program that posts to the user's webhook, as root: it becomes the user itself."""
    launch = job.spec.run
    if not isinstance(launch, Launch) or launch.notice is None or not launch.notice.webhook:
        return None
    fields = {name.removeprefix("VGPU_").lower(): value for name, value in fields_of(job, event).items()}
    user = (str(launch.uid), str(launch.gid), ",".join(map(str, launch.gids)))
    words = [sys.executable, "-I", "-S", str(_POST), *user]
    secret = {"VGPU_NOTICE_URL": launch.notice.webhook}  # no argument: every user can read these
    return words, {"LANG": "C.UTF-8", "VGPU_NOTICE_BODY": json.dumps(fields), **secret}


def fields_of(job: Job, event: str) -> dict[str, str]:
    """The job's fields as variables."""
    return {
        "VGPU_EVENT": event,
        "VGPU_JOB_ID": str(job.job_id),
        "VGPU_JOB_NAME": job.spec.name,
        "VGPU_JOB_STATE": job.state.value,
        "VGPU_JOB_REASON": job.reason,
        "VGPU_JOB_EXIT_CODE": str(job.exit_code) if job.exit_code >= 0 else "",
        "VGPU_JOB_ATTEMPT": str(job.attempt),
        "VGPU_JOB_QUEUE": job.spec.queue,
        "VGPU_ARRAY_ID": str(job.spec.array) if job.spec.array else "",
        "VGPU_ARRAY_INDEX": str(job.spec.index) if job.spec.array else "",
    }


def _environment(launch: Launch) -> dict[str, str]:
    """Nothing of the submitter's: it may hold passwords, and is deleted when the job ends."""
    try:
        known = pwd.getpwuid(launch.uid)
        own = {"HOME": known.pw_dir, "USER": known.pw_name, "LOGNAME": known.pw_name}
    except KeyError:
        own = {"HOME": "/"}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LANG": "C.UTF-8", **own}


def _commands(notice: NoticeTo, fields: Mapping[str, str]) -> list[tuple[tuple[str, ...], dict[str, str]]]:
    """Each with its further variables."""
    found: list[tuple[tuple[str, ...], dict[str, str]]] = []
    if notice.command:
        found.append((notice.command, {}))
    if notice.mail:
        program = next((path for path in SENDMAIL if os.access(path, os.X_OK)), None)
        if program is None:
            raise NoticeError(f"mail needs {SENDMAIL[0]}, which is not there: install one, or use a webhook")
        found.append((("/bin/sh", "-c", _MAIL_SCRIPT, program, notice.mail), {"VGPU_NOTICE_MAIL": mail_of(fields)}))
    return found


def mail_of(fields: Mapping[str, str]) -> str:
    """A message with its head: fields in it are one line each, so that none begins a header."""
    line = {name: " ".join(value.split()) for name, value in fields.items()}
    what = {"start": "has started", "end": f"is {line['VGPU_JOB_STATE']}", "failure": "has failed"}
    subject = f"vgpu job {line['VGPU_JOB_ID']} {what[line['VGPU_EVENT']]}"
    body = "\n".join(f"{name.removeprefix('VGPU_').lower()}: {value}" for name, value in line.items() if value)
    head = ("MIME-Version: 1.0", "Content-Type: text/plain; charset=utf-8", "Auto-Submitted: auto-generated")
    return "\n".join((f"Subject: {subject}", *head, "", body, ""))
