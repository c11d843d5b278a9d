"""Where things lie: runtime, state and configuration directories, sockets, and the libraries of the package.

Root uses /run, /var/lib and /etc; everybody else the XDG directories. Standard library only and cheap to import: the
command line, the daemon and the tools all start here. No directory is made by importing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from vgpud.errors import DeniedError, VgpudError

SOCKET_NAME = "vgpud.sock"


def runtime_dir(env: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """Sockets and locks, gone after a reboot: /run/vgpud, $XDG_RUNTIME_DIR/vgpud or /tmp/vgpud-UID."""
    user = os.geteuid() if uid is None else uid
    if user == 0:
        return Path("/run/vgpud")
    base = env.get("XDG_RUNTIME_DIR", "")
    return Path(base) / "vgpud" if os.path.isabs(base) else Path(f"/tmp/vgpud-{user}")


def state_dir(env: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """What must survive a restart: /var/lib/vgpud or $XDG_STATE_HOME/vgpud."""
    user = os.geteuid() if uid is None else uid
    if user == 0:
        return Path("/var/lib/vgpud")
    return _xdg(env, "XDG_STATE_HOME", ".local/state")


def config_file(env: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """The configuration file, which need not exist: /etc/vgpud/vgpud.toml or $XDG_CONFIG_HOME/vgpud/vgpud.toml."""
    user = os.geteuid() if uid is None else uid
    if user == 0:
        return Path("/etc/vgpud/vgpud.toml")
    return _xdg(env, "XDG_CONFIG_HOME", ".config") / "vgpud.toml"


def cache_dir(env: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """What can be made again at any time: /var/cache/vgpud or $XDG_CACHE_HOME/vgpud."""
    user = os.geteuid() if uid is None else uid
    return Path("/var/cache/vgpud") if user == 0 else _xdg(env, "XDG_CACHE_HOME", ".cache")


def _xdg(env: Mapping[str, str], name: str, fallback: str) -> Path:
    base = env.get(name, "")
    return (Path(base) if os.path.isabs(base) else Path.home() / fallback) / "vgpud"


def grpc_socket(runtime: Path) -> Path:
    """The API's socket of a daemon with this runtime directory."""
    return runtime / SOCKET_NAME


def default_host(env: Mapping[str, str] = os.environ) -> str:
    """The gRPC target of the command line: $VGPU_HOST, else this user's daemon, else the system's."""
    if env.get("VGPU_HOST"):
        return env["VGPU_HOST"]
    own = grpc_socket(runtime_dir(env))
    system = grpc_socket(runtime_dir(env, uid=0))
    if _whats_wrong(own.parent):  # in /tmp anybody can take the name and answer in the daemon's place
        return f"unix://{system}"
    return f"unix://{own if own.exists() or not system.exists() else system}"


def slices_dir(runtime: Path) -> Path:
    return runtime / "slices"


def attach_socket(runtime: Path, slice_name: str) -> Path:
    """The socket that a slice's programs attach to; its directory is what a container gets mounted."""
    return slices_dir(runtime) / slice_name / "attach.sock"


def runtime_socket(runtime: Path) -> Path:
    """Where vgpu-runtime asks about containers."""
    return runtime / "runtime.sock"


def shared_attach_dir(runtime: Path) -> Path:
    """The directory that containers with a CDI device get mounted: its attach.sock knows them by their cgroup."""
    return runtime / "cdi"


def front(host_root: Path = Path("/proc/1/root")) -> Path:
    """vgpu-runtime as the host's engines find it: where `vgpu setup` installs it, else the package's own.

    The own one of a daemon in a container is no file of the host, so there it is the installed one in any case.
    """
    installed = Path("/usr/lib/vgpu/current/vgpu-runtime")
    try:
        in_container = not host_root.samefile("/")
    except OSError:
        in_container = False  # not ours to look at: a user's daemon, on the host
    return installed if in_container or installed.exists() else lib_dir() / installed.name


def lib_dir() -> Path:
    """Where the package keeps its native libraries: libvgpu.so, libvgpu-ml.so and sim/."""
    return Path(__file__).resolve().parent / "lib"


def sim_lib_dir() -> Path:
    """The simulated driver: libcuda.so.1, libnvidia-ml.so.1 and vgpu-simd. Used only when asked for by name."""
    return lib_dir() / "sim"


def make_private_dir(path: Path, mode: int = 0o700) -> Path:
    """Makes a directory (and its parents) that nobody else may write to, or raises DeniedError with the mend.

    An existing one must be ours and closed to others' writing: /tmp names can be taken by anybody.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=mode, exist_ok=True)
    except OSError as error:
        raise cannot_make(path, error) from error
    check_private_dir(path)
    return path


#: what may be over by itself, or by an operator's work elsewhere: a service manager shall try again
PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ESTALE)


def cannot_make(path: Path, error: OSError) -> VgpudError:
    """The refusal for a file or directory that cannot be made, with an exit code that says whether waiting helps."""
    if error.errno in PASSING:
        return VgpudError(f"cannot make {path}: {error.strerror}; make room on its disk or make that writable again")
    return DeniedError(f"cannot make {path}: {error.strerror}; choose another directory or correct its rights")


def check_private_dir(path: Path) -> None:
    """Raises DeniedError, with the mend, for a directory that others own or may write to; a missing one is fine."""
    wrong = _whats_wrong(path)
    if wrong:
        raise DeniedError(wrong)


def _whats_wrong(path: Path) -> str:
    try:
        info = path.lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot look at {path}: {error.strerror}; choose another directory or mend its rights"
    if not stat.S_ISDIR(info.st_mode):
        return f"{path} is not a directory: remove it or choose another one"
    if info.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to uid {info.st_uid}, not to us: remove it or choose another directory"
    if info.st_mode & 0o022:
        return f"{path} can be written by others (mode {info.st_mode & 0o777:o}): run chmod go-w {path}"
    return ""
