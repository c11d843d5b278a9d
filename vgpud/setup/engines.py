"""The whole of `vgpu setup ENGINE`: libraries and the engine's own file, in an order that never breaks an engine.

Setting up: first the files that the engine will call, then its configuration. Undoing: the other way round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vgpud.errors import DeniedError
from vgpud.setup import containerd, docker, dockerd, podman, systemd
from vgpud.setup.install import plan_install, plan_remove
from vgpud.setup.plan import Plan
from vgpud.setup.site import Site

#: engine -> the user's next step after setting up
NEXT = {
    "docker": "next: docker run --runtime=vgpu -e VGPU=0.5 IMAGE (`vgpu doctor` checks the rest)",
    "podman": "next: podman --runtime vgpu run -e VGPU=0.5 IMAGE (`vgpu doctor` checks the rest)",
    "containerd": "next: a RuntimeClass with handler vgpu, or nerdctl run --runtime {front} -e VGPU=0.5 IMAGE",
    "systemd": "next: systemctl enable --now vgpud",
    "cdi": "next: vgpud serve --in-container, whose CDI devices name {front}",
}


@dataclass(frozen=True, slots=True)
class SetupOptions:
    """The options of the command line."""

    undo: bool = False
    config: Path | None = None  # the engine's configuration file; None: the usual one
    socket: Path | None = None  # of the daemon; None: by its configuration
    runtime: str = ""  # low-level runtime; "": as before, else runc or crun
    as_default: bool = False


def known_files(site: Site) -> Iterator[tuple[str, Path]]:
    """(engine, configuration file) of every engine that may name vgpu-runtime: usual places, and running dockerds."""
    yield "podman", podman.drop_in(site)
    if site.for_user:
        return
    yield "docker", dockerd.DEFAULT_CONFIG
    yield "containerd", containerd.DEFAULT_CONFIG
    if not site.is_mounted:
        yield from (("docker", one.config) for one in dockerd.all_dockerds())


def plan_engine(engine: str, site: Site, options: SetupOptions) -> Plan:
    """The changes of `vgpu setup ENGINE`. Raises SetupError, DeniedError before anything is changed."""
    if engine != "podman" and site.for_user:
        text = f"what setting up {engine} reads and changes is root's: run `sudo vgpu setup {engine}`"
        raise DeniedError(f"{text}, first with --dry-run to see the changes")
    if engine == "systemd":
        return systemd.plan_undo(site) if options.undo else systemd.plan_setup(site)
    if engine == "cdi":
        if options.undo:
            return plan_remove(site, engine, known_files(site))
        return plan_install(site, engine, options.socket, "")
    config = _config_file(engine, site, options)
    if options.undo:
        plan = _plan_undo(engine, site, config)
        others = [(name, path) for name, path in known_files(site) if path != config]
        plan += plan_remove(site, engine, others)
        return plan
    plan = plan_install(site, engine, options.socket, options.runtime)
    plan += _plan_setup(engine, site, config, options.as_default)
    return plan


def _config_file(engine: str, site: Site, options: SetupOptions) -> Path:
    if engine == "docker":
        return docker.config_file(site, options.config)
    usual = podman.drop_in(site) if engine == "podman" else containerd.DEFAULT_CONFIG
    return options.config.absolute() if options.config else usual


def _plan_setup(engine: str, site: Site, config: Path, as_default: bool) -> Plan:
    if engine == "docker":
        return docker.plan_setup(site, config, as_default)
    return podman.plan_setup(site, config) if engine == "podman" else containerd.plan_setup(site, config)


def _plan_undo(engine: str, site: Site, config: Path) -> Plan:
    if engine == "docker":
        return docker.plan_undo(site, config)
    return podman.plan_undo(site, config) if engine == "podman" else containerd.plan_undo(site, config)
