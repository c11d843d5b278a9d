"""`vgpu doctor`: the container engines of this machine, and whether each knows the runtime `vgpu`."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

import vgpud
from vgpud import paths
from vgpud.cli.common.findings import Finding, Look
from vgpud.setup import containerd, docker, dockerd, podman
from vgpud.setup.install import RUNTIME
from vgpud.setup.site import SetupError, Site, read_text
from vgpud.setup.tomltext import dig, parse

NAME = "vgpu"
_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
_VERSION_S = 10


def find_program(name: str) -> str | None:
    """A program in PATH or in the directories that a user's PATH often lacks."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")


def engines_here() -> list[str]:
    """Names of the engines that are installed, as `vgpu setup` calls them."""
    programs = {"docker": "dockerd", "podman": "podman", "containerd": "containerd"}
    found = [engine for engine, program in programs.items() if find_program(program)]
    return [engine for engine in found if engine != "containerd" or "docker" not in found] or found


def registered_path(look: Look, check: str, engine: str, text: str) -> Iterator[Finding]:
    """The path that an engine has for vgpu-runtime: it exists, is executable, and of this version."""
    path, again = Path(text), f"sudo vgpu setup {engine}"
    if path.name != RUNTIME:
        yield Finding(
            check, "fail", f"{engine}'s runtime {NAME} is {path}, which is not vgpud's", f"remove it, then {again}"
        )
    elif not path.exists():
        yield Finding(check, "fail", f"{engine}'s runtime {NAME} is {path}, which does not exist", again)
    elif not os.access(path, os.X_OK):
        yield Finding(check, "fail", f"{path} cannot be executed", again)
    elif path.resolve().parent.name != vgpud.__version__:
        found = f"{path} is of version {path.resolve().parent.name}, this is {vgpud.__version__}"
        yield Finding(check, "warn", found, again)
    else:
        yield Finding(check, "ok", f"{engine} knows the runtime {NAME}: {path}")
    if path.name == RUNTIME and path not in look.fronts:
        look.fronts.append(path)


def docker_engine(look: Look) -> Iterator[Finding]:
    """dockerd answers; its version; the runtime is registered in the running dockerd, not only in its file."""
    path = dockerd.asked_socket()
    if not path.exists() and not find_program("dockerd"):
        return
    try:
        info = dockerd.ask(path)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno == errno.EACCES:
            yield Finding("docker", "warn", f"you have no permission for {path}", "sudo vgpu doctor")
        else:
            text = f"dockerd does not answer at {path}: {getattr(error, 'strerror', None) or error}"
            yield Finding("docker", "warn", text, "systemctl start docker")
        return
    yield Finding("docker", "ok", f"docker {info.get('ServerVersion', '?')} answers at {path}")
    yield from _docker_runtime(look, info)
    options = " ".join(str(option) for option in info.get("SecurityOptions") or ())
    if "name=apparmor" in options:
        text = (
            "AppArmor is on: docker's own profile works with slices, any other must allow /run/vgpu and /usr/lib/vgpu"
        )
        yield Finding("apparmor", "ok", text)
    if "name=userns" in options:
        yield from _mapped_users(look)


def _mapped_users(look: Look) -> Iterator[Finding]:
    """userns-remap: root of such containers is another user here, who must be able to reach the mounted files."""
    folders = [paths.cache_dir(), *([Path(look.node.runtime_dir)] if look.node else [])]
    closed = [p for folder in folders for p in (folder, *folder.parents) if p.is_dir() and not p.stat().st_mode & 0o001]
    if closed:
        text = f"dockerd maps users (userns-remap), and the mapped users have no permission for {closed[0]}"
        yield Finding("docker-users", "fail", text, f"chmod o+x {closed[0]}")
    else:
        yield Finding(
            "docker-users",
            "ok",
            "dockerd maps users (userns-remap), and the mapped users can reach the daemon's directories",
        )


def _docker_runtime(look: Look, info: dict[str, Any]) -> Iterator[Finding]:
    entry = (info.get("Runtimes") or {}).get(NAME)
    if entry is not None:
        yield from registered_path(look, "docker-runtime", "docker", str(entry.get("path")))
        return
    config = docker.config_file(Site(), None)
    try:
        in_file = docker.parse(config, read_text(config)).get("runtimes", {})
    except SetupError as error:
        yield Finding("docker-runtime", "fail", str(error), f"repair {config}, then sudo vgpu setup docker")
        return
    if NAME in in_file:
        found = f"{config} has the runtime {NAME}, but dockerd has not read it"
        yield Finding("docker-runtime", "fail", found, "systemctl reload docker; journalctl -u docker has its errors")
    else:
        yield Finding("docker-runtime", "warn", f"docker does not know the runtime {NAME}", "sudo vgpu setup docker")


def podman_engine(look: Look) -> Iterator[Finding]:
    """podman's version, and the runtime in its configuration."""
    program = find_program("podman")
    if program is None:
        return
    yield from _version("podman", [program, "--version"])
    only = os.environ.get("CONTAINERS_CONF")
    site = Site()
    files = [Path(only)] if only else list(podman.config_files(site))
    path = ""
    for file in files:
        found = dig(parse(file, read_text(file)), ("engine", "runtimes", NAME))
        path = str(found[0]) if isinstance(found, list) and found else path
    if path:
        yield from registered_path(look, "podman-runtime", "podman", path)
        return
    remedy = "unset CONTAINERS_CONF" if only and podman.drop_in(site).exists() else "sudo vgpu setup podman"
    where = f" in CONTAINERS_CONF={only}" if only else ""
    yield Finding("podman-runtime", "warn", f"podman does not know the runtime {NAME}{where}", remedy)


def _version(engine: str, command: list[str]) -> Iterator[Finding]:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_VERSION_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding(engine, "warn", f"{' '.join(command)}: {error}", f"reinstall {engine}")
        return
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        yield Finding(engine, "warn", f"{' '.join(command)}: {said}", f"reinstall {engine}")
    else:
        yield Finding(engine, "ok", done.stdout.strip())


def containerd_engine(look: Look) -> Iterator[Finding]:
    """For Kubernetes: the runtime is in containerd's file, and containerd was started since then."""
    config = containerd.DEFAULT_CONFIG
    path = containerd.find_runtime_path(config)
    if path is None:
        if find_program("kubelet"):
            text = f"{config} has no runtime {NAME}: Kubernetes does not know it"
            yield Finding("containerd-runtime", "warn", text, "sudo vgpu setup containerd")
        return
    yield from registered_path(look, "containerd-runtime", "containerd", path)
    pid = containerd.running(config)
    if pid is not None and psutil.Process(pid).create_time() < config.stat().st_mtime:
        text = f"containerd (pid {pid}) has not read {config} since it was changed"
        yield Finding("containerd-runtime", "warn", text, "systemctl restart containerd (containers keep running)")
