"""Programs that are started so that they listen where a replica should. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core.jobs.session import SERVICE_PORT, SERVICE_TOKEN

#: vLLM takes its key from the environment, so that it is in no list of processes
_VLLM = (
    f'VLLM_API_KEY="${SERVICE_TOKEN}" && export VLLM_API_KEY &&'
    f' exec vllm "$@" --host 127.0.0.1 --port "${SERVICE_PORT}"'
)


def is_vllm(command: Sequence[str]) -> bool:
    return tuple(command[:2]) == ("vllm", "serve")


def complete_command(command: Sequence[str]) -> tuple[str, ...]:
    """The command with what makes `vllm serve` listen; any other one as it is."""
    return ("sh", "-c", _VLLM, *command) if is_vllm(command) else tuple(command)


def usual_health_path(command: Sequence[str]) -> str:
    """What is asked where the user names no check; "": whether the port is open."""
    return "/health" if is_vllm(command) else ""
