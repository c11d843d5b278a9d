"""NVIDIA's CDI specification of this host: device nodes, driver files, hooks and variables for a slice's devices.

Written by `nvidia-ctk cdi generate` as YAML or JSON (CDI specification, 0.3 to 1.x: SPEC.md). The files belong to
the administrator; they are read through the runtime's own view of the host, and parsed again only after a change.
"""

from __future__ import annotations

import json
import os
import posixpath
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from vgpud.core.model import gpu_of
from vgpud.oci import edit
from vgpud.oci.edit import Config
from vgpud.oci.request import RequestError
from vgpud.oci.rootfs import Found, Root

KIND = "nvidia.com/gpu"
SPEC_BYTES_MAX = 4 << 20
_CACHED_MAX = 64
_KNOWN = ("env", "deviceNodes", "mounts", "hooks", "additionalGids")
_REMEDY = "run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml` again"
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast where PyYAML has libyaml


@dataclass(slots=True)
class Edits:
    """The specification's edits of a container, in its order."""

    env: list[str] = field(default_factory=list)
    nodes: list[tuple[Config, str]] = field(default_factory=list)  # (node of config.json, access of the cgroup rule)
    mounts: list[Config] = field(default_factory=list)
    hooks: list[tuple[str, Config]] = field(default_factory=list)  # (stage, hook)
    gids: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Spec:
    path: str
    common: Config
    devices: Mapping[str, Config]  # name -> containerEdits


#: by (path, file system, inode, size, time of change): the specification, or its error
_parsed: dict[tuple[str, int, int, int, int], _Spec | str | None] = {}


def edits_for(uuids: Sequence[str], indices: Sequence[int], directories: Sequence[str], host: Root) -> Edits:
    """The edits for these devices: common ones of each file once, then each device's. Raises RequestError."""
    edits = Edits()
    specs = list(_specs(directories, host, edits.warnings))
    chosen = _choose(uuids, indices, specs, directories, edits.warnings)
    for spec in dict.fromkeys(spec.path for spec, _ in chosen):
        _gather(edits, next(s.common for s, _ in chosen if s.path == spec), spec, host)
        for owner, name in chosen:
            if owner.path == spec:
                _gather(edits, owner.devices[name], spec, host)
    return edits


def _specs(directories: Sequence[str], host: Root, warnings: list[str]) -> Iterator[_Spec]:
    """NVIDIA's specifications by precedence: later directories and later names come first."""
    for directory in reversed(directories):
        for name in reversed(host.names(directory)):
            if not name.endswith((".json", ".yaml", ".yml")):
                continue
            path = posixpath.join(directory, name)
            found = host.find(path)
            spec = _load_spec(path, found, host) if found and found.is_file else None
            if isinstance(spec, str):
                warnings.append(f"{path} is left out: {spec}")
            elif spec is not None:
                yield spec


def _load_spec(path: str, file: Found, host: Root) -> _Spec | str | None:
    status = file.status
    key = (path, status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    if key not in _parsed:
        if len(_parsed) >= _CACHED_MAX:
            _parsed.clear()
        _parsed[key] = _parse(path, host.read(path, SPEC_BYTES_MAX + 1) or b"")
    return _parsed[key]


def _parse(path: str, data: bytes) -> _Spec | str | None:
    """The specification; None for another vendor's; the reason as a text if it cannot be used."""
    if len(data) > SPEC_BYTES_MAX:
        return f"larger than {SPEC_BYTES_MAX >> 20} MiB"
    try:
        content = json.loads(data) if path.endswith(".json") else yaml.load(data, _Loader)
        if content.get("kind") != KIND:
            return None
        devices = {str(d["name"]): _mapping(d.get("containerEdits")) for d in content.get("devices") or []}
        return _Spec(path, _mapping(content.get("containerEdits")), devices)
    except (ValueError, RecursionError, yaml.YAMLError, AttributeError, KeyError, TypeError) as error:
        return f"it is not a CDI specification ({' '.join(str(error).split())})"


def _mapping(value: Any) -> Config:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError(f"containerEdits is {value!r}, not an object")
    return value


def _choose(
    uuids: Sequence[str],
    indices: Sequence[int],
    specs: Sequence[_Spec],
    directories: Sequence[str],
    problems: list[str],
) -> list[tuple[_Spec, str]]:
    """(specification, name of the device in it) for each device."""
    chosen = [_find_device(specs, uuid, index) for uuid, index in zip(uuids, indices, strict=True)]
    missing = [uuid for uuid, found in zip(uuids, chosen, strict=True) if found is None]
    if not missing:
        return [found for found in chosen if found is not None]
    whole = next((spec for spec in specs if "all" in spec.devices), None)
    if any(gpu_of(index)[1] for index in indices):
        whole = None  # the nodes do not say how many instances these are
    if whole is not None and len(_gpu_paths(whole.devices["all"]) | _gpu_paths(whole.common)) == len(uuids):
        return [(whole, "all")]
    where = ", ".join(directories) or "no directory"
    text = f"no CDI specification of {KIND} in {where} names {missing[0]}"
    reason = f" ({'; '.join(problems)})" if problems else ""
    raise RequestError(f"{text}{reason}: {_REMEDY}, with --device-name-strategy=uuid if it names only `all`")


def _find_device(specs: Sequence[_Spec], uuid: str, index: int) -> tuple[_Spec, str] | None:
    """By UUID before index, because an index changes its meaning when cards are added or removed."""
    gpu, instance = gpu_of(index)
    for name in (uuid, f"{gpu}:{instance}", f"mig{gpu}:{instance}") if instance else (uuid, gpu, f"gpu{gpu}"):
        for spec in specs:
            if name in spec.devices:
                return spec, name
    return None


def _gpu_paths(edits: Config) -> set[str]:
    nodes = edits.get("deviceNodes") or []
    return {str(n.get("path")) for n in nodes if re.fullmatch(r"/dev/nvidia\d+", str(n.get("path")))}


def _gather(edits: Edits, part: Config, path: str, host: Root) -> None:
    """Adds one containerEdits object. Raises RequestError if it names files that are not on this host."""
    unknown = sorted(str(key) for key in part if key not in _KNOWN)
    if unknown:
        edits.warnings.append(f"{path}: {', '.join(unknown)} left out, because this version does not know it")
    try:
        edits.env += [str(entry) for entry in part.get("env") or []]
        edits.nodes += [_node(node, path, host) for node in part.get("deviceNodes") or []]
        edits.mounts += [_mount(mount, path, host) for mount in part.get("mounts") or []]
        edits.hooks += [_hook(hook) for hook in part.get("hooks") or []]
        edits.gids += [int(gid) for gid in part.get("additionalGids") or []]
    except RequestError:  # a ValueError as well, with a message of its own
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        text = f"{path} has containerEdits that cannot be read ({type(error).__name__}: {error})"
        raise RequestError(f"{text}: {_REMEDY}") from error


def _node(node: Config, path: str, host: Root) -> tuple[Config, str]:
    """A node of config.json; type and numbers default to the host's."""
    kind, major, minor = node.get("type"), node.get("major"), node.get("minor")
    if not kind or major is None or minor is None:
        source = str(node.get("hostPath") or node["path"])
        found = host.find(source)
        if found is None or not (stat.S_ISCHR(found.status.st_mode) or stat.S_ISBLK(found.status.st_mode)):
            raise RequestError(f"{path} names the device {source}, which does not exist: load the driver, or {_REMEDY}")
        device = found.status.st_rdev
        numbers = os.major(device), os.minor(device)
        kind = kind or ("c" if stat.S_ISCHR(found.status.st_mode) else "b")
        major, minor = (given if given is not None else own for given, own in zip((major, minor), numbers, strict=True))
    made: Config = {"path": str(node["path"]), "type": kind, "major": int(major), "minor": int(minor)}
    made |= {key: int(node[key]) for key in ("fileMode", "uid", "gid") if node.get(key) is not None}
    return made, str(node.get("permissions") or "rwm")


def _mount(mount: Config, path: str, host: Root) -> Config:
    source, options = str(mount["hostPath"]), [str(option) for option in mount.get("options") or []]
    kind = str(mount.get("type") or "bind")
    if kind == "bind" and not {"bind", "rbind"} & set(options):
        options.append("rbind")
    if kind == "bind" and host.find(source) is None:
        raise RequestError(f"{path} names {source}, which does not exist (another driver version?): {_REMEDY}")
    return {"destination": str(mount["containerPath"]), "type": kind, "source": source, "options": options}


def _hook(hook: Config) -> tuple[str, Config]:
    made: Config = {"path": str(hook["path"])}
    for key in ("args", "env", "timeout"):
        if hook.get(key):
            made[key] = hook[key]
    return str(hook["hookName"]), made


def apply(edits: Edits, config: Config) -> None:
    """Adds the edits to a configuration; existing entries are replaced, not duplicated."""
    edit.set_environment(config, dict(entry.split("=", 1) for entry in edits.env if "=" in entry))
    user = edit.parts(config, "process", "user")
    for node, access in edits.nodes:
        owner = {key: user[key] for key in ("uid", "gid") if user.get(key) and key not in node}
        edit.add_node(config, node | owner, access)
    for mount in edits.mounts:
        edit.put_mount(config, mount)
    for stage, hook in edits.hooks:
        hooks = edit.objects(config, "hooks", stage, make=True)
        if hook not in hooks:
            hooks.append(hook)
    if edits.gids:
        gids = edit.entries(config, "process", "user", "additionalGids", make=True)
        gids += [gid for gid in dict.fromkeys(edits.gids) if gid not in gids]
