"""`vgpu doctor`: prerequisites of containers: the runtime wrapper, the daemon's socket, NVIDIA's files, the kernel."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import vgpud
from vgpud import config as configuration
from vgpud import paths
from vgpud.cli.common.findings import Finding, Look
from vgpud.cli.system.checks_engines import engines_here, find_program
from vgpud.client.target import probe
from vgpud.errors import ExitCode, VgpudError
from vgpud.setup.install import CONF, CURRENT, LIBRARIES, LOW_LEVEL, LOW_LEVEL_DIRS, RUNTIME, find_low_level, read_conf
from vgpud.setup.site import Site, read_text

_ANSWER_S = 2.0
_CDI_REMEDY = "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
_SELINUX = Path("/sys/fs/selinux/enforce")
_PEER = struct.Struct("3i")


def _setup_again(site: Site) -> str:
    engine = next(iter(engines_here()), "docker")
    return f"vgpu setup {engine}" if site.for_user else f"sudo vgpu setup {engine}"


def front(look: Look) -> Iterator[Finding]:
    """vgpu-runtime is installed, of this version, can be executed, and knows the daemon and a low-level runtime."""
    folders = dict.fromkeys([path.parent for path in look.fronts if path.parent.is_dir()])
    site = Site()
    if not folders:
        # nothing is registered: the user's own, or the system's
        places = [one.lib / CURRENT for one in (site, Site(uid=0)) if (one.lib / CURRENT).is_dir()]
        folders = dict.fromkeys(places[:1])
    if not folders and engines_here():
        text = f"{site.lib} does not exist: {' and '.join(engines_here())} cannot give containers a slice"
        yield Finding("front", "warn", text, _setup_again(site))
    for current in folders:
        folder = current.resolve()
        missing = [name for name in (RUNTIME, CONF, *LIBRARIES) if not (folder / name).is_file()]
        if missing:
            yield Finding("front", "fail", f"{folder}: {', '.join(missing)} is missing", _setup_again(site))
            continue
        yield from _check_installation(site, folder)
        yield from _conf(look, site, folder / CONF)


def _check_installation(site: Site, folder: Path) -> Iterator[Finding]:
    different = [name for name in (RUNTIME, *LIBRARIES) if _bytes(folder / name) != _bytes(paths.lib_dir() / name)]
    if folder.name != vgpud.__version__:
        text = f"{folder} is installed, but the package is {vgpud.__version__}"
        yield Finding("front", "warn", text, _setup_again(site))
    elif different:
        text = f"{folder}: {', '.join(different)} is not the package's: from another build, or damaged"
        yield Finding("front", "warn", text, _setup_again(site))
    elif not os.access(folder / RUNTIME, os.X_OK):
        yield Finding("front", "fail", f"{folder / RUNTIME} cannot be executed", _setup_again(site))
    elif _is_noexec(folder):
        text = f"{folder} is mounted noexec: engines cannot start {RUNTIME}"
        yield Finding("front", "fail", text, f"mount -o remount,exec {_mount_point(folder)}")
    else:
        yield Finding("front", "ok", f"{folder} is of this version")


def _bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _is_noexec(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def _mount_point(path: Path) -> Path:
    return next(p for p in (path, *path.parents) if os.path.ismount(p))


def _conf(look: Look, site: Site, where: Path) -> Iterator[Finding]:
    conf = read_conf(read_text(where) or "")
    named = conf.get("socket", "/run/vgpud/runtime.sock")
    daemons = look.node.runtime_socket if look.node else ""
    if daemons and os.path.realpath(daemons) != os.path.realpath(named):
        remedy = f"{_setup_again(site)} --socket {daemons}"
        if _answers(named):
            text = f"containers are served by another daemon, at {named} ({where}); this daemon's socket is {daemons}"
            yield Finding("front-conf", "warn", text, remedy)
        else:
            text = f"{where} names {named}, where no daemon answers; this daemon's socket is {daemons}"
            yield Finding("front-conf", "fail", text, remedy)
    yield from _low_level(site, conf.get("runtime", ""))


def _answers(path: str) -> bool:
    try:
        probe(f"unix://{path}")
    except VgpudError as error:  # it may be for root and the daemon's group
        return error.exit_code == ExitCode.DENIED and Path(path).exists()
    return True


def _low_level(site: Site, runtime: str) -> Iterator[Finding]:
    """The runtime below vgpu-runtime; NVIDIA's there would mount the driver over the shim afterwards."""
    if "nvidia" in Path(runtime).name:
        text = f"{runtime} below vgpu-runtime mounts the driver over the shim: containers would have the whole device"
        remedy = f"{_setup_again(site)} --runtime runc (NVIDIA's may be above vgpu-runtime, not below)"
        yield Finding("low-level-runtime", "fail", text, remedy)
        return
    found = find_low_level(site, runtime)
    if found is None:
        text = f"no {runtime or ' or '.join(LOW_LEVEL)} in {', '.join(LOW_LEVEL_DIRS)}"
        yield Finding("low-level-runtime", "fail", text, f"install runc, or {_setup_again(site)} --runtime /PATH")
    else:
        yield Finding("low-level-runtime", "ok", str(found))


def runtime_socket(look: Look) -> Iterator[Finding]:
    """The daemon answers on vgpu-runtime's socket, and sees the host's processes."""
    path = look.node.runtime_socket if look.node else ""
    if not path:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(_ANSWER_S)
            sock.connect(path)
            pid, _, _ = _PEER.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
    except OSError as error:
        if error.errno == errno.EACCES:
            yield Finding("runtime-socket", "ok", f"{path} exists, for root and the daemon's group")
        else:
            remedy = "systemctl restart vgpud (programs continue meanwhile)"
            yield Finding("runtime-socket", "fail", f"{path}: {error.strerror or error}", remedy)
        return
    yield Finding("runtime-socket", "ok", f"{path} answers")
    yield from _pid_namespace(pid)


def _pid_namespace(pid: int) -> Iterator[Finding]:
    """A daemon that does not see the host's processes cannot identify containers."""
    try:
        same = pid > 0 and os.readlink(f"/proc/{pid}/ns/pid") == os.readlink("/proc/self/ns/pid")
    except PermissionError:
        return  # only root may look
    except OSError:
        same = False
    if not same:
        text = "the daemon runs in another pid namespace: it cannot tell containers apart"
        yield Finding(
            "daemon-pid-namespace", "fail", text, "docker run --pid=host ... vgpud, and vgpu doctor on the host"
        )


def looking_inside(look: Look) -> Iterator[Finding]:
    """openat2: lets the daemon read an image's root without escaping from it."""
    from vgpud.oci.request import RequestError
    from vgpud.oci.rootfs import Root

    try:
        with Root.at("/") as root:
            root.find("etc")
        yield Finding("kernel-openat2", "ok", f"Linux {os.uname().release} has openat2")
    except RequestError as error:
        problem, _, remedy = str(error).partition("; ")
        yield Finding("kernel-openat2", "fail", problem, remedy or "use Linux 5.6 or later")


def cache(look: Look) -> Iterator[Finding]:
    """Libraries are mounted into containers from the daemon's cache: a noexec mount of it stays noexec inside."""
    folder = paths.cache_dir()
    there = next(p for p in (folder, *folder.parents) if p.is_dir())
    if _is_noexec(there):
        text = f"{there} is mounted noexec: programs in containers cannot load the libraries from there"
        yield Finding("cache", "fail", text, f"mount -o remount,exec {_mount_point(there)}")


def nvidia_cdi(look: Look) -> Iterator[Finding]:
    """Real devices: NVIDIA's CDI specification names each of them."""
    if look.node is None or look.node.simulated or not look.device_uuids or not engines_here():
        return
    from vgpud.oci.nvidia_cdi import edits_for
    from vgpud.oci.request import RequestError
    from vgpud.oci.rootfs import Root

    folders = configuration.load(None).nvidia_cdi_dirs
    try:
        with Root.at("/") as host:
            edits = edits_for(look.device_uuids, look.device_indices, folders, host)
    except RequestError as error:
        problem, _, _ = str(error).partition(": run `")
        tool = find_program("nvidia-ctk")
        remedy = _CDI_REMEDY if tool else f"install nvidia-container-toolkit, then {_CDI_REMEDY}"
        yield Finding("nvidia-cdi", "fail", problem, remedy)
        return
    yield Finding("nvidia-cdi", "ok", f"NVIDIA's CDI specification in {' or '.join(folders)} names every device")
    for warning in edits.warnings:
        yield Finding("nvidia-cdi", "warn", warning, _CDI_REMEDY)
    gone = [node["path"] for node, _ in edits.nodes if not os.path.exists(str(node.get("path")))]
    gone += [str(m["source"]) for m in edits.mounts if m.get("source") and not os.path.exists(str(m["source"]))]
    if gone:
        text = f"NVIDIA's CDI specification names {gone[0]}, which does not exist: made for another driver"
        yield Finding("nvidia-cdi", "fail", text, _CDI_REMEDY)


def our_cdi(look: Look) -> Iterator[Finding]:
    """vgpud's own CDI file exists, and so does the runtime in its hook."""
    if look.node is None or not look.node.cdi_dir:
        return
    path = Path(look.node.cdi_dir) / "vgpu.dev-gpu.json"
    remedy = "systemctl restart vgpud (programs continue meanwhile)"
    try:
        content = json.loads(path.read_bytes())
        hooks = {str(h["path"]) for h in content.get("containerEdits", {}).get("hooks", [])}
        for device in content["devices"]:
            hooks |= {str(h["path"]) for h in device.get("containerEdits", {}).get("hooks", [])}
        names = len(content["devices"])
    except OSError as error:
        yield Finding("our-cdi", "fail", f"{path}: {error.strerror}", remedy)
        return
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        yield Finding("our-cdi", "fail", f"{path} is not a CDI file of vgpud: {error}", remedy)
        return
    gone = sorted(hook for hook in hooks if not os.access(hook, os.X_OK))
    if gone:
        yield Finding(
            "our-cdi", "fail", f"{path} names {gone[0]}, which cannot be executed", f"{_setup_again(Site())}; {remedy}"
        )
    else:
        yield Finding("our-cdi", "ok", f"{path} has {names} sizes of vgpu.dev/gpu")


def security_modules(look: Look) -> Iterator[Finding]:
    """SELinux keeps a container from the daemon's files and socket unless configured."""
    if not engines_here():
        return
    try:
        enforcing = _SELINUX.read_text().strip() == "1"
    except OSError:
        return  # no SELinux
    if enforcing:
        text = "SELinux is enforcing: a confined container may use neither the slice's socket nor the libraries"
        yield Finding("selinux", "warn", text, "docker run --security-opt label=disable (podman the same)")
