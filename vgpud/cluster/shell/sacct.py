"""Slurm's accounting: the jobs of some time as sacct prints them."""

from __future__ import annotations

import datetime
import secrets
from collections.abc import Sequence

from vgpud.cluster.shell.slurm import SlurmError, run

#: seconds since 1970 instead of the local clock, which has one hour twice in autumn
_TIMES = {"SLURM_TIME_FORMAT": "%s"}
#: a month of a large site takes slurmdbd minutes
TIMEOUT_S = 900.0


def read(columns: Sequence[str], since_s: int, partition: str = "") -> str:
    """Text with a header and a separator that is in no text of a user, of all users as far as the caller may see them;
    jobs that were there since then. Raises SlurmError."""
    since = datetime.datetime.fromtimestamp(since_s, datetime.timezone.utc).astimezone()
    words = ["sacct", "--allusers", "--allocations", "--parsable2", "--noconvert", "--endtime=now"]
    words += [f"--delimiter=|{secrets.token_hex(16)}|"]
    words += [f"--starttime={since.strftime('%Y-%m-%dT%H:%M:%S')}"]
    words += [f"--partition={partition}"] if partition else []
    try:
        return run([*words, f"--format={','.join(columns)}"], _TIMES, TIMEOUT_S)
    except SlurmError as error:
        text = "without slurmdbd Slurm keeps no jobs: `vgpu cluster usage -o csv` has those of the queue, for --trace"
        raise SlurmError(f"{error} ({text})") from error
