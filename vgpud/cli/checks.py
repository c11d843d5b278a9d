"""What `vgpu doctor` looks at. Each check yields findings: ok, warn (works, but not as well) or fail, and the mend."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from vgpud import paths
from vgpud.cli.exits import CliError
from vgpud.cli.options import Settings
from vgpud.errors import VgpudError

#: linux/fcntl.h; not in the fcntl module before Python 3.13
_F_SEAL_FUTURE_WRITE = 0x0010


@dataclass
class Finding:
    """One line: the check's name (stable, for scripts), ok/warn/fail, what was found, how to mend it."""

    check: str
    level: str
    text: str
    mend: str = ""


Check = Callable[[Settings], Iterator[Finding]]


def all_findings(settings: Settings) -> Iterator[Finding]:
    """Runs every check; one that breaks is a finding itself and does not hide the others."""
    for check in CHECKS:
        try:
            yield from check(settings)
        except (VgpudError, CliError, OSError) as error:
            yield Finding(check.__name__.strip("_"), "fail", str(error))


def kernel(settings: Settings) -> Iterator[Finding]:
    """memfd seals (a slice cannot raise its own limits) and pidfd (a process's end is seen at once)."""
    release = os.uname().release
    try:
        fd = os.memfd_create("vgpu-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)
        finally:
            os.close(fd)
        yield Finding("kernel-seals", "ok", f"Linux {release} seals shared pages")
    except OSError as error:
        text = f"Linux {release}: memfd with F_SEAL_FUTURE_WRITE: {error.strerror}"
        yield Finding("kernel-seals", "fail", text, "use Linux 5.1 or later")
    try:
        os.close(os.pidfd_open(os.getpid()))
        yield Finding("kernel-pidfd", "ok", f"Linux {release} has pidfd")
    except OSError as error:
        text = f"Linux {release}: pidfd_open: {error.strerror}"
        yield Finding("kernel-pidfd", "fail", text, "use Linux 5.3 or later")


def libraries(settings: Settings) -> Iterator[Finding]:
    """The native libraries are built, and every user can load them."""
    for name in ("libvgpu.so", "libvgpu-ml.so"):
        path = paths.lib_dir() / name
        if not path.is_file():
            mend = "build it: `pip install .`, or `python shim/build_shim.py` in the source"
            yield Finding("library", "fail", f"{path} is not there", mend)
        elif not os.access(path, os.R_OK):
            yield Finding("library", "fail", f"{path} cannot be read", f"chmod a+r {path}")
        else:
            yield from _preloadable("library", path)


def _preloadable(check: str, path: Path) -> Iterator[Finding]:
    """LD_PRELOAD is split at blanks and colons, and every program of the slice's user must be able to read it."""
    if any(c in str(path) for c in " :\t\n;"):
        yield Finding(check, "fail", f"{path}: the loader splits LD_PRELOAD at blanks and colons", "install elsewhere")
        return
    closed = [p for p in (path, *path.parents) if not p.stat().st_mode & (0o004 if p == path else 0o001)]
    if closed:
        text = f"{path}: {closed[-1]} is closed to other users"
        yield Finding(check, "warn", text, "install where every user may read")
    else:
        yield Finding(check, "ok", str(path))


def environment(settings: Settings) -> Iterator[Finding]:
    """What this shell's environment would do to programs."""
    for entry in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if "/" in entry and not os.access(entry, os.R_OK):
            yield Finding("ld-preload", "warn", f"LD_PRELOAD names {entry}, which cannot be read", "unset LD_PRELOAD")
    attach = os.environ.get("VGPU_SOCKET")
    if attach:
        there = os.path.exists(attach)
        text = f"this shell is inside a slice (VGPU_SOCKET={attach})"
        mend = "" if there else "the socket is gone: start a new shell"
        yield Finding("in-slice", "ok" if there else "warn", text, mend)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        text = f"CUDA_VISIBLE_DEVICES={visible!r} counts within a slice's devices"
        yield Finding("visible-devices", "warn", text, "unset CUDA_VISIBLE_DEVICES unless it is meant")


def daemon(settings: Settings) -> Iterator[Finding]:
    """The daemon answers, and is of our version."""
    import vgpud
    from vgpud.cli.client import Client

    try:
        with Client(settings) as client:
            node = client.node()
            devices = client.devices()
            slices = client.slices()
            target = client.target
    except CliError as error:
        problem, _, mend = error.message.partition(": ")
        yield Finding("daemon", "fail", problem, mend or "see `vgpud serve --help`")
        return
    yield Finding("daemon", "ok", f"{target} answers: vgpud {node.version} on {node.name}, mode {node.mode}")
    if node.version != vgpud.__version__:
        text = f"vgpud is {node.version}, vgpu is {vgpud.__version__}"
        yield Finding("daemon-version", "warn", text, "restart vgpud: programs go on meanwhile")
    if not devices:
        yield Finding("devices", "fail", "the daemon has no device", "see its log")
    for device in devices:
        name = device.name if not device.simulated or "SIMULATED" in device.name else f"SIMULATED {device.name}"
        yield Finding("devices", "ok", f"device {device.index}: {name} {device.uuid}")
    for item in slices:
        if item.owner_uid in (-1, os.getuid()) and not os.access(item.attach_socket, os.W_OK):
            text = f"slice {item.name}: {item.attach_socket} cannot be used by you"
            yield Finding("attach-socket", "fail", text, "restart vgpud; it makes the socket anew")


CHECKS: tuple[Check, ...] = (kernel, libraries, environment, daemon)
