"""Contexts: daemons of other machines, each with the certificate that its admin has issued for this user.

One file each, contexts/NAME.json (0600) in the user's configuration directory; .current there names the one in use.
Standard library only: the command line looks here at each start.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpud import paths
from vgpud.errors import ConfigError, ConflictError, DeniedError, ExitCode, VgpudError
from vgpud.host import private_files

SCHEMA_VERSION = 1
BYTES_MAX = 64 << 10
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_CURRENT = ".current"
_TEXTS, _NUMBERS = ("user", "authority", "certificate", "key"), ("uid", "expires")


@dataclass(frozen=True, slots=True)
class Context:
    """A daemon's address and the credentials for it, all PEM; name "" = not kept."""

    name: str
    host: str  # HOST:PORT, "" = not known yet
    user: str  # on the daemon's machine
    uid: int  # there
    expires: int  # of the certificate, seconds since 1970
    authority: str
    certificate: str
    key: str

    def __repr__(self) -> str:
        return f"Context({self.name!r}, {self.host!r}, {self.user!r})"  # never the key

    def is_expired(self, now_s: float) -> bool:
        return now_s >= self.expires


def is_address(text: str) -> bool:
    """Whether it is HOST:PORT."""
    return bool(_HOST.fullmatch(text))


def read_certificate(file: Path) -> Context:
    """What `vgpu cert user` wrote. Raises VgpudError with the remedy, also when others could read it."""
    return _read(file, "")


def add(name: str, host: str, file: Path) -> Context:
    """Keeps a certificate under this name. Raises VgpudError."""
    path = _path(name)
    if not is_address(host):
        raise ConfigError(f"{host!r} is no address of a daemon: write HOST:PORT, as in gpu1.example.org:7443")
    found = _read(file, name)
    if found.is_expired(time.time_ns() / 1e9):
        raise DeniedError(f"the certificate in {file} has expired, or this machine's clock is ahead: ask for a new one")
    folder = paths.make_private_dir(paths.contexts_dir())
    if os.path.lexists(path):
        raise ConflictError(f"there is a context {name!r} already: `vgpu context rm {name}` removes it")
    import json

    texts = {field: getattr(found, field) for field in (*_TEXTS, *_NUMBERS)}
    _write(path, json.dumps({"schema_version": SCHEMA_VERSION, "host": host, **texts}, indent=1) + "\n")
    if not os.path.lexists(folder / _CURRENT):
        use(name)
    return get(name)


def get(name: str) -> Context:
    """The context of this name. Raises VgpudError."""
    path = _path(name)
    paths.check_private_dir(path.parent)
    if not os.path.lexists(path):
        text = f"no context {name!r}: `vgpu context ls` lists them, `vgpu context add` adds one"
        raise VgpudError(text, ExitCode.NOT_FOUND)
    return _read(path, name)


def names() -> list[str]:
    """Of all contexts, sorted."""
    folder = paths.contexts_dir()
    paths.check_private_dir(folder)
    try:
        found = [entry.removesuffix(".json") for entry in os.listdir(folder) if entry.endswith(".json")]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DeniedError(f"cannot read {folder}: {error.strerror}; fix its permissions") from error
    return sorted(name for name in found if _NAME.fullmatch(name))


def use(name: str) -> None:
    """Makes it the one that `vgpu` uses; "" = none: the daemon of this machine. Raises VgpudError."""
    path = paths.contexts_dir() / _CURRENT
    if not name:
        paths.check_private_dir(path.parent)
        path.unlink(missing_ok=True)
        return
    get(name)
    _write(path, name + "\n")


def remove(name: str) -> None:
    """Forgets a context and its key. Raises VgpudError."""
    path = _path(name)
    paths.check_private_dir(path.parent)
    try:
        path.unlink()
    except FileNotFoundError as error:
        raise VgpudError(f"no context {name!r}: `vgpu context ls` lists them", ExitCode.NOT_FOUND) from error
    except OSError as error:
        raise DeniedError(f"cannot remove {path}: {error.strerror}; fix its permissions") from error
    if current_name() == name:
        use("")


def current_name() -> str:
    """The name of the context in use, "" = none. Raises VgpudError."""
    path = paths.contexts_dir() / _CURRENT
    if not os.path.lexists(path):
        return ""
    paths.check_private_dir(path.parent)
    name = _text(path).strip()
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{path} names no context: run `vgpu context use NAME`")
    return name


def current() -> Context | None:
    """The context in use. Raises VgpudError when it was removed by hand."""
    name = current_name()
    return get(name) if name else None


def for_host(host: str) -> Context:
    """The context with this address; of several the one in use. Raises VgpudError."""
    found = [context for context in map(get, names()) if context.host == host]
    if len(found) > 1:
        in_use = current_name()
        found = [context for context in found if context.name == in_use] or found
    if len(found) > 1:
        several = ", ".join(context.name for context in found)
        raise ConfigError(f"contexts {several} have the address {host}: choose one with `vgpu context use NAME`")
    if not found:
        text = f"there is no certificate for {host}: ask its admin for one (`vgpu cert user NAME`)"
        raise DeniedError(f"{text}, then run `vgpu context add NAME FILE --host {host}`")
    return found[0]


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise ConfigError(f"{name!r} is no name of a context: write at most 64 letters, digits, '.', '_' and '-'")
    return paths.contexts_dir() / f"{name}.json"


def _write(path: Path, text: str) -> None:
    try:
        private_files.replace(path, text)
    except OSError as error:
        raise paths.cannot_make(path, error) from error


def _text(path: Path) -> str:
    """The text of a private file. Raises VgpudError, also for a link and for a file that others can read."""
    try:
        with open(path, "rb", opener=_opener) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise ConfigError(f"{path} is not a regular file: name the one that `vgpu cert user` wrote")
            if info.st_uid not in (os.geteuid(), 0):
                raise DeniedError(f"{path} belongs to uid {info.st_uid}: copy it, and run chmod 600 on the copy")
            if info.st_mode & 0o077:
                mode = stat.S_IMODE(info.st_mode)
                raise DeniedError(f"{path} holds a key and has mode {mode:o}: run chmod 600 {path}")
            data = file.read(BYTES_MAX + 1)
    except OSError as error:
        reason = "it is a symbolic link, which is not followed" if os.path.islink(path) else error.strerror
        raise ConfigError(f"cannot read {path}: {reason}; name the file that `vgpu cert user` wrote") from error
    if len(data) > BYTES_MAX:
        raise ConfigError(f"{path} has more than {BYTES_MAX >> 10} KiB: name the file that `vgpu cert user` wrote")
    return data.decode("utf-8", errors="replace")


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)


def _read(path: Path, name: str) -> Context:
    import json

    try:
        document: Any = json.loads(_text(path))
    except (ValueError, RecursionError):
        document = None
    if not _is_whole(document):
        raise ConfigError(f"{path} is no certificate for vgpu: name the file that `vgpu cert user` wrote")
    fields = {field: document[field] for field in (*_TEXTS, *_NUMBERS)}
    return Context(name=name, host=str(document.get("host", "")), **fields)


def _is_whole(document: Any) -> bool:
    return isinstance(document, Mapping) and (
        all(isinstance(document.get(field), str) for field in _TEXTS)
        and all(isinstance(document.get(field), int) for field in _NUMBERS)
    )
