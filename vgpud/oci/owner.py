"""Whom a container names as its user, for root's engines, which say nothing of who asked for it.

How much is believed is the site's choice: an annotation is set by a client of the engine, who has root's rights anyway;
a label may also come with the image, so that an image's author may put a container on another user's account.
"""

from __future__ import annotations

from pathlib import Path

from vgpud.oci import edit
from vgpud.oci.engine_name import DOCKER_STATE, STATE_BYTES_MAX, find_docker_folder, read_json
from vgpud.oci.request import OWNER, RequestError
from vgpud.oci.rootfs import Root

LABEL = "dev.vgpu.user"
#: whom the site believes; each also what stands before it: the engine's user alone, the login session that called
#: podman, an annotation, a label of docker's
BY_ENGINE, BY_SESSION, BY_ANNOTATION, BY_LABEL = "engine", "session", "annotation", "label"
NAME_CHARACTERS_MAX = 64


def find_owner_name(raw_config: bytes, container_id: str, root: Path, way: str, *, from_image: bool) -> tuple[str, str]:
    """(the user's name or uid, where it is written), ("", "") for none. `root`: of the engine's paths; `from_image`:
    annotations may be the image's. Raises RequestError for an annotation that the site does not believe."""
    config = read_json(raw_config)
    named = str(edit.parts(config, "annotations").get(OWNER) or "").strip() if isinstance(config, dict) else ""
    source = OWNER
    if named and from_image:
        text = "under podman an image may bring annotations, so this one is not believed"
        raise RequestError(f"{OWNER}={named[:NAME_CHARACTERS_MAX]}: {text}: leave it out, the login session counts")
    if named and way not in (BY_ANNOTATION, BY_LABEL):
        remedy = 'leave it out, or have container_owner = "annotation" set'
        raise RequestError(f"{OWNER}={named[:NAME_CHARACTERS_MAX]}: this site does not believe annotations: {remedy}")
    if not named and way == BY_LABEL:
        named, source = _find_label(raw_config, container_id, root), LABEL
    if len(named) > NAME_CHARACTERS_MAX or not named.isprintable():
        raise RequestError(f"{source}={named[:NAME_CHARACTERS_MAX]!a} is not a user: write a name or a uid")
    return (named, source) if named else ("", "")


def _find_label(raw_config: bytes, container_id: str, root: Path) -> str:
    """Of docker, which keeps labels beside the bundle; "" of other engines and where it cannot be read."""
    folder = find_docker_folder(raw_config, container_id)
    if not folder:
        return ""
    try:
        with Root.at(root) as opened:
            known = read_json(opened.read(f"{folder}/{DOCKER_STATE}", STATE_BYTES_MAX))
    except OSError:
        return ""
    labels = edit.parts(known, "Config", "Labels") if isinstance(known, dict) else {}
    return str(labels.get(LABEL) or "").strip()
