"""What of the node a job's container is given: directories (volumes), ports, and credentials for its image. Pure.

How they are written, and what the site allows. A path is held against the site's list here by its text alone; links in
it are followed when the container starts (vgpud/jobs/container_client.py), with the user's own rights.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from vgpud.core.units import PORT_MAX, parse_whole

VOLUMES_MAX, PORTS_MAX = 16, 16
#: of a path, and of a name of credentials
PATH_BYTES_MAX, NAME_CHARACTERS_MAX = 4_000, 64
#: ports below are for services of the system
_PORT_MIN = 1024
#: signs that mean something in an engine's options
_SIGNS = frozenset(':,"\\')
#: what the runtime mounts itself
_OF_THE_RUNTIME = ("/", "/proc", "/sys", "/dev")
_REGISTRY = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class PartError(ValueError):
    """It is written wrongly, or not allowed: one line that names it and the remedy."""


@dataclass(frozen=True, slots=True)
class Volume:
    """A directory or file of the node at a path of the container; both absolute."""

    host: str
    container: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.host}:{self.container}{':ro' if self.read_only else ''}"


@dataclass(frozen=True, slots=True)
class Port:
    """A port of the container, published on the node."""

    host: int
    container: int

    def __str__(self) -> str:
        return str(self.host) if self.host == self.container else f"{self.host}:{self.container}"


@dataclass(frozen=True, slots=True)
class ContainerParts:
    """Of one job. `registry`: a name of the site's list, or the absolute path of a file of the user's; "" = none."""

    volumes: tuple[Volume, ...] = ()
    ports: tuple[Port, ...] = ()
    registry: str = ""


NO_PARTS = ContainerParts()


@dataclass(frozen=True, slots=True)
class AllowedPath:
    """A directory of the node below which users may name volumes."""

    path: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class Allowance:
    """What users may name. `ports`: first and last of each range; `network`: of their containers, as the engine takes
    it; `any_image`: images that no environment of the site has, too."""

    paths: tuple[AllowedPath, ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    network: str = ""
    any_image: bool = True

    @property
    def shares_network(self) -> bool:
        """Whether containers have the node's own network."""
        return self.network == "host"

    @property
    def publishes_none(self) -> bool:
        """Whether the engine publishes no port of them: they have no network, or that of others."""
        return self.network in ("host", "none") or self.network.startswith(("container:", "ns:"))

    def roots_for(self, volume: Volume) -> tuple[str, ...]:
        """The directories below which it may lie once its links are followed."""
        return tuple(one.path for one in self.paths if volume.read_only or not one.read_only)

    def check(self, parts: ContainerParts) -> None:
        """Raises PartError for what users may not have."""
        for volume in parts.volumes:
            self._check_volume(volume)
        for port in parts.ports:
            self._check_port(port)
        if parts.ports and self.publishes_none:
            text = f"port {parts.ports[0]}: containers of jobs have the network {self.network!r} here, which publishes"
            raise PartError(f"{text} none: leave the port out")

    def _check_volume(self, volume: Volume) -> None:
        if any(is_below(volume.host, root) for root in self.roots_for(volume)):
            return
        if any(is_below(volume.host, one.path) for one in self.paths):
            raise PartError(f"volume {volume}: {volume.host} is for reading only here: add :ro")
        named = ", ".join(f"{one.path}{':ro' if one.read_only else ''}" for one in self.paths)
        remedy = f"the site allows {named}" if named else "the site allows none (volumes in vgpud.toml)"
        raise PartError(f"volume {volume}: {volume.host} is not below a directory that jobs may have: {remedy}")

    def _check_port(self, port: Port) -> None:
        if any(first <= port.host <= last for first, last in self.ports):
            return
        named = ", ".join(f"{first}-{last}" for first, last in self.ports)
        remedy = f"the site allows {named}" if named else "the site allows none (ports in vgpud.toml)"
        raise PartError(f"port {port}: {port.host} of this node is not for jobs: {remedy}")


def is_below(path: str, root: str) -> bool:
    """Whether an absolute path is this directory or below it, by its text."""
    return path == root or path.startswith(root.rstrip("/") + "/")


def parse_volume(text: str) -> Volume:
    """HOST:CONTAINER, HOST:CONTAINER:ro or :rw. Raises PartError."""
    host, *rest = text.split(":")
    if not rest or len(rest) > 2 or (len(rest) == 2 and rest[1] not in ("ro", "rw")):
        raise PartError(f"volume {text[:200]!r} is not HOST:CONTAINER, or HOST:CONTAINER:ro: write /data:/data:ro")
    volume = Volume(parse_path(host, text), parse_path(rest[0], text), read_only=rest[-1] == "ro")
    if volume.container in _OF_THE_RUNTIME or volume.container.startswith(("/proc/", "/sys/")):
        raise PartError(f"volume {text[:200]!r}: {volume.container} is the container's own: choose another directory")
    return volume


def parse_path(path: str, volume: str) -> str:
    """An absolute path without `.`, `..` and double slashes. Raises PartError."""
    shown = f"volume {volume[:200]!r}"
    if not path.startswith("/"):
        raise PartError(f"{shown}: {path[:80]!r} is not absolute: write it from / on")
    if ".." in path.split("/"):
        raise PartError(f"{shown}: {path[:80]!r} has a `..`: write the path without it")
    if not path.isprintable() or not _SIGNS.isdisjoint(path) or len(path.encode()) > PATH_BYTES_MAX:
        raise PartError(f"{shown}: a path has no colons, commas, quotes or signs that cannot be printed")
    return "/" + "/".join(part for part in path.split("/") if part not in ("", "."))


def parse_port(text: str) -> Port:
    """HOST:CONTAINER, or one number for both. Raises PartError."""
    host, colon, container = text.partition(":")
    numbers = [parse_whole(part, PORT_MAX) for part in ((host, container) if colon else (host, host))]
    if any(not number for number in numbers):
        raise PartError(f"port {text[:40]!r} is not a port: write 8080, or HOST:CONTAINER such as 20001:8080")
    return Port(*(number or 0 for number in numbers))


def parse_registry(text: str) -> str:
    """A name of credentials, or the absolute path of a file. Raises PartError."""
    if text.startswith("/"):
        if not text.isprintable() or len(text.encode()) > PATH_BYTES_MAX:
            raise PartError(f"registry {text[:80]!r} is not a path: leave out what cannot be printed")
        return text
    if not _REGISTRY.fullmatch(text) or len(text) > NAME_CHARACTERS_MAX:
        remedy = "write one of the site's names, or the absolute path of your file"
        raise PartError(f"registry {text[:80]!r} is neither a name nor a path: {remedy}")
    return text


def parse_parts(volumes: Sequence[str], ports: Sequence[str], registry: str = "") -> ContainerParts:
    """Raises PartError."""
    if len(volumes) > VOLUMES_MAX or len(ports) > PORTS_MAX:
        text = f"{len(volumes)} volumes and {len(ports)} ports: at most"
        raise PartError(f"{text} {VOLUMES_MAX} and {PORTS_MAX} are allowed")
    parts = ContainerParts(
        tuple(map(parse_volume, volumes)), tuple(map(parse_port, ports)), parse_registry(registry) if registry else ""
    )
    for what, places in (
        ("volumes", [volume.container for volume in parts.volumes]),
        ("ports", [str(port.host) for port in parts.ports]),
    ):
        double = next((place for place in places if places.count(place) > 1), None)
        if double is not None:
            raise PartError(f"two {what} at {double}: choose another place for one of them")
    return parts


def leave_out(parts: ContainerParts, of_site: ContainerParts) -> ContainerParts:
    """What a job adds to its environment's own. Raises PartError where both want one place."""
    places = {volume.container: str(volume) for volume in of_site.volumes}
    for volume in parts.volumes:
        if places.get(volume.container, str(volume)) != str(volume):
            text = f"volume {volume}: the environment has {places[volume.container]}"
            raise PartError(f"{text} there: choose another directory of the container")
    known = {port.host for port in of_site.ports}
    return ContainerParts(
        tuple(volume for volume in parts.volumes if volume.container not in places),
        tuple(port for port in parts.ports if port.host not in known),
        "" if parts.registry == of_site.registry else parts.registry,
    )


def parse_allowance(
    volumes: Iterable[str], ports: Iterable[str], network: str = "", *, any_image: bool = True
) -> Allowance:
    """Of vgpud.toml: directories such as /data:ro, and ranges of ports such as 20000-20999. Raises PartError."""
    paths = []
    for text in volumes:
        path, _, mode = text.partition(":")
        if mode not in ("", "ro", "rw"):
            raise PartError(f"{text!r} is not a directory: write /data or /data:ro")
        paths.append(AllowedPath(parse_path(path, text), mode == "ro"))
    ranges = []
    for text in ports:
        first, dash, last = text.partition("-")
        low, high = parse_whole(first, PORT_MAX), parse_whole(last if dash else first, PORT_MAX)
        if low is None or high is None or not _PORT_MIN <= low <= high:
            raise PartError(f"{text!r} is not a range of ports from {_PORT_MIN} on: write for example 20000-20999")
        ranges.append((low, high))
    return Allowance(tuple(paths), tuple(ranges), network, any_image)
