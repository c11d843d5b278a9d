"""Folders that the runtime makes in a user's volume, to mount the slice on, and that must not outlive the container.

A container that mounts the host's /run gets `/run/vgpu` made in it, on the host. Which ones it needs is written down
among the container's own files before the runtime makes them. They are removed with the container, when they are empty
and no other container has them written down: where one is mounted on, removing it would take that mount away.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import shutil
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vgpud.libraries import tree as library_tree
from vgpud.oci import edit
from vgpud.oci.rootfs import ABSENT, Root
from vgpud.oci.view import View

#: the note's name in the folder of a container's own files
NOTE = "mount-points.json"
OURS = (edit.ATTACH_AT, edit.SIM_AT, library_tree.MOUNTED_AT)
#: the host's files as seen by a daemon in a container, and by one without the right to look there
HOST_ROOTS = (Path("/proc/1/root"), Path("/"))

#: (folder of the host, its device and inode, name in it)
Point = tuple[str, int, int, str]
_lock = threading.Lock()  # no removal between another container's look and its note


def note(config: dict[str, Any], root_path: str, peer_root: Path, scratch: Path) -> None:
    """Writes down which of our mounts of a configuration are in volumes, on folders that are missing or empty.

    root_path: of the container; both it and the sources of mounts are paths in peer_root. Raises OSError.
    """
    mounts = [m for m in edit.objects(config, "mounts") if posixpath.normpath(str(m.get("destination"))) not in OURS]
    wanted = {posixpath.normpath(str(m.get("destination"))) for m in edit.objects(config, "mounts")} & set(OURS)
    with _lock, Root.at(peer_root) as host, host.open_subtree(root_path) as root, View(root, host, mounts) as view:
        points = [point for place in sorted(wanted) if (point := _point(view, host, place))]
        if points:
            scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
            (scratch / NOTE).write_text(json.dumps(points))


def note_for(raw_config: bytes, bundle: str, peer_root: Path, scratch: Path) -> None:
    """The same for a config.json as it is in its bundle. Raises OSError."""
    config = json.loads(raw_config)
    note(config, posixpath.join(bundle, str(edit.parts(config, "root").get("path"))), peer_root, scratch)


def _point(view: View, host: Root, place: str) -> Point | None:
    path = view.place_in_volume(place)
    spot = view.look(place)
    if not path or spot.is_file or spot.names():
        return None
    parent = host.find(posixpath.dirname(path))
    if parent is None or not parent.is_dir:
        return None
    return parent.path, parent.status.st_dev, parent.status.st_ino, posixpath.basename(path)


def remove(folders: Iterable[Path], roots: Sequence[Path] = HOST_ROOTS) -> None:
    """Removes folders of containers that have ended, and the mount points that no other container beside them has."""
    for folder in folders:
        with _lock:
            points = _read_points(folder)
            shutil.rmtree(folder, ignore_errors=True)
            if points:
                others = {tuple(point[1:]) for entry in _entries(folder.parent) for point in _read_points(entry)}
                for point in points:
                    if tuple(point[1:]) not in others:
                        _take_away(point, roots)


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _read_points(folder: Path) -> list[Point]:
    try:
        return [(str(path), int(dev), int(ino), str(name)) for path, dev, ino, name in _read(folder)]
    except (OSError, ValueError, TypeError):
        return []


def _read(folder: Path) -> list[Any]:
    found = json.loads((folder / NOTE).read_text())
    return found if isinstance(found, list) else []


def _take_away(point: Point, roots: Sequence[Path]) -> None:
    path, dev, ino, name = point
    for at in roots:
        try:
            with Root.at(at) as root:
                parent = root.open_folder(path)
        except OSError as error:
            if error.errno not in ABSENT:
                raise
            continue
        try:
            status = os.fstat(parent)
            if (status.st_dev, status.st_ino) == (dev, ino):
                with contextlib.suppress(OSError):  # not empty, gone already, or a read-only volume
                    os.rmdir(name, dir_fd=parent)
                return
        finally:
            os.close(parent)
