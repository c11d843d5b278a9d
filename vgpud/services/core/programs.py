"""Programs that are started so that they listen where a replica should. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from vgpud.core.jobs.program_name import program_name
from vgpud.core.jobs.session import LOOPBACK, SERVICE_HOST, SERVICE_PORT, SERVICE_TOKEN

#: vLLM takes its key from the environment, so that it is in no list of processes
_VLLM = (
    f'VLLM_API_KEY="${SERVICE_TOKEN}" && export VLLM_API_KEY &&'
    f' exec vllm "$@" --host "${{{SERVICE_HOST}:-{LOOPBACK}}}" --port "${SERVICE_PORT}"'
)


def is_vllm(command: Sequence[str]) -> bool:
    return tuple(command[:2]) == ("vllm", "serve")


def complete_command(command: Sequence[str]) -> tuple[str, ...]:
    """The command with what makes `vllm serve` listen; any other one as it is."""
    return ("sh", "-c", _VLLM, *command) if is_vllm(command) else tuple(command)


def plain_command(command: Sequence[str]) -> tuple[str, ...]:
    """The command that complete_command() has completed."""
    return tuple(command[3:]) if tuple(command[:3]) == ("sh", "-c", _VLLM) else tuple(command)


def name_of(command: Sequence[str]) -> str:
    """A service's name from its program's, where the user gives none."""
    word = command[2] if is_vllm(command) and len(command) > 2 else program_name(command)
    return re.sub(r"[^a-z0-9]+", "-", word.rpartition("/")[2].lower()).strip("-")[:40].strip("-") or "service"


def usual_health_path(command: Sequence[str]) -> str:
    """What is asked where the user names no check; "": whether the port is open."""
    return "/health" if is_vllm(command) else ""
