"""The site's environments as the daemon has them: read from their file, and again when it changes.

Whatever is wrong with the file, the last valid list stays in force, also for a daemon that starts again, and it is said
why. Members are looked up again every minute, since users come and go.
"""

from __future__ import annotations

import asyncio
import grp
import logging
import os
import pwd
import time
from collections.abc import Callable
from pathlib import Path

from vgpud.core import events as ev
from vgpud.core.jobs.container_parts import Allowance
from vgpud.core.jobs.environments import Catalog, CatalogError, parse_catalog
from vgpud.core.model import UID_MAX
from vgpud.core.units import parse_whole
from vgpud.host import private_files
from vgpud.userfiles import toml
from vgpud.userfiles.bounded import FileError, read_text

log = logging.getLogger("vgpud")

#: how long what was looked up of members holds
MEMBERS_S = 60.0


class EnvironmentList:
    """`catalog`: in force; `problem`: why it is not what the file has now, "" when it is; `allowance`: what jobs may
    name of the node beside it. `copy`: where the last valid file is kept."""

    def __init__(self, path: Path, copy: Path, allowance: Allowance, note: Callable[[ev.Log], None]) -> None:
        self.allowance = allowance
        self.catalog = Catalog()
        self.problem = ""
        self._path = path
        self._copy = copy
        self._note = note
        self._seen: tuple[int, int, int] | None = None  # of the file: inode, time of change, size
        self._read_s = -MEMBERS_S
        self._unknown: tuple[str, ...] = ()
        self._has_read = False
        self._copied_text = ""

    async def refresh(self) -> None:
        """Reads the file again if it has changed, or its members may have."""
        seen = await asyncio.to_thread(self._look)
        now_s = time.monotonic()
        if seen == self._seen and now_s - self._read_s < MEMBERS_S:
            return
        self._seen, self._read_s = seen, now_s
        try:
            catalog = await asyncio.to_thread(self._read) if seen else Catalog()
        except (FileError, CatalogError) as error:
            if not self._has_read:
                self.catalog = await asyncio.to_thread(self._read_copy)
            self._has_read = True
            self._put_problem(str(error))
            return
        self._has_read = True
        self.catalog = catalog
        self._put_problem("")
        if catalog.unknown != self._unknown and catalog.unknown:
            text = f"{self._path} names members that do not exist: {', '.join(catalog.unknown)}"
            self._note(ev.Log("environments.unknown", text))
        self._unknown = catalog.unknown

    def _put_problem(self, problem: str) -> None:
        if problem == self.problem:
            return
        self.problem = problem
        if problem:
            text = f"the list of environments stays as it was ({len(self.catalog.environments)}): {problem}"
            self._note(ev.Log("environments.damaged", text))
        else:
            text = f"the list of environments was read: {len(self.catalog.environments)} of {self._path}"
            self._note(ev.Log("environments.read", text))

    def _look(self) -> tuple[int, int, int] | None:
        try:
            info = self._path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            return (0, 0, 0)  # _read() says what is wrong
        return info.st_ino, info.st_mtime_ns, info.st_size

    def _read(self) -> Catalog:
        """Raises FileError, CatalogError."""
        _check_owner(self._path)
        text = read_text(self._path, toml.FILE_BYTES_MAX, regular=True)
        try:
            found = parse_catalog(toml.parse(self._path, text), find_member)
        except CatalogError as error:
            raise CatalogError(f"{self._path}: {error}") from error
        if text != self._copied_text:
            self._keep(text)
        return found

    def _keep(self, text: str) -> None:
        try:
            private_files.replace(self._copy, text)
            self._copied_text = text
        except OSError as error:  # a full disk: the list is in force all the same
            log.warning("%s: %s", self._copy, error.strerror)

    def _read_copy(self) -> Catalog:
        """Of the daemon before, which had read a valid file; an empty one without it."""
        try:
            return parse_catalog(toml.read(self._copy), find_member)
        except (FileError, CatalogError):
            return Catalog()


def _check_owner(path: Path) -> None:
    """Who can write it decides what jobs are given of the node. Raises FileError."""
    try:
        info = path.stat()
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error
    if info.st_uid not in (0, os.geteuid()) or info.st_mode & 0o022:
        raise FileError(f"{path} can be written by users other than its administrator: run chown root and chmod 644")


def find_member(word: str) -> str:
    """uid:1000 or gid:1000 of a user's name, @GROUP, uid:N or gid:N; "" of one that does not exist."""
    kind, _, number = word.partition(":")
    if kind in ("uid", "gid") and parse_whole(number, UID_MAX) is not None:
        return word
    try:
        return f"gid:{grp.getgrnam(word[1:]).gr_gid}" if word.startswith("@") else f"uid:{pwd.getpwnam(word).pw_uid}"
    except (KeyError, ValueError):
        return ""
