"""Which names of container images a job may have."""

from __future__ import annotations

import re

#: [HOST[:PORT]/]PATH[:TAG][@DIGEST], as registries have it; nothing that an engine could take for an option
_IMAGE = re.compile(
    r"(?:[a-zA-Z0-9][a-zA-Z0-9.-]*(?::\d+)?/)?[a-z0-9]+(?:[._/-]+[a-z0-9]+)*"
    r"(?::[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
#: where podman reads an image from files of the host: `oci:NAME` is none of a registry (containers-transports(5))
_TRANSPORTS = ("containers-storage", "dir", "docker", "docker-archive", "docker-daemon", "oci", "oci-archive", "sif")
_IMAGE_CHARACTERS_MAX = 300


def image_error(image: str) -> str:
    """Why a job cannot have this image, "" when it can."""
    if len(image) > _IMAGE_CHARACTERS_MAX or not _IMAGE.fullmatch(image):
        return f"{image[:80]!r} is not the name of an image: write [HOST[:PORT]/]NAME[:TAG][@sha256:DIGEST]"
    if image.split(":", 1)[0] in _TRANSPORTS and ":" in image:
        return f"{image[:80]!r} names files of this node, not an image of a registry: import it under a name first"
    return ""
