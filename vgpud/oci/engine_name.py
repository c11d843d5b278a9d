"""The name that a container has for people, which an engine does not pass to its runtime: docker and podman keep it
beside the bundle, containerd's and CRI-O's Kubernetes side and nerdctl put it into the annotations.

Shown, never relied on: an image may bring annotations, and engines rename containers. restart_policy.py reads more of
what docker keeps.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from vgpud.oci import edit
from vgpud.oci.rootfs import Root

#: of docker's config.v2.json, and of podman's list of all its containers
STATE_BYTES_MAX = 8 << 20
DOCKER_STATE = "config.v2.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
#: files that docker makes for a container, in the directory that also has its state
_DOCKER_MOUNTS = ("/etc/hostname", "/etc/resolv.conf", "/etc/hosts")
#: (pod, container) by annotations of containerd and of CRI-O
_POD_ANNOTATIONS = (
    ("io.kubernetes.cri.sandbox-name", "io.kubernetes.cri.container-name"),
    ("io.kubernetes.pod.name", "io.kubernetes.container.name"),
)


def engine_name(raw_config: bytes, container_id: str, bundle: str, root: Path) -> str:
    """The name, of a pod's container POD/NAME; "" where none is found. `bundle` and the paths of the configuration are
    as the engine names them, below `root`. A name is not worth a container: what cannot be read has none."""
    config = read_json(raw_config)
    if not isinstance(config, dict):
        return ""
    try:
        with Root.at(root) as opened:
            folder = find_docker_folder(raw_config, container_id)
            beside = _of_docker(folder, opened) or _of_podman(container_id, bundle, opened)
    except OSError:
        beside = ""
    return beside or _of_annotations(config)


def find_docker_folder(raw_config: bytes, container_id: str) -> str:
    """The directory that docker has for a container, by the files that it mounts from there; "" under other engines."""
    config = read_json(raw_config)
    for mount in edit.entries(config, "mounts") if isinstance(config, dict) else []:
        if not isinstance(mount, dict) or mount.get("destination") not in _DOCKER_MOUNTS:
            continue
        folder = posixpath.dirname(str(mount.get("source") or ""))
        if folder.startswith("/") and posixpath.basename(folder) == container_id:
            return folder
    return ""


def _of_docker(folder: str, root: Root) -> str:
    state = read_json(root.read(f"{folder}/{DOCKER_STATE}", STATE_BYTES_MAX)) if folder else None
    return _validate_name(str(state.get("Name") or "").removeprefix("/")) if isinstance(state, dict) else ""


def _of_podman(container_id: str, bundle: str, root: Root) -> str:
    folder = posixpath.dirname(bundle.rstrip("/"))  # of the container, beside its userdata
    if posixpath.basename(folder) != container_id:
        return ""
    known = read_json(root.read(f"{posixpath.dirname(folder)}/containers.json", STATE_BYTES_MAX))
    for one in known if isinstance(known, list) else []:
        if isinstance(one, dict) and one.get("id") == container_id and isinstance(one.get("names"), list):
            return next((name for item in one["names"] if (name := _validate_name(str(item)))), "")
    return ""


def _of_annotations(config: dict[str, Any]) -> str:
    found = {str(name): str(value or "") for name, value in edit.parts(config, "annotations").items()}
    for pod, container in _POD_ANNOTATIONS:
        if _validate_name(found.get(pod, "")) and _validate_name(found.get(container, "")):
            return f"{found[pod]}/{found[container]}"
    return _validate_name(found.get("nerdctl/name", ""))


def _validate_name(name: str) -> str:
    return name if _NAME.fullmatch(name) else ""


def read_json(text: bytes | None) -> Any:
    """What the text says; None: it is no JSON, or there is none."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
