"""NVIDIA's CDI specification of this host: device nodes, driver files, hooks and variables for a slice's devices.

Written by `nvidia-ctk cdi generate` as YAML or JSON (CDI specification 0.3 to 1.x). Files are read through the runtime's
own view of the host, and parsed again only when they have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vgpud.oci import edit
from vgpud.oci.edit import Config
from vgpud.oci.rootfs import Root


@dataclass(slots=True)
class Edits:
    """What the specification adds to a container, in its order."""

    env: list[str] = field(default_factory=list)
    nodes: list[tuple[Config, str]] = field(default_factory=list)  # (node of config.json, access of the cgroup rule)
    mounts: list[Config] = field(default_factory=list)
    hooks: list[tuple[str, Config]] = field(default_factory=list)  # (stage, hook)
    gids: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def edits_for(uuids: Sequence[str], indices: Sequence[int], directories: Sequence[str], host: Root) -> Edits:
    raise AssertionError


def apply(edits: Edits, config: Config) -> None:
    """Puts the edits into a configuration; what is there already is replaced, not doubled."""
    for node, access in edits.nodes:
        edit.add_node(config, node, access)
