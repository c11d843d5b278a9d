"""Finds containers that a runtime under a directory created: their engines call it again to stop and remove them.

It looks at the monitor processes of containers, for any engine and directory: containerd's shims run in the
bundle, whose options.json names the runtime and whose config.json names its hooks; conmon's command line names both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from vgpud.setup.site import Site, command_line, processes, same_file

_SHIM = "containerd-shim"  # a process's name has 15 characters: containerd-shim, containerd-shim-runc-v2
_ID_CHARS = 12


def _bundles() -> Iterator[tuple[str, str]]:
    """(id, text that names its runtime) of every monitored container."""
    for pid in processes(_SHIM):
        # through its own root: the engine may run in a container, too
        folder = Path(f"/proc/{pid}/cwd")
        try:
            siblings = sorted((folder / "..").iterdir())
        except OSError:
            continue
        for bundle in siblings:
            yield bundle.name, _text(bundle / "options.json") + _text(bundle / "config.json")
    for pid in processes("conmon"):
        words = command_line(pid)
        values = {word: value for word, value in pairwise(words) if word.startswith("-")}
        bundle = Path(f"/proc/{pid}/root") / values.get("-b", "/").lstrip("/")
        yield values.get("-c", str(pid)), " ".join(words) + " " + _text(bundle / "config.json")


def _sees_host(site: Site) -> bool:
    """Whether any process has the mounted root as its own: in a separate pid namespace none has."""
    roots = (entry / "root" for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return any(same_file(root, site.root) for root in roots)


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode(errors="replace")
    except OSError:
        return ""


def containers_of(site: Site) -> dict[str, list[str]] | None:
    """Version (or "current") -> short ids of containers whose engine or hooks name a runtime below site.lib.

    None if the host's processes are not visible.
    """
    if site.is_mounted and not _sees_host(site):
        return None
    found: dict[str, list[str]] = {}
    pattern = re.compile(rf"{re.escape(str(site.lib))}/([\w.+-]+)/vgpu-runtime\b")
    for name, text in _bundles():
        for version in set(pattern.findall(text)):
            users = found.setdefault(version, [])
            if name[:_ID_CHARS] not in users:
                users.append(name[:_ID_CHARS])
    return found
