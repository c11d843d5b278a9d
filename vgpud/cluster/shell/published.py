"""What the controller leaves for others to read: its heartbeat, for vgpu_cluster.lua, and the queue as it is."""

from __future__ import annotations

import contextlib
import datetime
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgpud.errors import ExitCode, VgpudError
from vgpud.userfiles.bounded import FileError, read_text

HEARTBEAT, STATUS = "heartbeat", "status.json"
#: a controller whose last look is older does not decide any more, and Slurm's own order holds; vgpu_cluster.lua has the
#: same number
FRESH_S = 60
FILE_BYTES_MAX = 64 << 20


#: of the status, what its readers need
_KEYS = {"partition", "jobs", "jobs_left_out", "queues", "refused", "unusable_nodes", "foreign_jobs"}


class NoControllerError(VgpudError):
    """No controller has left anything here, or not for long."""

    exit_code = ExitCode.UNREACHABLE


def now_s() -> int:
    """Seconds of UTC: what slurmctld's script, another process, can compare with."""
    return int(datetime.datetime.now(datetime.timezone.utc).timestamp())


def beat(directory: Path, at_s: int) -> None:
    """The controller has seen Slurm at this time (UTC, seconds), and decides."""
    _replace(directory / HEARTBEAT, f"{at_s}\n")


def fresh(directory: Path, at_s: int) -> bool:
    """Whether a controller decides at this time."""
    try:
        beaten_s = int(read_text(directory / HEARTBEAT, FILE_BYTES_MAX))
    except (FileError, ValueError):
        return False
    return at_s - beaten_s <= FRESH_S


def stop(directory: Path) -> None:
    """From now on jobs are not held for it."""
    with contextlib.suppress(OSError):
        (directory / HEARTBEAT).unlink()


def publish(directory: Path, status: Mapping[str, Any]) -> None:
    """Every user may read it, as every user may call squeue."""
    _replace(directory / STATUS, json.dumps(status))


def read(directory: Path) -> dict[str, Any]:
    """What a controller published last. Raises NoControllerError."""
    try:
        found = json.loads(read_text(directory / STATUS, FILE_BYTES_MAX))
    except (FileError, ValueError) as error:
        text = f"no controller has written to {directory}: start `vgpu cluster run`, or name its --run-dir"
        raise NoControllerError(f"{text} ({error})") from error
    if not isinstance(found, dict) or not found.keys() >= _KEYS:
        text = f"{directory / STATUS} is not what `vgpu cluster run` of this version writes"
        raise NoControllerError(f"{text}: restart that one, or name its --run-dir")
    return found


def _replace(path: Path, text: str) -> None:
    """Readers see the old text or the new one. Raises OSError."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        made.write_text(text, encoding="utf-8")
        made.chmod(0o644)
        made.replace(path)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
