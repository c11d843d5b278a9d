"""vgpud's CDI files: devices that engines know by name, for `podman run --device vgpu.dev/gpu=0.5` alone.

One file has the usual sizes, and each one-time device (`vgpu alloc`) has its own, which is removed with its slice. The
edits are the same for all: libraries, socket directory, device nodes and hooks; the hook `started` then asks the daemon
for the slice, because a CDI file cannot count. collect() may wait for disks and runs in a thread; the rest is quick.

Format: CDI specification 0.5.0, the lowest version that has names beginning with digits; a consumer refuses fields that
it does not know, and a file without devices. Files are written beside and renamed, because readers watch the directory.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpud.core.model import Device
from vgpud.core.units import MILLI_PER_DEVICE, format_gpus
from vgpud.libraries import tree as library_tree
from vgpud.oci import edit, nvidia_cdi, search
from vgpud.oci.rootfs import Root

VERSION = "0.5.0"
KIND = "vgpu.dev/gpu"
FILE = "vgpu.dev-gpu.json"
ONE_TIME = "vgpu.dev-gpu_{}.json"
#: parts of a device that have a name, in milli-GPU; whole numbers of devices follow
PARTS_MILLI = (100, 200, 250, 300, 400, 500, 600, 700, 750, 800, 900)

Edits = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Facts:
    """The inputs of the files."""

    cache: Path
    driver: Path
    nvml: Path | None
    sim_dir: str  # "" on real devices
    attach_dir: Path  # with the socket that knows containers by their cgroup
    front: str
    devices: tuple[Device, ...]
    nvidia_dirs: tuple[str, ...]
    gpus_milli_max: int
    mode: str  # of programs while no daemon answers


@dataclass(frozen=True, slots=True)
class Collected:
    """The edits of every device, the sizes, and the nodes of each. `warnings`: missing parts."""

    edits: Edits
    sizes: tuple[str, ...]
    nodes: dict[str, frozenset[str]] = field(default_factory=dict)  # device UUID -> paths that not all have
    uuids_without_size: frozenset[str] = frozenset()  # UUIDs of devices that no request by size gets
    warnings: tuple[str, ...] = ()


def sizes(device_count: int, gpus_milli_max: int) -> tuple[str, ...]:
    """The names of the sizes: parts of one device and whole devices, as far as a container may ask for them."""
    whole = (MILLI_PER_DEVICE * count for count in range(1, device_count + 1))
    return tuple(format_gpus(milli) for milli in (*PARTS_MILLI, *whole) if milli <= gpus_milli_max)


def collect(facts: Facts) -> Collected:
    """Collects everything for the files. Raises VgpudError, RequestError, OSError with one line."""
    tree = library_tree.library_tree(facts.cache, facts.driver, facts.nvml, bool(facts.sim_dir))
    found = nvidia_cdi.Edits()
    nodes: dict[str, frozenset[str]] = {}
    if not facts.sim_dir:
        with Root.at(_host_root()) as host:
            given = [(d.uuid, d.index) for d in facts.devices]
            found = nvidia_cdi.edits_for([u for u, _ in given], [i for _, i in given], facts.nvidia_dirs, host)
            nodes = _nodes(given, facts.nvidia_dirs, host)
    edits = _edits(found, tree, facts)
    lost = (f"additional groups {found.gids} are left out: CDI {VERSION} has none",) if found.gids else ()
    gpus = sum(not device.profile for device in facts.devices)  # one MIG instance at a time
    made = sizes(max(1, gpus), facts.gpus_milli_max)
    named = frozenset(
        device.uuid for device in facts.devices if device.profile and gpus
    )  # as core/slices/admission.py places
    return Collected(edits, made, nodes, named, (*found.warnings, *lost))


def _host_root() -> str:
    """The host's own root, also from a container with the host's pids; the daemon's own if that cannot be opened."""
    host = "/proc/1/root"
    return host if os.access(host, os.X_OK) else "/"


def _nodes(devices: list[tuple[str, int]], directories: Iterable[str], host: Root) -> dict[str, frozenset[str]]:
    """The nodes of each device that not all devices have. MIG instances have their GPU's in common, and capabilities of
    their own."""
    places = list(directories)
    paths = {
        uuid: frozenset(str(node["path"]) for node, _ in nvidia_cdi.edits_for([uuid], [index], places, host).nodes)
        for uuid, index in devices
    }
    common = frozenset.intersection(*paths.values()) if paths else frozenset()
    return {uuid: own - common for uuid, own in paths.items()}


def _edits(nvidia_edits: nvidia_cdi.Edits, tree: Path, facts: Facts) -> Edits:
    mounts = [_cover_with_shim(_cdi_mount(mount), tree) for mount in nvidia_edits.mounts]
    covered = {mount["containerPath"] for mount in mounts}
    home = search.default_directories(platform.machine())[0]
    for name, library in (("libcuda.so.1", library_tree.SHIM), ("libnvidia-ml.so.1", library_tree.ML_SHIM)):
        there = any(os.path.basename(path).startswith(name.removesuffix(".1")) for path in covered)
        if not there and (tree / library).is_file():
            mounts.append(_bind(tree / library, f"{home}/{name}"))
    mounts.append(_bind(tree, library_tree.MOUNTED_AT))
    mounts.append(_bind(facts.attach_dir, edit.ATTACH_AT, "noexec"))
    if facts.sim_dir:
        mounts.append(_bind(Path(facts.sim_dir), edit.SIM_AT, "noexec"))
    mounts.append(_bind(tree / library_tree.PRELOAD, edit.PRELOAD_AT))
    started, stopped = (
        {"path": facts.front, "args": [os.path.basename(facts.front), edit.HOOK_WORD, word]}
        for word in ("started", "stopped")
    )
    hooks = [{"hookName": "createRuntime", **started}, *(_cdi_hook(stage, hook) for stage, hook in nvidia_edits.hooks)]
    edits: Edits = {"mounts": mounts, "hooks": [*hooks, {"hookName": "poststop", **stopped}]}
    if nvidia_edits.nodes:
        edits["deviceNodes"] = [_cdi_node(node, access) for node, access in nvidia_edits.nodes]
    env = [entry for entry in nvidia_edits.env if not entry.startswith("NVIDIA_VISIBLE_DEVICES=")]
    return edits | {"env": [*env, f"VGPU_MODE={facts.mode}"]}


def _bind(source: Path, destination: str, *extra_options: str) -> Edits:
    options = ["bind", "ro", "nosuid", "nodev", "rprivate", *extra_options]
    return {"hostPath": str(source), "containerPath": destination, "options": options}


def _cdi_mount(mount: Edits) -> Edits:
    made: Edits = {"hostPath": mount["source"], "containerPath": mount["destination"]}
    return made | {name: mount[name] for name in ("options", "type") if mount.get(name)}


def _cover_with_shim(mount: Edits, tree: Path) -> Edits:
    """The shim in the place of a driver file of NVIDIA's specification; other files unchanged."""
    library = search.library_for(mount["containerPath"])
    return _bind(tree / library, mount["containerPath"]) if library and (tree / library).is_file() else mount


def _cdi_node(node: Edits, access: str) -> Edits:
    names = ("path", "type", "major", "minor", "fileMode", "uid", "gid")
    return {name: node[name] for name in names if name in node} | {"permissions": access}


def _cdi_hook(stage: str, hook: Edits) -> Edits:
    names = ("path", "args", "env", "timeout")
    return {"hookName": stage} | {name: hook[name] for name in names if name in hook}


def _select_device_nodes(uuids: Iterable[str], inventory: Collected) -> Edits:
    """The edits without the nodes that only other devices have."""
    own = {path for uuid in uuids for path in inventory.nodes.get(uuid, ())}
    foreign = {path for paths in inventory.nodes.values() for path in paths} - own
    edits = dict(inventory.edits)
    if foreign:
        edits["deviceNodes"] = [node for node in edits["deviceNodes"] if node["path"] not in foreign]
    return edits


class Cdi:
    """The files in one directory. Call set() with collect()'s result, open() and close() for one-time devices."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._collected: Collected | None = None
        self._why = "the devices have not been scanned yet"
        self._one_time: dict[str, tuple[str, ...]] = {}  # slice -> its devices' UUIDs

    def set(self, inventory: Collected | None, why: str = "") -> bool:
        """Writes changed files and removes obsolete ones; returns whether anything changed. Raises OSError.

        None: the files cannot be made (`why`); they are removed, so that no stale file promises anything.
        """
        self._collected, self._why = inventory, why
        wanted = {ONE_TIME.format(name): self._one(name) for name in self._one_time} if inventory else {}
        if inventory and inventory.sizes:
            wanted[FILE] = self._static(inventory)
        return self._sync(wanted)

    def _sync(self, files: dict[str, Edits]) -> bool:
        self.directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        ours = {FILE, *(path.name for path in self.directory.glob(ONE_TIME.format("*")))}
        changed = [self._remove(name) for name in ours - files.keys()]
        changed += [self._write(name, content) for name, content in sorted(files.items())]
        return any(changed)

    def open(self, slice_name: str, uuids: Collection[str]) -> None:
        """Writes the one-time device of a slice. Before the first set() it is kept for then. Raises OSError."""
        self._one_time[slice_name] = tuple(uuids)
        if self._collected is not None:
            self._write(ONE_TIME.format(slice_name), self._one(slice_name))

    @property
    def why_not(self) -> str:
        """Why no file can be written, or ""."""
        return "" if self._collected is not None else self._why

    def is_written(self, slice_name: str) -> bool:
        """Whether the file of a slice's device is there."""
        return (self.directory / ONE_TIME.format(slice_name)).is_file()

    def close(self, slice_name: str) -> None:
        """Removes the one-time device of a slice. Raises OSError."""
        if self._one_time.pop(slice_name, None) is not None:
            self._remove(ONE_TIME.format(slice_name))

    def _static(self, inventory: Collected) -> Edits:
        """The devices by size: a container's slice may be on each of these."""
        edits = _select_device_nodes(
            [uuid for uuid in inventory.nodes if uuid not in inventory.uuids_without_size], inventory
        )
        return self._file([(size, f"VGPU={size}") for size in inventory.sizes], edits)

    def _one(self, slice_name: str) -> Edits:
        """The device of one slice: of the devices' nodes only those that its own have."""
        collected = self._collected
        assert collected is not None
        edits = _select_device_nodes(self._one_time[slice_name], collected)
        return self._file([(slice_name, f"VGPU_SLICE={slice_name}")], edits)

    @staticmethod
    def _file(devices: list[tuple[str, str]], edits: Edits) -> Edits:
        listed = [{"name": name, "containerEdits": {"env": [variable]}} for name, variable in devices]
        return {"cdiVersion": VERSION, "kind": KIND, "devices": listed, "containerEdits": edits}

    def _write(self, name: str, content: Edits) -> bool:
        path = self.directory / name
        text = json.dumps(content, indent=1) + "\n"
        try:
            if path.read_text() == text:
                return False
        except OSError:
            pass  # missing or unreadable: it is written again
        beside = self.directory / f".{name}.new"
        beside.write_text(text)
        beside.chmod(0o644)
        beside.rename(path)
        return True

    def _remove(self, name: str) -> bool:
        try:
            (self.directory / name).unlink()
        except FileNotFoundError:
            return False
        return True
