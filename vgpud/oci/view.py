"""The files of a container as it will see them: its root with the mounts of its config.json over it.

A mount hides the image's files below it, so a driver's file may be the image's, a volume's, or hidden. Every lookup
returns a Spot.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType

from vgpud.oci.edit import Config, entries
from vgpud.oci.rootfs import ABSENT, Found, Root

#: filesystems that start empty and let the runtime create mount points
_EMPTY = ("tmpfs",)


@dataclass(frozen=True, slots=True)
class Spot:
    """A place in the container. `path` has no symlinks as far as it exists; `root` and `inner` say where to read it."""

    path: str
    root: Root | None
    inner: str
    file: Found | None
    creatable: bool = True  # if nothing is there: the runtime may create a mount point without changing a user's volume
    shared: bool = False  # a mount here would be visible outside of the container

    @property
    def is_file(self) -> bool:
        return self.file is not None and self.file.is_file

    @property
    def is_dir(self) -> bool:
        return self.file is not None and self.file.is_dir

    def names(self) -> list[str]:
        """The entries of a directory."""
        return self.root.names(self.inner) if self.root is not None and self.is_dir else []

    def read(self, limit_bytes: int) -> bytes | None:
        """The first bytes of a regular file, None for anything else."""
        return self.root.read(self.inner, limit_bytes) if self.root is not None and self.is_file else None


@dataclass(frozen=True, slots=True)
class _Cover:
    path: str
    prefix: str  # how the paths begin that it hides
    source: str  # "" = the mount shows no directory of the host
    empty: bool
    shared: bool


class View:
    """Use it in a `with`. `host`: the root for the sources of bind mounts."""

    def __init__(self, root: Root, host: Root, mounts: Sequence[Config]) -> None:
        self._root = root
        self._host = host
        self._creatable = not root.read_only
        covers = [self._cover(mount) for mount in mounts]
        self._covers = [cover for cover in reversed(covers) if cover.path != "/"]  # the last one is what is seen
        self._volumes: dict[str, Root | None] = {}
        self._open = ExitStack()

    def __enter__(self) -> View:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()

    def _cover(self, mount: Config) -> _Cover:
        options = entries(mount, "options")
        bound = mount.get("type") in ("bind", "rbind") or "bind" in options or "rbind" in options
        path, _ = self._root.locate(str(mount.get("destination") or "/"))
        shared = "shared" in options or "rshared" in options
        return _Cover(
            path, f"{path}/", str(mount.get("source") or "") if bound else "", mount.get("type") in _EMPTY, shared
        )

    def place_in_volume(self, path: str) -> str:
        """Where a path of the container is on the host, if it is below a volume; else ""."""
        here, _found = self._root.locate(path)
        cover = self._cover_of(here)
        if cover is None or not cover.source or here == cover.path:
            return ""
        return f"{cover.source.rstrip('/')}/{here[len(cover.prefix) :]}"

    def _cover_of(self, resolved_path: str) -> _Cover | None:
        return next((c for c in self._covers if resolved_path == c.path or resolved_path.startswith(c.prefix)), None)

    def look(self, path: str) -> Spot:
        """The file that the container will see at a path."""
        here, found = self._root.locate(path)
        cover = self._cover_of(here)
        if cover is None:
            return Spot(here, self._root, here, found, self._creatable)
        nothing = Spot(here, None, "", None, cover.empty, cover.shared)
        if not cover.source:
            return nothing
        if here == cover.path:
            source = self._host.find(cover.source)
            return Spot(here, self._host, source.path, source, False, cover.shared) if source else nothing
        volume = self._volume(cover.source)
        inner = volume.find(here[len(cover.path) :]) if volume else None
        if inner is None:
            return nothing
        return Spot(cover.path.rstrip("/") + inner.path, volume, inner.path, inner, False, cover.shared)

    def _volume(self, source: str) -> Root | None:
        if source not in self._volumes:
            try:
                self._volumes[source] = self._open.enter_context(self._host.open_subtree(source, beneath=True))
            except OSError as error:
                if error.errno not in ABSENT:
                    raise
                self._volumes[source] = None
        return self._volumes[source]
