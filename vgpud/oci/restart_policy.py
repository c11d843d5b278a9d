"""Whether docker starts a container again that has ended, by what docker itself keeps of it: its restart policy,
whether its user has stopped or removed it, and how it ended.

docker writes that a user stops a container before it does so, and how a container ended a moment after that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vgpud.oci.engine_name import DOCKER_STATE, STATE_BYTES_MAX, read_json
from vgpud.oci.rootfs import Root

_ALWAYS = ("always", "unless-stopped")


def will_restart(folder: str) -> bool:
    """Whether docker starts the container with this directory again, as far as is known now. What cannot be read, such
    as the directory of a removed container, says no. Raises nothing."""
    try:
        with Root.at(Path("/")) as root:
            host = read_json(root.read(f"{folder}/hostconfig.json", STATE_BYTES_MAX))
            kept = read_json(root.read(f"{folder}/{DOCKER_STATE}", STATE_BYTES_MAX))
    except OSError:
        return False
    policy, state = _part(host, "RestartPolicy"), _part(kept, "State")
    if not state or kept.get("HasBeenManuallyStopped") or state.get("RemovalInProgress") or state.get("Dead"):
        return False
    if policy.get("Name") in _ALWAYS:
        return True
    return policy.get("Name") == "on-failure" and _has_failed(policy, kept, state)


def _has_failed(policy: dict[str, Any], container_record: dict[str, Any], state: dict[str, Any]) -> bool:
    """Whether it counts as failed, and may be started once more; true until docker has noticed its end."""
    if state.get("Running") or state.get("Restarting"):
        return True
    most, count = policy.get("MaximumRetryCount"), container_record.get("RestartCount")
    is_left = not most or not isinstance(most, int) or not isinstance(count, int) or count < most
    return bool(state.get("ExitCode")) and is_left


def _part(value: Any, name: str) -> dict[str, Any]:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}
