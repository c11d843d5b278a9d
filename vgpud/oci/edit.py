"""Changes to a config.json (OCI runtime specification), held as the dictionary that it is read into. Pure.

Fields that are unknown here stay as they are; those that are missing are made where something has to go into them. What
an earlier preparation or our CDI device has put there is taken out first, so that preparing twice changes nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from vgpud.oci.request import RequestError

Config = dict[str, Any]

#: where things lie in a container
ATTACH_AT = "/run/vgpu"
SIM_AT = "/run/vgpu-sim"
PRELOAD_AT = "/etc/ld.so.preload"
#: the word by which a hook of config.json is known as ours: vgpu-runtime's own mode
HOOK_WORD = "vgpu-hook"
_HOOK_SECONDS = 10
_STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")

_NVIDIA_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit", "oci-nvidia-hook", "nvidia-container-cli")
_GPU_NODE = re.compile(r"/dev/nvidia\d+")
_GPU_MAJOR = 195  # nvidia-frontend: nvidia0..254, nvidia-modeset, nvidiactl
_GPU_MINORS = range(254)


def parts(config: Config, *path: str) -> Config:
    """The object at a path of the configuration, made where it is missing. Raises RequestError for another type."""
    here = config
    for name in path:
        if here.get(name) is None:
            here[name] = {}
        here = here[name]
        if not isinstance(here, dict):
            raise RequestError(
                f"config.json: {'.'.join(path)} is no object: the engine wrote something else than OCI 1.x"
            )
    return here


def entries(config: Config, *path: str) -> list[Any]:
    """The array at a path of the configuration, made where it is missing. Raises RequestError for another type."""
    holder = parts(config, *path[:-1])
    if holder.get(path[-1]) is None:
        holder[path[-1]] = []
    found = holder[path[-1]]
    if not isinstance(found, list):
        raise RequestError(f"config.json: {'.'.join(path)} is no array: the engine wrote something else than OCI 1.x")
    return found


# ---- environment ----


def environment(config: Config) -> dict[str, str]:
    """The container's variables; the last value of one that is there twice."""
    pairs = (str(entry).partition("=") for entry in entries(config, "process", "env"))
    return {name: value for name, _, value in pairs}


def set_environment(config: Config, values: Mapping[str, str]) -> None:
    """Sets variables, each once and in its place."""
    env = entries(config, "process", "env")
    for name, value in values.items():
        places = [i for i, entry in enumerate(env) if str(entry).partition("=")[0] == name]
        for i in reversed(places[1:]):
            del env[i]
        if places:
            env[places[0]] = f"{name}={value}"
        else:
            env.append(f"{name}={value}")


# ---- mounts ----


def bind(source: str, destination: str, *, executable: bool = True) -> Config:
    """A read-only bind mount of ours."""
    options = ["bind", "ro", "nosuid", "nodev", "rprivate"]
    return {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": options if executable else [*options, "noexec"],
    }


def remove_mounts(config: Config, destinations: Iterable[str], below: Iterable[str]) -> None:
    """Takes out mounts on these destinations, and mounts of what lies in one of these directories of the host."""
    wanted, folders = set(destinations), tuple(f"{folder}/" for folder in below)
    mounts = entries(config, "mounts")
    mounts[:] = [m for m in mounts if not _is_mount_of(m, wanted, folders)]


def _is_mount_of(mount: Config, destinations: set[str], folders: tuple[str, ...]) -> bool:
    return posixpath.normpath(str(mount.get("destination"))) in destinations or str(mount.get("source")).startswith(
        folders
    )


# ---- hooks ----


def add_hooks(config: Config, front: str) -> None:
    """Our hooks: `started` before all others of its stage, `stopped` after them."""
    started, stopped = (
        {"path": front, "args": [posixpath.basename(front), HOOK_WORD, word], "timeout": _HOOK_SECONDS}
        for word in ("started", "stopped")
    )
    entries(config, "hooks", "createRuntime").insert(0, started)
    entries(config, "hooks", "poststop").append(stopped)


def _hooks(config: Config) -> Iterator[tuple[str, list[Any]]]:
    hooks = config.get("hooks")
    if isinstance(hooks, dict):
        yield from ((stage, hooks[stage]) for stage in _STAGES if isinstance(hooks.get(stage), list))


def remove_our_hooks(config: Config) -> None:
    """Takes out hooks that call vgpu-runtime."""
    for stage, hooks in _hooks(config):
        hooks[:] = [hook for hook in hooks if HOOK_WORD not in (hook.get("args") or [])[1:2]]
        if not hooks:
            del config["hooks"][stage]


def _is_nvidia_hook(hook: Config) -> bool:
    """NVIDIA's own hook, which brings whole GPUs and mounts the driver after us; not its helpers of CDI files."""
    names = [posixpath.basename(str(name)) for name in [hook.get("path"), *(hook.get("args") or [])[:1]]]
    return any(name == known or name.startswith(f"{known}.") for name in names for known in _NVIDIA_HOOKS)


def nvidia_hooks(config: Config) -> list[str]:
    """The paths of NVIDIA's own hooks."""
    return [str(hook.get("path")) for _, hooks in _hooks(config) for hook in hooks if _is_nvidia_hook(hook)]


def remove_nvidia_hooks(config: Config) -> list[str]:
    """Takes NVIDIA's own hooks out; their paths."""
    gone = nvidia_hooks(config)
    for stage, hooks in _hooks(config):
        hooks[:] = [hook for hook in hooks if not _is_nvidia_hook(hook)]
        if not hooks:
            del config["hooks"][stage]
    return gone


# ---- device nodes ----


def gpu_nodes(config: Config) -> list[str]:
    """The GPUs' device nodes that the configuration has, as nodes or as mounts."""
    linux = config.get("linux")
    nodes = (linux.get("devices") or []) if isinstance(linux, dict) else []
    places = [str(n.get("path")) for n in nodes] + [str(m.get("destination")) for m in config.get("mounts") or []]
    return [place for place in places if _GPU_NODE.fullmatch(place)]


def is_privileged(config: Config) -> bool:
    """Every device is allowed: such a container has all nodes of the machine without having asked for one."""
    linux = config.get("linux")
    resources = linux.get("resources") if isinstance(linux, dict) else None
    rules = (resources.get("devices") or []) if isinstance(resources, dict) else []
    return bool(rules) and _allows_everything(rules[-1])


def _allows_everything(rule: Config) -> bool:
    anything = all(rule.get(key) in (None, -1) for key in ("major", "minor")) and rule.get("type") in (None, "", "a")
    return bool(rule.get("allow")) and anything


def remove_gpu_nodes(config: Config, keep: Sequence[str]) -> list[str]:
    """Takes out GPUs' device nodes other than `keep`, with the rules that allow them; the paths that are gone."""
    gone = sorted({path for path in gpu_nodes(config) if path not in keep})
    if gone:
        mounts = entries(config, "mounts")
        mounts[:] = [m for m in mounts if str(m.get("destination")) not in gone]
        nodes = entries(config, "linux", "devices")
        numbers = {(n.get("major"), n.get("minor")) for n in nodes if n.get("path") in gone}
        nodes[:] = [n for n in nodes if n.get("path") not in gone]
        rules = entries(config, "linux", "resources", "devices")
        rules[:] = [r for r in rules if not (r.get("allow") and (r.get("major"), r.get("minor")) in numbers)]
    return gone


def add_node(config: Config, node: Config, access: str) -> None:
    """Adds a device node and the cgroup rule for it, in the place of one with the same path."""
    nodes = entries(config, "linux", "devices")
    nodes[:] = [n for n in nodes if n.get("path") != node["path"]]
    nodes.append(node)
    rules = entries(config, "linux", "resources", "devices")
    rule = {"allow": True, "type": node["type"], "major": node["major"], "minor": node["minor"], "access": access}
    if rule not in rules:
        rules.append(rule)
