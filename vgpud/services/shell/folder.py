"""A service's folder in its owner's state directory: its record, its logs, and the lock of its balancer."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from vgpud import paths
from vgpud.errors import VgpudError
from vgpud.host import private_files
from vgpud.services.core.model import RECORD_BYTES_MAX, RecordError, Service, read_record

#: of replicas that have ended: older ones are removed
LOGS_MAX = 20


class Folder:
    """Methods raise VgpudError with one sentence."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1

    @property
    def log_pattern(self) -> str:
        """Of replicas, as the queue takes it."""
        return str(self.path).replace("%", "%%") + "/%j.log"

    @property
    def balancer_log(self) -> Path:
        return self.path / "balancer.log"

    def make(self) -> None:
        paths.make_private_dir(self.path.parent)
        paths.make_private_dir(self.path)

    def load(self) -> Service | None:
        """None: there is none yet."""
        try:
            with open(self.path / "service.json", "rb") as file:
                text = file.read(RECORD_BYTES_MAX + 1).decode()
            return read_record(text)
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError, RecordError) as error:
            raise VgpudError(f"cannot read {self.path / 'service.json'}: {error}; start the service again") from error

    def save(self, service: Service) -> None:
        try:
            private_files.replace(self.path / "service.json", service.to_json())
        except OSError as error:
            raise VgpudError(f"cannot write {self.path / 'service.json'}: {error.strerror}") from error

    def is_begun_by(self, token: str) -> bool:
        """Whether the record that a balancer was submitted with is in here already; by the token of that record."""
        try:
            return (self.path / "begin").read_text() == token
        except (OSError, UnicodeDecodeError):
            return False

    def note_begin(self, token: str) -> None:
        try:
            private_files.replace(self.path / "begin", token)
        except OSError as error:
            raise VgpudError(f"cannot write {self.path / 'begin'}: {error.strerror}") from error

    def link_log(self) -> None:
        """Of a balancer that writes elsewhere: its log can be found from here."""
        with contextlib.suppress(OSError):
            target = os.readlink("/proc/self/fd/1")
            if target != str(self.balancer_log) and Path(target).is_file():
                self.balancer_log.unlink(missing_ok=True)
                self.balancer_log.symlink_to(target)

    def lock(self) -> bool:
        """Whether this process has the service from now on; another one has it until its end."""
        try:
            fd = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise VgpudError(f"cannot lock {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            return False
        self._lock = fd
        return True

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove_old_logs(self, replica_ids: set[int]) -> None:
        """All but those of these replicas, and the newest of others."""
        found = [path for path in self.path.glob("*.log") if path.stem.isdigit() and int(path.stem) not in replica_ids]
        for path in sorted(found, key=lambda one: int(one.stem))[:-LOGS_MAX]:
            with contextlib.suppress(OSError):
                path.unlink()


def folder_of(name: str) -> Folder:
    """Of the user who calls."""
    return Folder(paths.services_dir() / name)
