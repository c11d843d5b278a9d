"""The list of all certificates that were issued, with their users and whether they are revoked.

The daemon takes a caller's identity from this list, by the certificate's SHA-256, never from what the certificate says
of itself: a certificate that is not listed belongs to no user, whoever signed it. Standard library only: the daemon
makes no certificates.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from vgpud.errors import ConfigError, DeniedError, ExitCode, VgpudError
from vgpud.host import private_files
from vgpud.paths import cannot_make, check_private_dir

AUTHORITY, SERVER, USER = "authority", "server", "user"
SCHEMA_VERSION = 1
#: a list of this size has some 100,000 certificates
BYTES_MAX = 32 << 20
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class Issued:
    """One certificate. Times are seconds since 1970."""

    kind: str  # authority, server or user
    name: str  # the user's, or the host names of the server with commas between them
    uid: int  # of the user when it was issued, -1 for the others
    serial: str  # hexadecimal
    sha256: str  # of the certificate, hexadecimal
    not_before_s: int
    not_after_s: int
    revoked_s: int = 0  # 0 = it is not

    def state(self, now_s: float) -> str:
        """valid, revoked, expired, or "early": the clock shows a time before its first second."""
        if self.revoked_s:
            return "revoked"
        if now_s >= self.not_after_s:
            return "expired"
        return "early" if now_s < self.not_before_s else "valid"


def when(time_s: float) -> str:
    """A time in messages, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(time_s))


def stamp(time_s: float) -> str:
    """The same for programs: RFC 3339."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time_s))


def check_private_file(path: Path) -> None:
    """Raises DeniedError for a key that others may have read or replaced, ConfigError where there is none."""
    try:
        info = path.lstat()
    except FileNotFoundError as error:
        raise ConfigError(f"there is no {path}: run `vgpu cert init`") from error
    except OSError as error:
        raise DeniedError(f"cannot look at {path}: {error.strerror}; run as the user that vgpud runs as") from error
    if not stat.S_ISREG(info.st_mode):
        raise DeniedError(f"{path} is not a regular file: remove it and run `vgpu cert init --renew`")
    if info.st_uid not in (os.geteuid(), 0):
        raise DeniedError(f"{path} belongs to uid {info.st_uid}: run chown {os.geteuid()} {path} after looking at it")
    if info.st_mode & _OTHERS:
        mode = stat.S_IMODE(info.st_mode)
        text = f"{path} has mode {mode:o}, so other users may have read it: run chmod 600 {path}"
        raise DeniedError(f"{text}, and make a new one if they could reach it")


class Register:
    """The directory of certificates (0700): the authority's and the server's, their keys, and the list."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.authority, self.authority_key = directory / "authority.crt", directory / "authority.key"
        self.server = directory / "server.pem"  # with its key, so that both change in one step
        self._path = directory / "certificates.json"
        self._read: tuple[tuple[int, int, int], dict[str, Issued]] | None = None

    def read_certificates(self) -> dict[str, Issued]:
        """All certificates by their SHA-256; the file is read when it has changed. Raises VgpudError."""
        check_private_dir(self.directory)
        check_private_file(self._path)
        try:
            info = self._path.stat()
            mark = info.st_ino, info.st_mtime_ns, info.st_size
            if self._read is None or self._read[0] != mark:
                if info.st_size > BYTES_MAX:
                    raise ConfigError(f"{self._path} has {info.st_size} bytes, more than any list of certificates")
                self._read = mark, _parse(self._path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DeniedError(f"cannot read {self._path}: {error.strerror}; fix its permissions") from error
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            text = f"{self._path} is not a list of certificates ({error})"
            raise ConfigError(
                f"{text}: restore it from a backup, or remove {self.directory} and issue new ones"
            ) from error
        return self._read[1]

    def newest(self, kind: str) -> Issued | None:
        """The certificate of the authority or the server that is in use. Raises VgpudError."""
        found = [issued for issued in self.read_certificates().values() if issued.kind == kind and not issued.revoked_s]
        return max(found, key=lambda issued: issued.not_after_s, default=None)

    def check(self, now_s: float) -> None:
        """Whether a daemon can serve with what is here. Raises ConfigError, DeniedError with the remedy."""
        if not self.directory.exists():
            raise ConfigError(f"there are no certificates in {self.directory}: run `vgpu cert init`")
        check_private_dir(self.directory)
        check_private_file(self.server)
        for kind in (AUTHORITY, SERVER):
            issued = self.newest(kind)
            state = issued.state(now_s) if issued else "missing"
            if issued and state == "expired":
                text = f"the {kind}'s certificate in {self.directory} expired on {when(issued.not_after_s)}"
                fix = (
                    "run `vgpu cert init --renew`" if kind == SERVER else "make new ones in another directory (tls_dir)"
                )
                raise ConfigError(f"{text}: {fix}, or set this machine's clock, which shows {when(now_s)}")
            if issued and state == "early":
                text = f"the {kind}'s certificate in {self.directory} is valid from {when(issued.not_before_s)}"
                raise ConfigError(f"{text}, and this machine's clock shows {when(now_s)}: set the clock")
            if issued is None:
                raise ConfigError(f"no certificate of the {kind} is listed in {self._path}: run `vgpu cert init`")

    # ---- changes ----

    @contextlib.contextmanager
    def changing(self) -> Iterator[dict[str, Issued]]:
        """The list, to be changed and then saved; one process at a time. Raises VgpudError."""
        self.make()
        try:
            with open(self.directory / "lock", "w", opener=private_files.opener) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                listed = dict(self.read_certificates()) if os.path.lexists(self._path) else {}
                yield listed
                rows = [asdict(issued) for issued in listed.values()]
                document = {"schema_version": SCHEMA_VERSION, "certificates": rows}
                private_files.replace(self._path, json.dumps(document, indent=1) + "\n")
        except OSError as error:
            raise cannot_make(self.directory, error) from error

    def make(self) -> None:
        """Creates the directory. Raises DeniedError where it is another user's, or open to writing by others."""
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_make(self.directory, error) from error
        check_private_dir(self.directory)

    def revoke(self, what: str, now_s: float) -> list[Issued]:
        """Revokes the certificate with this serial number, or all that are valid of this user. Returns them as they are
        then.

        Raises VgpudError, also when there is none.
        """
        with self.changing() as listed:
            found = [i for i in listed.values() if i.kind == USER and what in (i.name, i.serial) and not i.revoked_s]
            found = [replace(issued, revoked_s=int(now_s)) for issued in found]
            listed.update({issued.sha256: issued for issued in found})
        if not found:
            text = f"no certificate to revoke has the name or serial {what!r}: `vgpu cert ls` lists them"
            raise VgpudError(text, ExitCode.NOT_FOUND)
        return found


def _parse(text: str) -> dict[str, Issued]:
    document = json.loads(text)
    known = {f.name: f.type for f in fields(Issued)}
    found: dict[str, Issued] = {}
    for row in document["certificates"]:
        issued = Issued(**{name: _check_type(row[name], kind) for name, kind in known.items()})
        found[issued.sha256] = issued
    return found


def _check_type(value: Any, kind: Any) -> Any:
    if not isinstance(value, str if kind == "str" else int):
        raise ValueError(f"{value!r} is no {kind}")
    return value
