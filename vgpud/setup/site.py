"""Where setup works: the host (or its root mounted somewhere, --root), as root or as a user in the home directory.

Every path has two faces: `path` is what the host calls it, and what is written into files; `site.at(path)` is where
this process finds it. Links are followed as the host would follow them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from vgpud.errors import DeniedError, VgpudError

_LINKS_MAX = 40


class SetupError(VgpudError):
    """Setup cannot do it: one line with the file or value and the mend; nothing was changed."""


def inside(root: Path, path: Path) -> Path:
    """Where an absolute path leads when `root` is /: links stay within. Raises SetupError for a ring of links."""
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
            raise SetupError(f"{path}: too many links, a ring? remove it or name another file")
        target = Path(os.readlink(step))
        done = root if target.is_absolute() else done
        todo += [name for name in reversed(target.parts) if name != "/"]
    return done


@dataclass(frozen=True, slots=True)
class Site:
    """One host. uid 0: engines of the system; others: those of the user (podman) in the home directory.

    prefix None: /usr/lib/vgpu, or ~/.local/lib/vgpu; where /usr is read-only another place is named (--prefix).
    """

    root: Path = Path("/")
    prefix: Path | None = None
    uid: int = field(default_factory=lambda: os.geteuid())  # asked when a site is made, not when this is imported
    home: Path = field(default_factory=Path.home)

    @property
    def mounted(self) -> bool:
        """Whether the host's root is not ours (--root)."""
        return self.root != Path("/")

    @property
    def for_user(self) -> bool:
        return self.uid != 0 and not self.mounted

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
        """Where this process finds what the host calls `path`, links followed."""
        return inside(self.root, path)

    def at_link(self, path: Path) -> Path:
        """The same for something that is itself a link and not to be followed."""
        return self.at(path.parent) / path.name

    def check_writable(self, path: Path, engine: str) -> None:
        """Raises DeniedError when we may not make or replace what the host calls `path`."""
        folder = self.at(path).parent
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        if os.access(folder, os.W_OK | os.X_OK):
            return
        where = f"cannot write {path}: {folder} is closed to uid {os.geteuid()}"
        remedy = (
            f"run `sudo vgpu setup {engine}`"
            if os.geteuid()
            else f"is {folder} read-only? --prefix DIR installs elsewhere"
        )
        raise DeniedError(f"{where}: {remedy}")


def read_text(path: Path) -> str | None:
    """A text file, None when it is not there. Raises SetupError, DeniedError."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise SetupError(f"{path} is no text (UTF-8): {error.reason} at byte {error.start}: mend it first") from error
    except PermissionError as error:
        raise DeniedError(f"cannot read {path}: {error.strerror}: run it with sudo") from error
    except OSError as error:
        raise SetupError(f"cannot read {path}: {error.strerror}: mend it first") from error


def processes(name: str) -> Iterator[int]:
    """The pids of programs with this name (at most 15 characters), as far as they can be seen."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "comm").read_text().rstrip("\n") == name:
                yield int(entry.name)
        except OSError:
            continue  # it ended meanwhile


def command_line(pid: int) -> list[str]:
    """argv of a process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="surrogateescape").split("\0")[:-1]
    except OSError:
        return []


def same_file(one: Path, other: Path) -> bool:
    """Whether two paths lead to one file; False when one of them leads nowhere, or may not be looked at."""
    try:
        return one.samefile(other)
    except OSError:
        return False
