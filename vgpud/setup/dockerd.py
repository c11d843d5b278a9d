"""The dockerd that reads a given configuration file: its process, its reload, its state."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vgpud.setup.site import SetupError, command_line, processes, resolve_in_root, same_file

DEFAULT_CONFIG = Path("/etc/docker/daemon.json")
DEFAULT_SOCKET = Path("/var/run/docker.sock")
_ANSWER_S = 10.0
_RELOAD_S = 10.0


def asked_socket() -> Path:
    """The socket that `docker` uses in this shell: DOCKER_HOST, if it is a local socket, or the usual one."""
    named = os.environ.get("DOCKER_HOST", "")
    return Path(named.removeprefix("unix://")) if named.startswith("unix://") else DEFAULT_SOCKET


@dataclass(frozen=True, slots=True)
class Dockerd:
    """A running dockerd."""

    pid: int
    argv: tuple[str, ...]

    def option(self, *names: str) -> list[str]:
        """The values of an option on its command line: --name value, --name=value."""
        found = []
        for word, following in zip(self.argv, [*self.argv[1:], ""], strict=True):
            name, equals, value = word.partition("=")
            if name in names or (name.startswith("--") and name[1:] in names):
                found.append(value if equals else following)
        return found

    @property
    def root(self) -> Path:
        """Its root directory as seen from here."""
        return Path(f"/proc/{self.pid}/root")

    @property
    def config(self) -> Path:
        """The path of its configuration file, as it names it."""
        named = self.option("--config-file")
        return Path(named[-1]) if named else DEFAULT_CONFIG

    def reads(self, config: Path) -> bool:
        """Whether its configuration file is the one at `config` (which need not exist yet)."""
        try:
            theirs = resolve_in_root(self.root, self.config)
            here = next(p for p in config.parents if p.is_dir())
            there = next(p for p in theirs.parents if p.is_dir())
            rest = (config.relative_to(here), theirs.relative_to(there))
            return rest[0] == rest[1] and os.path.samestat(here.stat(), there.stat())
        except OSError:
            return False  # another user's, or ended

    def socket_path(self, hosts: list[Any]) -> Path:
        """The socket of its API; `hosts`: those of its configuration."""
        named = [h for h in [*self.option("-H", "--host"), *hosts] if isinstance(h, str)]
        unix = [h.removeprefix("unix://") for h in named if h.startswith("unix://")]
        return resolve_in_root(self.root, Path(unix[0]) if unix else DEFAULT_SOCKET)

    def listens_on(self, socket_path: Path) -> bool:
        """Whether its API, as its command line has it, is at this socket."""
        try:
            return same_file(self.socket_path([]), socket_path)
        except OSError:
            return False  # it has ended, and so has its root

    def reload(self) -> None:
        """SIGHUP: it reads its configuration again; containers keep running."""
        try:
            os.kill(self.pid, signal.SIGHUP)
        except OSError as error:
            remedy = "reload it: systemctl reload docker"
            raise SetupError(f"dockerd (pid {self.pid}) cannot be signalled: {error.strerror}: {remedy}") from error


def all_dockerds() -> list[Dockerd]:
    """Dockerds of root; those of other users have their configuration in a home directory."""
    pids = [pid for pid in processes("dockerd") if _uid(pid) == 0]
    return [Dockerd(pid, tuple(argv)) for pid in pids if (argv := command_line(pid))]


def _uid(pid: int) -> int:
    try:
        return Path(f"/proc/{pid}").stat().st_uid
    except OSError:
        return -1  # it has ended


def find_by_socket(socket_path: Path) -> Dockerd | None:
    """The dockerd that listens on this API socket."""
    return next((one for one in all_dockerds() if one.listens_on(socket_path)), None)


def find_dockerd(config: Path) -> Dockerd | None:
    """The dockerd that reads the file at `config`."""
    return next((one for one in all_dockerds() if one.reads(config)), None)


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("docker", timeout=_ANSWER_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(_ANSWER_S)
        self.sock.connect(str(self._path))


def ask(path: Path, what: str = "info") -> dict[str, Any]:
    """GET /info (or another page) of the engine behind a socket. Raises OSError, ValueError without an answer."""
    connection = _UnixConnection(path)
    try:
        connection.request("GET", f"/{what}")
        answer = json.loads(connection.getresponse().read())
    except http.client.HTTPException as error:
        raise OSError(f"not HTTP: {error}") from error
    finally:
        connection.close()
    if not isinstance(answer, dict):
        raise OSError("no answer")
    return answer


def wait_for(path: Path, condition: Callable[[dict[str, Any]], bool]) -> bool:
    """Polls until the engine's info fulfils the condition, at most `_RELOAD_S`: it reloads asynchronously."""
    until = time.monotonic() + _RELOAD_S
    while not knows(path, condition):
        if time.monotonic() >= until:
            return False
        time.sleep(0.05)
    return True


def knows(path: Path, condition: Callable[[dict[str, Any]], bool]) -> bool:
    """Whether the engine's info fulfils the condition now."""
    try:
        return condition(ask(path))
    except (OSError, ValueError):
        return False


def hosts_of(document: dict[str, Any]) -> list[Any]:
    """`hosts` of a daemon.json."""
    hosts = document.get("hosts", [])
    return hosts if isinstance(hosts, list) else []
