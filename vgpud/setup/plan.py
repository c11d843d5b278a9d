"""A plan: changes in the order in which they are made. It can be shown as a unified diff, or carried out.

Every change in a plan has an effect: planning again after it was carried out gives an empty plan. Every file is
replaced by rename, so that concurrent readers see the old or the new one, and a running program keeps its own.
"""

from __future__ import annotations

import difflib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from vgpud.errors import DeniedError
from vgpud.setup.site import SetupError


@contextmanager
def _report_os_errors(path: Path) -> Iterator[None]:
    """An error of the system, as one line."""
    try:
        yield
    except PermissionError as error:
        raise DeniedError(f"cannot change {path}: {error.strerror}: run it with sudo") from error
    except OSError as error:
        raise SetupError(f"cannot change {path}: {error.strerror}: fix it and run the same command again") from error


def replace_file(target: Path, data: bytes, mode: int | None = None) -> None:
    """Writes a file by rename. Mode and owner of an existing one stay; a new one gets `mode` (default 0644)."""
    target.parent.mkdir(parents=True, exist_ok=True)
    fd, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if target.exists():
                info = target.stat()
                os.fchown(fd, info.st_uid, info.st_gid)
                os.fchmod(fd, info.st_mode & 0o7777 if mode is None else mode)
            else:
                os.fchmod(fd, 0o644 if mode is None else mode)
            os.fsync(fd)
        os.replace(name, target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


class Change:
    """One change. `line` describes it to the user, `diff` shows it if it is text."""

    kind = ""
    path: Path

    @property
    def line(self) -> str:
        raise AssertionError(self.kind)

    @property
    def diff(self) -> str:
        return ""

    def apply(self) -> None:
        raise AssertionError(self.kind)


@dataclass
class WriteText(Change):
    """A text file gets new contents; `new` None removes it. A backup copy has no diff worth showing."""

    path: Path
    at: Path
    old: str | None
    new: str | None
    is_copy: bool = False
    kind = "file"

    @property
    def line(self) -> str:
        return f"{'remove' if self.new is None else 'write'} {self.path}"

    @property
    def diff(self) -> str:
        if self.is_copy:
            return ""

        def lines(text: str | None) -> list[str]:
            return [line if line.endswith("\n") else f"{line}\n" for line in (text or "").splitlines(True)]

        old = "/dev/null" if self.old is None else str(self.path)
        new = "/dev/null" if self.new is None else str(self.path)
        return "".join(difflib.unified_diff(lines(self.old), lines(self.new), old, new))

    def apply(self) -> None:
        with _report_os_errors(self.path):
            if self.new is None:
                self.at.unlink(missing_ok=True)
            else:
                replace_file(self.at, self.new.encode())


@dataclass
class InstallTree(Change):
    """A directory with these files (name -> contents, mode): created beside and renamed, or repaired file by file."""

    path: Path
    at: Path
    files: dict[str, tuple[bytes, int]]
    kind = "tree"

    @property
    def line(self) -> str:
        names = ", ".join(self.differing())
        return f"{'repair' if self.at.is_dir() else 'install'} {self.path}: {names}"

    def differing(self) -> list[str]:
        """Names of the files that are missing or different."""
        return [name for name, (data, mode) in self.files.items() if not _is(self.at / name, data, mode)]

    def apply(self) -> None:
        with _report_os_errors(self.path):
            if self.at.is_dir():
                for name in self.differing():
                    replace_file(self.at / name, *self.files[name])
                return
            self.at.parent.mkdir(parents=True, exist_ok=True)
            beside = Path(tempfile.mkdtemp(prefix=f".{self.at.name}.", dir=self.at.parent))
            try:
                for name, (data, mode) in self.files.items():
                    replace_file(beside / name, data, mode)
                beside.chmod(0o755)
                beside.rename(self.at)
            except BaseException:
                shutil.rmtree(beside, ignore_errors=True)
                raise


def _is(path: Path, data: bytes, mode: int) -> bool:
    try:
        return path.stat().st_mode & 0o777 == mode and path.read_bytes() == data
    except OSError:
        return False


@dataclass
class RemoveTree(Change):
    """Removes a directory: renamed first, so that no process finds half of it."""

    path: Path
    at: Path
    kind = "tree"

    @property
    def line(self) -> str:
        return f"remove {self.path}"

    def apply(self) -> None:
        with _report_os_errors(self.path):
            aside = Path(tempfile.mkdtemp(prefix=f".{self.at.name}.", dir=self.at.parent))
            self.at.rename(aside / self.at.name)
            shutil.rmtree(aside)


@dataclass
class SwapLink(Change):
    """Replaces a symbolic link atomically; `target` None removes it."""

    path: Path
    at: Path
    target: str | None
    kind = "link"

    @property
    def line(self) -> str:
        return f"remove {self.path}" if self.target is None else f"link {self.path} -> {self.target}"

    def apply(self) -> None:
        with _report_os_errors(self.path):
            if self.target is None:
                self.at.unlink(missing_ok=True)
                return
            self.at.parent.mkdir(parents=True, exist_ok=True)
            beside = self.at.with_name(f".{self.at.name}.{os.getpid()}")
            beside.unlink(missing_ok=True)
            beside.symlink_to(self.target)
            beside.replace(self.at)


@dataclass
class RemoveEmpty(Change):
    """Removes a directory of setup if it is empty."""

    path: Path
    at: Path
    kind = "tree"

    @property
    def line(self) -> str:
        return f"remove {self.path} if it is empty afterwards"

    def apply(self) -> None:
        with _report_os_errors(self.path):
            if self.at.is_dir() and not any(self.at.iterdir()):
                self.at.rmdir()


@dataclass
class Act(Change):
    """An action instead of a file: signal an engine, check that it accepted the change."""

    path: Path
    text: str
    do: Callable[[], None]
    kind = "action"

    @property
    def line(self) -> str:
        return self.text

    def apply(self) -> None:
        self.do()


@dataclass
class Plan:
    """The changes, and notes for the user (what stays and why, what to do next)."""

    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __iadd__(self, other: Plan) -> Plan:
        self.changes += other.changes
        self.notes += [note for note in other.notes if note not in self.notes]
        return self

    def write(self, path: Path, at: Path, old: str | None, new: str | None) -> None:
        """Adds the change of a text file, if there is one."""
        if old != new:
            self.changes.append(WriteText(path, at, old, new))

    def apply(self, say: Callable[[str], None]) -> None:
        """Makes the changes one after the other, announcing each. Stops at the first error; it may be run again."""
        for change in self.changes:
            say(change.line)
            change.apply()
