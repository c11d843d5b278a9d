"""The whole of `vgpu setup ENGINE`: libraries and the engine's own file, in the order that never breaks an engine.

Setting up: first the files that the engine will call, then its configuration. Undoing: the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vgpud.errors import DeniedError
from vgpud.setup import docker, dockerd
from vgpud.setup.install import plan_install, plan_remove
from vgpud.setup.plan import Plan
from vgpud.setup.site import Site


@dataclass(frozen=True, slots=True)
class Wish:
    """What the command line asks for."""

    undo: bool = False
    config: Path | None = None  # the engine's configuration file; None: the usual one
    socket: Path | None = None  # of the daemon; None: by its configuration
    runtime: str = ""  # low-level runtime; "": as before, else runc or crun
    as_default: bool = False


def known_files(site: Site) -> Iterator[tuple[str, Path]]:
    """(engine, configuration file) of every engine that may name our runtime: usual places, and those that run now."""
    yield "docker", dockerd.DEFAULT_CONFIG
    if not site.mounted:
        yield from (("docker", one.config) for one in dockerd.all_dockerds())


def plan_docker(site: Site, wish: Wish) -> Plan:
    """`vgpu setup docker`. Raises SetupError, DeniedError."""
    _system_only(site, "docker")
    config = docker.config_file(site, wish.config)
    if wish.undo:
        return _undo(site, "docker", docker.plan_undo(site, config), config)
    plan = plan_install(site, "docker", wish.socket, wish.runtime)
    plan += docker.plan_setup(site, config, wish.as_default)
    return plan


def _undo(site: Site, engine: str, plan: Plan, config: Path) -> Plan:
    """The engine's plan, and the libraries' where nobody else names them."""
    others = [(name, path) for name, path in known_files(site) if path != config]
    plan += plan_remove(site, engine, others)
    return plan


def _system_only(site: Site, engine: str) -> None:
    if site.for_user:
        raise DeniedError(f"setting up {engine} changes the system: run `sudo vgpu setup {engine}`")


PLANS: dict[str, Callable[[Site, Wish], Plan]] = {"docker": plan_docker}
#: what to type after setting up
NEXT = {"docker": "next: docker run --runtime=vgpu -e VGPU=0.5 IMAGE"}
