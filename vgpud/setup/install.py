"""The libraries and vgpu-runtime under /usr/lib/vgpu/<version>/, and the link `current` that engines use.

A new version is written beside the old one and renamed, the same version is repaired file by file; programs of an older
version keep it. A version is removed only when no engine names it and no container was created by it, because engines
call vgpu-runtime to stop their containers.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

import vgpud
from vgpud import config as configuration
from vgpud import paths
from vgpud.errors import ExitCode
from vgpud.setup.in_use import containers_of
from vgpud.setup.plan import InstallTree, Plan, RemoveEmpty, RemoveTree, SwapLink
from vgpud.setup.site import SetupError, Site, read_text

RUNTIME = "vgpu-runtime"
CONF = "vgpu-runtime.conf"
LIBRARIES = ("libvgpu.so", "libvgpu-ml.so")
CURRENT = "current"
_FILES = (*LIBRARIES, RUNTIME, CONF)
#: directories in which vgpu-runtime looks for a low-level runtime by name, and its default names
#: (shim/runtime/lowlevel.c)
LOW_LEVEL_DIRS = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
LOW_LEVEL = ("runc", "crun")


def daemon_socket(site: Site) -> Path:
    """The runtime socket of the site's daemon, by its configuration; for a user without one the system's."""
    system = paths.runtime_dir(uid=0)
    if not site.is_mounted:
        own, systems = paths.runtime_socket(configuration.load(None).runtime), paths.runtime_socket(system)
        return systems if site.for_user and systems.exists() and not own.exists() else own
    file = site.at(paths.config_file(uid=0))
    return paths.runtime_socket(Path(configuration.load(file).runtime_dir or system) if file.is_file() else system)


def _socket(site: Site, old_socket: str) -> Path:
    """The daemon's socket by its configuration; if that has none, the previous one."""
    configured = daemon_socket(site)
    return (
        Path(old_socket)
        if old_socket and site.at(Path(old_socket)).exists() and not site.at(configured).exists()
        else configured
    )


def read_conf(text: str) -> dict[str, str]:
    """The keys of a vgpu-runtime.conf."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and not line.lstrip().startswith("#"))
    return {key.strip(): value.strip() for key, _, value in pairs}


def conf_text(socket: Path, runtime: str) -> str:
    """A vgpu-runtime.conf; runtime "": vgpu-runtime looks for runc, then crun."""
    lines = ["# Read by vgpu-runtime in this directory; written by `vgpu setup`.", f"socket = {socket}"]
    return "\n".join([*lines, *([f"runtime = {runtime}"] if runtime else [])]) + "\n"


def _contents(conf: str) -> dict[str, tuple[bytes, int]]:
    files: dict[str, tuple[bytes, int]] = {}
    for name in (*LIBRARIES, RUNTIME):
        path = paths.lib_dir() / name
        try:
            files[name] = (path.read_bytes(), 0o755)
        except OSError as error:
            remedy = "build it: `pip install .`, or `python shim/build_shim.py` in the source"
            raise SetupError(f"{path}: {error.strerror}: {remedy}") from error
    files[CONF] = (conf.encode(), 0o644)
    return files


def find_low_level(site: Site, runtime: str) -> Path | None:
    """The low-level runtime that vgpu-runtime will use: the one given by name or path, or a default one."""
    names = (runtime,) if runtime else LOW_LEVEL
    places = [Path(name) if "/" in name else Path(folder) / name for name in names for folder in LOW_LEVEL_DIRS]
    return next((path for path in places if os.access(site.at(path), os.X_OK)), None)


def plan_install(site: Site, engine: str, socket: Path | None, runtime: str) -> Plan:
    """The changes for this version's files. socket None, runtime "": as before, or as the daemon is configured."""
    target = site.lib / vgpud.__version__
    before = read_conf(read_text(site.at(site.lib / CURRENT) / CONF) or "")
    if "nvidia" in Path(runtime).name:
        remedy = "name runc or crun, and vgpu-runtime in NVIDIA's config.toml if both are wanted"
        raise SetupError(f"--runtime {runtime}: below vgpu-runtime it would mount the driver over the shim: {remedy}")
    if "/" in runtime and not runtime.startswith("/"):
        raise SetupError(f"--runtime {runtime}: give a name, such as runc, or an absolute path", ExitCode.USAGE)
    conf = conf_text(socket or _socket(site, before.get("socket", "")), runtime or before.get("runtime", ""))
    plan = Plan()
    if runtime and find_low_level(site, runtime) is None:
        where = "" if "/" in runtime else f" in {', '.join(LOW_LEVEL_DIRS)}"
        text = f"--runtime {runtime} does not exist{where}: until it does, vgpu-runtime starts no containers"
        plan.notes.append(text)
    tree = InstallTree(target, site.at(target), _contents(conf))
    if tree.differing():
        plan.changes.append(tree)
    link = site.at_link(site.lib / CURRENT)
    if not link.is_symlink() or link.readlink() != Path(vgpud.__version__):
        if link.exists() and not link.is_symlink():
            raise SetupError(
                f"{site.lib / CURRENT} is not a link: move it away, because setup creates a link of that name"
            )
        plan.changes.append(SwapLink(site.lib / CURRENT, link, vgpud.__version__))
    if plan.changes:
        # the folders that files are put into, and not the one above: site.lib may be a volume in a read-only tree
        site.check_writable(target, engine)
        site.check_writable(target / RUNTIME, engine)
    return plan


def versions(site: Site) -> list[str]:
    """Names of installed versions, and of leftovers of an interrupted installation."""
    folder = site.at(site.lib)
    if not folder.is_dir():
        return []
    return sorted(p.name for p in folder.iterdir() if p.name != CURRENT and any((p / n).is_file() for n in _FILES))


def plan_remove(site: Site, engine: str, others: Iterable[tuple[str, Path]]) -> Plan:
    """Removes the versions that no container uses; all stay while one of `others` (engine, file) names vgpu-runtime."""
    plan = Plan()
    folder = site.at(site.lib)
    there = versions(site)
    if not there:
        return plan
    for other, path in others:
        if str(site.front) in (_readable(site.at(path)) or ""):
            plan.notes.append(f"{site.lib} stays: {other} uses it ({path}); `vgpu setup {other} --undo` removes that")
            return plan
    link = site.at_link(site.lib / CURRENT)
    current = link.readlink().name if link.is_symlink() else ""
    users = containers_of(site)
    if users is None:
        what = f"{site.lib} stays: containers that use it are not visible from here"
        plan.notes.append(f"{what}; run `vgpu setup {engine} --undo` with the host's processes (docker run --pid=host)")
        return plan
    kept = False
    for name in there:
        using = users.get(name, []) + (users.get(CURRENT, []) if name == current else [])
        if using:
            kept = True
            plan.notes.append(
                f"{site.lib / name} stays: container {using[0]} was started by it"
                + (f" (and {len(using) - 1} more)" if len(using) > 1 else "")
                + f"; when it has ended run `vgpu setup {engine} --undo` again"
            )
        else:
            plan.changes.append(RemoveTree(site.lib / name, folder / name))
    if link.is_symlink() and not (kept and users.get(CURRENT)):
        plan.changes.insert(0, SwapLink(site.lib / CURRENT, link, None))
    if not kept:
        plan.changes.append(RemoveEmpty(site.lib, folder))
    if plan.changes:
        site.check_writable(site.lib / CURRENT, engine)
    return plan


def _readable(path: Path) -> str | None:
    """A text without its comments; None for None."""
    try:
        return re.sub(r"(?m)^\s*#.*$", "", path.read_text(errors="replace"))
    except OSError:
        return None
