"""Changes to a config.json (OCI runtime specification), held as the dictionary that it is read into. Pure.

Unknown fields stay as they are; missing ones are created where an entry has to be added. Entries of an earlier
preparation or of vgpud's CDI device are removed first, so preparing twice changes nothing.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from vgpud.oci.request import RequestError

Config = dict[str, Any]
_STRANGE = ": the engine's config.json is not OCI 1.x"

#: locations in a container
ATTACH_AT = "/run/vgpu"
SIM_AT = "/run/vgpu-sim"
PRELOAD_AT = "/etc/ld.so.preload"
#: the argument that identifies vgpud's hooks in config.json: vgpu-runtime's mode
HOOK_WORD = "vgpu-hook"
#: at its start a container waits for a vgpud that restarts, longer than any other hook may take (shim/runtime/hook.c)
_STARTED_S, _STOPPED_S = 60, 10
_STAGES = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")

_NVIDIA_HOOKS = ("nvidia-container-runtime-hook", "nvidia-container-toolkit", "oci-nvidia-hook", "nvidia-container-cli")
_GPU_NODE = re.compile(r"/dev/nvidia(?:\d+|-caps/nvidia-cap\d+)")  # of GPUs, and of capabilities (MIG instances)
_CAPABILITY = "/dev/nvidia-caps/"
_GPU_MAJOR = 195  # nvidia0 and so on (Documentation/admin-guide/devices.txt)


def parts(config: Config, *path: str, make: bool = False) -> Config:
    """The object at a path of the configuration; an empty one if it is missing, which is inserted if `make`.

    Raises RequestError for another type.
    """
    here = config
    for name in path:
        below = here.get(name)
        if below is None:
            below = {}
            if make:
                here[name] = below
        if not isinstance(below, dict):
            raise RequestError(f"config.json: {'.'.join(path)} is not an object{_STRANGE}")
        here = below
    return here


def entries(config: Config, *path: str, make: bool = False) -> list[Any]:
    """The array at a path of the configuration; as parts()."""
    holder = parts(config, *path[:-1], make=make)
    found = holder.get(path[-1])
    if found is None:
        found = []
        if make:
            holder[path[-1]] = found
    if not isinstance(found, list):
        raise RequestError(f"config.json: {'.'.join(path)} is not an array{_STRANGE}")
    return found


def objects(config: Config, *path: str, make: bool = False) -> list[Config]:
    """The array of objects at a path; as parts()."""
    found = entries(config, *path, make=make)
    if not all(isinstance(entry, dict) for entry in found):
        raise RequestError(f"config.json: {'.'.join(path)} has an entry that is not an object{_STRANGE}")
    return found


# ---- environment ----


def environment(config: Config) -> dict[str, str]:
    """The container's variables; for duplicates the last value."""
    pairs = (str(entry).partition("=") for entry in entries(config, "process", "env"))
    return {name: value for name, _, value in pairs}


def set_environment(config: Config, values: Mapping[str, str]) -> None:
    """Sets variables, each once and in its place."""
    env = entries(config, "process", "env", make=True)
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
    """A read-only bind mount of vgpud's."""
    options = ["bind", "ro", "nosuid", "nodev", "rprivate"]
    return {
        "destination": destination,
        "type": "bind",
        "source": source,
        "options": options if executable else [*options, "noexec"],
    }


def put_mount(config: Config, mount: Config) -> None:
    """Adds a mount, replacing one with the same destination."""
    mounts = objects(config, "mounts", make=True)
    place = posixpath.normpath(str(mount["destination"]))
    same = [i for i, m in enumerate(mounts) if posixpath.normpath(str(m.get("destination"))) == place]
    if same:
        mounts[same[0]] = mount
    else:
        mounts.append(mount)
    for i in reversed(same[1:]):
        del mounts[i]


def remove_mounts(config: Config, destinations: Iterable[str], source_folders: Iterable[str]) -> None:
    """Removes mounts on these destinations, and mounts of files in one of these directories of the host."""
    wanted, folders = set(destinations), tuple(f"{folder}/" for folder in source_folders)
    mounts = objects(config, "mounts")
    mounts[:] = [m for m in mounts if not _is_mount_of(m, wanted, folders)]


def _is_mount_of(mount: Config, destinations: set[str], folders: tuple[str, ...]) -> bool:
    return posixpath.normpath(str(mount.get("destination"))) in destinations or str(mount.get("source")).startswith(
        folders
    )


# ---- hooks ----


def add_hooks(config: Config, front: str) -> None:
    """Adds vgpud's hooks: `started` before all others of its stage, `stopped` after them."""
    started, stopped = (
        {"path": front, "args": [posixpath.basename(front), HOOK_WORD, word], "timeout": seconds}
        for word, seconds in (("started", _STARTED_S), ("stopped", _STOPPED_S))
    )
    objects(config, "hooks", "createRuntime", make=True).insert(0, started)
    objects(config, "hooks", "poststop", make=True).append(stopped)


def _hooks(config: Config) -> Iterator[list[Config]]:
    """The hooks of each stage; a stage that loses its last hook stays as an empty array."""
    yield from (objects(config, "hooks", stage) for stage in _STAGES)


def remove_our_hooks(config: Config) -> None:
    """Removes hooks that call vgpu-runtime."""
    for hooks in _hooks(config):
        hooks[:] = [hook for hook in hooks if HOOK_WORD not in entries(hook, "args")[1:2]]


def cdi_files(config: Config) -> int:
    """From how many of vgpud's CDI files the container has devices: each adds its hooks once."""
    created = objects(config, "hooks", "createRuntime")
    return sum(HOOK_WORD in entries(hook, "args")[1:2] for hook in created)


def _is_nvidia_hook(hook: Config) -> bool:
    """Whether it is NVIDIA's own hook, which adds whole GPUs and mounts the driver over the shim; no CDI helper."""
    names = [posixpath.basename(str(name)) for name in [hook.get("path"), *entries(hook, "args")[:1]]]
    return any(name == known or name.startswith(f"{known}.") for name in names for known in _NVIDIA_HOOKS)


def made_links(config: Config) -> set[str]:
    """The symlinks that hooks of NVIDIA's CDI files will create (`create-symlinks --link TARGET::LINK`)."""
    words = [str(arg) for hooks in _hooks(config) for hook in hooks for arg in entries(hook, "args")]
    return {posixpath.normpath(word.split("::", 1)[1]) for word in words if "::" in word}


def nvidia_hooks(config: Config) -> list[str]:
    """The paths of NVIDIA's own hooks."""
    return [str(hook.get("path")) for hooks in _hooks(config) for hook in hooks if _is_nvidia_hook(hook)]


def remove_nvidia_hooks(config: Config) -> list[str]:
    """Removes NVIDIA's own hooks; returns their paths."""
    gone = nvidia_hooks(config)
    for hooks in _hooks(config):
        hooks[:] = [hook for hook in hooks if not _is_nvidia_hook(hook)]
    return gone


# ---- device nodes ----


def gpu_nodes(config: Config) -> list[str]:
    """The GPUs' device nodes in the configuration, as nodes or as mounts."""
    places = [str(node.get("path")) for node in objects(config, "linux", "devices")]
    places += [posixpath.normpath(str(mount.get("destination"))) for mount in objects(config, "mounts")]
    return [place for place in places if _GPU_NODE.fullmatch(place)]


def is_privileged(config: Config) -> bool:
    """Whether every device is allowed: such a container has all nodes of the machine without a request."""
    rules = objects(config, "linux", "resources", "devices")
    return bool(rules) and _allows_everything(rules[-1])


def _allows_everything(rule: Config) -> bool:
    anything = all(rule.get(key) in (None, -1) for key in ("major", "minor")) and rule.get("type") in (None, "", "a")
    return bool(rule.get("allow")) and anything


def remove_gpu_nodes(config: Config, own: Collection[Config]) -> list[str]:
    """Removes GPUs' device nodes other than `own`, and rules that allow them, all GPUs or all capabilities; returns
    the removed."""
    keep = {str(node["path"]) for node in own}
    gone = sorted({path for path in gpu_nodes(config) if path not in keep})
    mounts = objects(config, "mounts")
    mounts[:] = [m for m in mounts if posixpath.normpath(str(m.get("destination"))) not in gone]
    nodes = objects(config, "linux", "devices")
    numbers = [(n.get("major"), n.get("minor")) for n in nodes if n.get("path") in gone]
    # capabilities have whatever major the kernel gave; a container with a MIG instance would reach its GPU's others by
    # them
    majors = [n.get("major") for n in (*own, *nodes) if str(n.get("path")).startswith(_CAPABILITY)]
    capabilities = {major for major in majors if isinstance(major, int)}
    every = {_GPU_MAJOR: "GPUs"} | dict.fromkeys(capabilities, "capabilities (MIG)")
    numbers += [(major, minor) for major in every for minor in (None, -1)]
    nodes[:] = [n for n in nodes if n.get("path") not in gone]
    rules = objects(config, "linux", "resources", "devices")
    fitting = [r for r in rules if not (r.get("allow") and (r.get("major"), r.get("minor")) in numbers)]
    wide = [r.get("major") for r in rules if r not in fitting and r.get("minor") in (None, -1)]
    gone += [f"the cgroup rule for all {what} (c {major}:*)" for major, what in every.items() if major in wide]
    rules[:] = fitting
    return gone


def add_node(config: Config, node: Config, access: str) -> None:
    """Adds a device node and its cgroup rule, replacing one with the same path."""
    nodes = objects(config, "linux", "devices", make=True)
    nodes[:] = [n for n in nodes if n.get("path") != node["path"]]
    nodes.append(node)
    rules = objects(config, "linux", "resources", "devices", make=True)
    rule = {"allow": True, "type": node["type"], "major": node["major"], "minor": node["minor"], "access": access}
    if rule not in rules:
        rules.append(rule)
