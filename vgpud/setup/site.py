"""The place of a setup: the host (or its mounted root, --root), as root or as a user in the home directory.

Every path has two forms: `path` is the host's name, which is written into files; `site.at(path)` is where this process
finds it. Links are followed as the host would follow them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vgpud.errors import DeniedError, VgpudError

_LINKS_MAX = 40


class SetupError(VgpudError):
    """Setup is not possible: one line with the file or value and the remedy; nothing was changed."""


def resolve_in_root(root: Path, path: Path) -> Path:
    """An absolute path resolved as if `root` were /: links stay within it. Raises SetupError for a cycle of links."""
    todo = [part for part in reversed(path.parts) if part != "/"]
    done, links = root, 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done if done == root else done.parent
            continue
        step = done / part
        if not step.is_symlink():
            done = step
            continue
        links += 1
        if links > _LINKS_MAX:
            raise SetupError(f"{path}: too many links, is it a cycle? remove it or name another file")
        target = Path(os.readlink(step))
        done = root if target.is_absolute() else done
        todo += [name for name in reversed(target.parts) if name != "/"]
    return done


@dataclass(frozen=True, slots=True)
class Site:
    """One host. uid 0: engines of the system; other uids: the user's (podman), in the home directory.

    prefix None: /usr/lib/vgpu, or ~/.local/lib/vgpu; if /usr is read-only, --prefix names another directory.
    """

    root: Path = Path("/")
    prefix: Path | None = None
    uid: int = field(default_factory=lambda: os.geteuid())  # evaluated when a site is created, not at import
    home: Path = field(default_factory=Path.home)

    @property
    def is_mounted(self) -> bool:
        """Whether the host's root is not this process's (--root)."""
        return self.root != Path("/")

    @property
    def for_user(self) -> bool:
        return self.uid != 0 and not self.is_mounted

    @property
    def lib(self) -> Path:
        """Holds a directory per version, and the link `current`."""
        if self.prefix:
            return self.prefix
        return self.home / ".local/lib/vgpu" if self.for_user else Path("/usr/lib/vgpu")

    @property
    def front(self) -> Path:
        """The OCI runtime as engines name it; the link leads to the version that was set up last."""
        return self.lib / "current" / "vgpu-runtime"

    def at(self, path: Path) -> Path:
        """The path at which this process finds the host's `path`, links followed."""
        return resolve_in_root(self.root, path)

    def at_link(self, path: Path) -> Path:
        """The same for a path that is itself a link and must not be followed."""
        return self.at(path.parent) / path.name

    def check_writable(self, path: Path, engine: str) -> None:
        """Raises DeniedError if this process may not create or replace the host's `path`."""
        folder = self.at(path).parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if os.access(folder, os.W_OK | os.X_OK):
            return
        where = f"cannot write {path}: uid {os.geteuid()} has no permission for {folder}"
        remedy = (
            f"run `sudo vgpu setup {engine}`"
            if os.geteuid()
            else f"is {folder} read-only? --prefix DIR installs elsewhere"
        )
        raise DeniedError(f"{where}: {remedy}")


def read_text(path: Path) -> str | None:
    """A text file, None if it does not exist. Raises SetupError, DeniedError."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise SetupError(f"{path} is not text (UTF-8): {error.reason} at byte {error.start}: fix it first") from error
    except PermissionError as error:
        raise DeniedError(f"cannot read {path}: {error.strerror}: run it with sudo") from error
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}: fix it first") from error


def processes(name: str) -> Iterator[int]:
    """The pids of programs with this name (at most 15 characters), as far as they are visible."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "comm").read_text().rstrip("\n") == name:
                yield int(entry.name)
        except OSError:
            continue  # it has ended in the meantime


def command_line(pid: int) -> list[str]:
    """argv of a process; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return []


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file; False if one of them does not exist or is not accessible."""
    try:
        return one.samefile(other)
    except OSError:
        return False
