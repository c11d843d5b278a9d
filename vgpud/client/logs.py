"""The output of a job, from its file on this machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

from vgpud.client.failures import make_error
from vgpud.client.model import Job
from vgpud.errors import ExitCode


def _open_without_waiting(path: str, flags: int) -> int:
    """An opener that neither waits for a pipe's writer nor takes a terminal. Raises ClientError for what is no file."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise make_error(f"{path} is not a regular file: the output is not kept", ExitCode.OTHER)


def open_log(path: Path) -> BinaryIO:
    """The file, to be read. Raises OSError, and ClientError for what is no regular file and keeps no output."""
    return open(path, "rb", opener=_open_without_waiting)


def read_log(job: Job, member: int, is_remote: bool) -> str:
    """All that this member of a job has printed; "" of one that has printed nothing yet. Raises ClientError, also for
    output that goes to a device or a pipe and is not kept."""
    members = max(1, job.spec.members if job.spec else 1)
    if is_remote:
        text = f"the output of job {job.job_id} is a file on the daemon's machine ({job.log}): read it there"
        raise make_error(text, ExitCode.USAGE)
    if not 0 <= member < members:
        text = f"job {job.job_id} has no member {member}: members are 0 to {members - 1}"
        raise make_error(text, ExitCode.NOT_FOUND)
    path = Path(f"{job.log}.{member}" if member else job.log)
    try:
        with open_log(path) as file:
            return file.read().decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except OSError as error:
        text = f"cannot read the output of job {job.job_id}, {path}: {error.strerror}"
        raise make_error(text, ExitCode.DENIED if isinstance(error, PermissionError) else ExitCode.OTHER) from error
