"""Turns the config.json of a container with a request into the one with which it gets its slice (docs/docker.md).

Reads the container's root and the host's files through the runtime's own view of them (/proc/<pid>/root) and writes
only the container's own directory: the merged ld.so.preload, and which mount points will have to be removed again.
Blocking: the daemon calls it in a thread.
"""

from __future__ import annotations

import json
import os
import platform
import posixpath
import stat
from dataclasses import dataclass
from pathlib import Path

from vgpud.libraries import tree as library_tree
from vgpud.libraries.driver import DRIVER_SONAME, NVML_SONAME
from vgpud.oci import edit, mount_points, nvidia_cdi, search
from vgpud.oci.edit import Config
from vgpud.oci.request import RequestError
from vgpud.oci.rootfs import Root
from vgpud.oci.search import DriverFile
from vgpud.oci.view import View

PRELOAD_BYTES_MAX = 64 << 10
WARNINGS_MAX = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """The daemon's decisions for a container."""

    attach_dir: Path  # host directory for /run/vgpu
    tree: Path  # host directory for /usr/lib/vgpu (libraries/tree.py)
    scratch: Path  # host directory for this container's own files
    uuids: tuple[str, ...]  # the slice's devices
    indices: tuple[int, ...]  # their NVML indices
    sim_dir: str  # "" on real devices
    cdi_dirs: tuple[str, ...]  # NVIDIA's specifications, later ones override
    front: str  # host path of vgpu-runtime, for the hooks
    mode: str  # of its programs while no daemon answers


@dataclass(frozen=True, slots=True)
class Prepared:
    """The new config.json, and warnings for the administrator."""

    config: bytes
    warnings: tuple[str, ...]


def _parse(raw_config: bytes) -> Config:
    try:
        config = json.loads(raw_config)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"config.json cannot be read: {error}; it is not OCI 1.x") from error
    if not isinstance(config, dict):
        raise RequestError("config.json is not an object: it is not OCI 1.x")
    return config


def _text(config: Config) -> bytes:
    try:
        return json.dumps(config, separators=(",", ":"), allow_nan=False).encode()
    except (ValueError, RecursionError) as error:  # a number beyond JSON's, such as 1e999
        raise RequestError(f"config.json cannot be written again: {error}") from error


def look(raw_config: bytes) -> tuple[list[str], dict[str, str], str, bool]:
    """(environment, annotations, cgroupsPath, whether whole GPUs are requested from NVIDIA). Raises RequestError.

    Requests to NVIDIA are its own hook (`docker --gpus`), or device nodes of GPUs; a privileged container has the nodes
    of every device of the machine, which is no request.
    """
    config = _parse(raw_config)
    if edit.cdi_files(config) > 1:  # the runtime has kept one VGPU_SLICE of several
        text = "the container has several vgpu devices (ResourceClaims), and it can have one slice:"
        raise RequestError(f"{text} name one, which may have several GPUs")
    env = [str(entry) for entry in edit.entries(config, "process", "env")]
    annotations = {str(name): str(value or "") for name, value in edit.parts(config, "annotations").items()}
    cgroup = str(edit.parts(config, "linux").get("cgroupsPath") or "")
    asks = bool(edit.nvidia_hooks(config) or (edit.gpu_nodes(config) and not edit.is_privileged(config)))
    return env, annotations, cgroup, asks


def prepare(raw_config: bytes, bundle: str, peer_root: Path, plan: Plan) -> Prepared:
    """The configuration that gives the container its slice.

    bundle: as the runtime names it; peer_root: /proc/<runtime's pid>/root, the root for all paths of the
    configuration. Preparing a prepared configuration changes nothing. Raises RequestError (one line for the user)
    or OSError.
    """
    config = _parse(raw_config)
    machine = platform.machine()
    warnings: list[str] = []
    _undo(config, plan)
    _refuse_preload(config)
    for hook in edit.remove_nvidia_hooks(config):
        warnings.append(f"removed the hook {hook}, which adds whole GPUs: leave out --gpus and --runtime=nvidia")
    with Root.at(peer_root) as host:
        edits = (
            nvidia_cdi.Edits() if plan.sim_dir else nvidia_cdi.edits_for(plan.uuids, plan.indices, plan.cdi_dirs, host)
        )
        gone = edit.remove_gpu_nodes(config, [node for node, _ in edits.nodes])
        if gone:
            warnings.append(f"removed {', '.join(gone)}: the container gets the devices of its slice")
        nvidia_cdi.apply(edits, config)
        warnings += edits.warnings
        root_path = posixpath.join(bundle, _root_path(config))
        with _root(host, root_path) as root, View(root, host, edit.objects(config, "mounts")) as view:
            mounts = _fixed_mounts(view, plan)
            mounts += _driver_mounts(config, view, plan, machine, warnings)
            mounts += _preload(view, plan, warnings)
    edit.objects(config, "mounts", make=True).extend(mounts)
    edit.set_environment(config, {"NVIDIA_VISIBLE_DEVICES": ",".join(plan.uuids), "VGPU_MODE": plan.mode})
    edit.add_hooks(config, plan.front)
    mount_points.note(config, root_path, peer_root, plan.scratch)
    return Prepared(_text(config), _limit_warnings(warnings))


def _limit_warnings(warnings: list[str]) -> tuple[str, ...]:
    """Each warning once, and only the first few: an image can cause thousands."""
    texts = list(dict.fromkeys(warnings))
    more = (f"and {len(texts) - WARNINGS_MAX} more like these",) if len(texts) > WARNINGS_MAX else ()
    return (*texts[:WARNINGS_MAX], *more)


def _undo(config: Config, plan: Plan) -> None:
    """Removes entries of an earlier preparation, or of vgpud's CDI device."""
    edit.remove_our_hooks(config)
    fixed = (edit.ATTACH_AT, library_tree.MOUNTED_AT, edit.SIM_AT)
    edit.remove_mounts(config, fixed, source_folders=(str(plan.tree.parent), str(plan.scratch)))


def _refuse_preload(config: Config) -> None:
    """The real driver is in the container for the shim only; preloaded it would precede the shim."""
    for file in search.list_preloads(edit.environment(config)):
        if posixpath.normpath(file).startswith(f"{library_tree.MOUNTED_AT}/real/"):
            raise RequestError(f"LD_PRELOAD={file} would load the driver outside the slice: remove it")


def _root_path(config: Config) -> str:
    path = edit.parts(config, "root").get("path")
    if not isinstance(path, str) or not path:
        raise RequestError("config.json has no root.path: it is not OCI 1.x")
    return path


def _root(host: Root, path: str) -> Root:
    try:
        return host.open_subtree(path)
    except OSError as error:
        raise RequestError(
            f"the container's root {path} cannot be opened ({error.strerror}): is it mounted?"
        ) from error


def _fixed_mounts(view: View, plan: Plan) -> list[Config]:
    """The slice's directory, the library tree, the simulated device's directory. Raises RequestError."""
    mounts = [edit.bind(str(plan.attach_dir), edit.ATTACH_AT, executable=False)]
    mounts.append(edit.bind(str(plan.tree), library_tree.MOUNTED_AT))
    if plan.sim_dir:
        mounts.append(edit.bind(plan.sim_dir, edit.SIM_AT, executable=False))
    for mount in mounts:
        spot = view.look(mount["destination"])
        if spot.shared:
            text = f"{spot.path} is in a volume with shared propagation, where the mount would be visible outside"
            raise RequestError(f"{text}: mount that volume private or elsewhere")
        if spot.file is None and spot.root is not None and not spot.creatable:
            text = f"the container's root is a read-only file system and has no directory {spot.path} to mount on"
            raise RequestError(f"{text}: create the directory in the image, or give the root a writable layer")
    return mounts


def _driver_mounts(config: Config, view: View, plan: Plan, machine: str, warnings: list[str]) -> list[Config]:
    """Mounts the shims over every driver file of the container, or where programs look for one if there is none."""
    home = search.loader_directory(view, machine)
    files = {f.path: f for f in search.driver_files(view, edit.environment(config), machine, warnings)}
    for mount in edit.objects(config, "mounts"):
        spot = view.look(str(mount.get("destination") or "/"))
        # a driver by its name in the container, or on the host
        names = str(mount.get("destination")), spot.path, spot.inner
        library = next(filter(None, map(search.library_for, names)), "")
        if library and search.mountable(spot, machine, warnings):
            files[spot.path] = DriverFile(spot.path, library)
    for name in (DRIVER_SONAME, "libcuda.so", NVML_SONAME):
        place = view.look(posixpath.join(home, name))
        if place.file is None and place.creatable:
            files[place.path] = DriverFile(place.path, search.library_for(name))
    for link in edit.made_links(config):  # a hook will create a link there, which a mount would prevent
        directory, name = posixpath.split(link)
        files.pop(posixpath.join(view.look(directory).path, name), None)
    there = {library for library in search.DRIVERS.values() if (plan.tree / library).is_file()}
    wanted = sorted((f for f in files.values() if f.library in there), key=lambda f: f.path)
    return [edit.bind(str(plan.tree / f.library), f.path) for f in wanted]


def _preload(view: View, plan: Plan, warnings: list[str]) -> list[Config]:
    """The mount of /etc/ld.so.preload: the shims first, then the image's entries; none where it cannot be mounted."""
    spot = view.look(edit.PRELOAD_AT)
    if not (spot.is_file or (spot.file is None and spot.creatable)) or spot.shared:
        warnings.append(
            f"{spot.path} cannot be mounted over (not a regular file, or in a volume): drivers that the image"
        )
        warnings[-1] += " keeps in unusual places are not hooked"
        return []
    ours = (plan.tree / library_tree.PRELOAD).read_text()
    theirs = spot.read(PRELOAD_BYTES_MAX + 1) or b""
    if len(theirs) > PRELOAD_BYTES_MAX or b"\0" in theirs:
        warnings.append(
            f"{spot.path} of the image is binary or larger than {PRELOAD_BYTES_MAX >> 10} KiB: replaced by vgpud's"
        )
        theirs = b""
    if spot.file is not None and not spot.file.status.st_mode & stat.S_IROTH:
        warnings.append(f"{spot.path} is not readable for every user: replaced by vgpud's")
        theirs = b""  # otherwise a request could copy any file of the host, by a bind mount of it
    if not theirs.split():
        return [edit.bind(str(plan.tree / library_tree.PRELOAD), spot.path)]
    plan.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    merged = plan.scratch / library_tree.PRELOAD
    merged.write_bytes(ours.encode() + theirs)
    os.chmod(merged, 0o644)
    return [edit.bind(str(merged), spot.path)]
