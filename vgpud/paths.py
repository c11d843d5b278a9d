"""Locations: runtime, state and configuration directories, sockets, and the libraries of the package.

Root uses /run, /var/lib and /etc; other users the XDG directories. Standard library only and cheap to import: the
command line, the daemon and the tools all start here. Importing creates no directory.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from vgpud.errors import DeniedError, VgpudError

SOCKET_NAME = "vgpud.sock"
#: vgpu-runtime, where `vgpu setup` installs it for the system
INSTALLED_FRONT = Path("/usr/lib/vgpu/current/vgpu-runtime")


def runtime_dir(env: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """Sockets and locks, gone after a reboot: /run/vgpud, $XDG_RUNTIME_DIR/vgpud or /tmp/vgpud-UID."""
    user = os.geteuid() if uid is None else uid
    if user == 0:
        return Path("/run/vgpud")
    base = env.get("XDG_RUNTIME_DIR", "")
    return Path(base) / "vgpud" if os.path.isabs(base) else Path(f"/tmp/vgpud-{user}")


def state_dir(env: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """Directory of everything that must survive a restart: /var/lib/vgpud or $XDG_STATE_HOME/vgpud."""
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


def contexts_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The directory of a user's contexts, root's too: $XDG_CONFIG_HOME/vgpud/contexts."""
    return _xdg(env, "XDG_CONFIG_HOME", ".config") / "contexts"


def templates_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The directory of a user's job templates, root's too: $XDG_CONFIG_HOME/vgpud/templates."""
    return _xdg(env, "XDG_CONFIG_HOME", ".config") / "templates"


def services_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The directory of a user's services, root's too: $XDG_STATE_HOME/vgpud/services."""
    return _xdg(env, "XDG_STATE_HOME", ".local/state") / "services"


def tunes_dir(env: Mapping[str, str] = os.environ) -> Path:
    """The directory of what `vgpu tune` keeps of a user, root too: $XDG_STATE_HOME/vgpud/tune."""
    return _xdg(env, "XDG_STATE_HOME", ".local/state") / "tune"


def cache_dir(env: Mapping[str, str] = os.environ, uid: int | None = None) -> Path:
    """Directory of everything that can be recreated at any time: /var/cache/vgpud or $XDG_CACHE_HOME/vgpud."""
    user = os.geteuid() if uid is None else uid
    return Path("/var/cache/vgpud") if user == 0 else _xdg(env, "XDG_CACHE_HOME", ".cache")


def _xdg(env: Mapping[str, str], name: str, fallback: str) -> Path:
    base = env.get(name, "")
    return (Path(base) if os.path.isabs(base) else Path.home() / fallback) / "vgpud"


def grpc_socket(runtime: Path) -> Path:
    """The API's socket of a daemon with this runtime directory."""
    return runtime / SOCKET_NAME


def default_host(env: Mapping[str, str] = os.environ) -> str:
    """The gRPC target of the command line: $VGPU_HOST, or this user's daemon, or the system's."""
    if env.get("VGPU_HOST"):
        return env["VGPU_HOST"]
    own = grpc_socket(runtime_dir(env))
    system = grpc_socket(runtime_dir(env, uid=0))
    if _whats_wrong(own.parent):  # in /tmp any user can take the name and impersonate the daemon
        return f"unix://{system}"
    return f"unix://{own if own.exists() or not system.exists() else system}"


def slices_dir(runtime: Path) -> Path:
    return runtime / "slices"


def attach_socket(runtime: Path, slice_name: str) -> Path:
    """The socket that a slice's programs attach to; its directory is what a container gets mounted."""
    return slices_dir(runtime) / slice_name / "attach.sock"


def runtime_socket(runtime: Path) -> Path:
    """The socket that vgpu-runtime uses for containers."""
    return runtime / "runtime.sock"


def shared_attach_dir(runtime: Path) -> Path:
    """The directory that containers with a CDI device get mounted: its attach.sock identifies them by their cgroup."""
    return runtime / "cdi"


def front(host_root: Path = Path("/proc/1/root")) -> Path:
    """vgpu-runtime as the host's engines find it: where `vgpu setup` installs it, or the package's own.

    For a daemon in a container the package's own is not a file of the host, so there it is always the installed one.
    `vgpud serve --in-container` says so; without it, it is seen where pid 1's files may be looked at.
    """
    installed = INSTALLED_FRONT
    try:
        in_container = not host_root.samefile("/")
    except OSError:
        in_container = False  # no permission: a user's daemon, on the host
    return installed if in_container or installed.exists() else lib_dir() / installed.name


def lib_dir() -> Path:
    """Where the package keeps its native libraries: libvgpu.so, libvgpu-ml.so and sim/."""
    return Path(__file__).resolve().parent / "lib"


def sim_lib_dir() -> Path:
    """The simulated driver: libcuda.so.1, libnvidia-ml.so.1 and vgpu-simd. Used only when asked for by name."""
    return lib_dir() / "sim"


def make_private_dir(path: Path, mode: int = 0o700) -> Path:
    """Creates a directory (and its parents) that only its owner may write to, or raises DeniedError with the remedy.

    An existing one must belong to this user and not be writable by others: any user can take names in /tmp.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=mode, exist_ok=True)
    except OSError as error:
        raise cannot_make(path, error) from error
    check_private_dir(path)
    return path


#: errors that may end by themselves, or by an operator's work elsewhere: a service manager should try again
PASSING = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ESTALE)


def cannot_make(path: Path, error: OSError) -> VgpudError:
    """The refusal for a file or directory that cannot be created, with an exit code that says whether waiting helps."""
    if error.errno in PASSING:
        return VgpudError(f"cannot create {path}: {error.strerror}; free space on its disk or make it writable again")
    return DeniedError(f"cannot create {path}: {error.strerror}; choose another directory or fix its permissions")


def check_private_dir(path: Path) -> None:
    """Raises DeniedError, with the remedy, for a directory that others own or may write to; a missing one is fine."""
    wrong = _whats_wrong(path)
    if wrong:
        raise DeniedError(wrong)


def _whats_wrong(path: Path) -> str:
    try:
        info = path.lstat()
    except FileNotFoundError:
        return ""
    except OSError as error:
        return f"cannot examine {path}: {error.strerror}; choose another directory or fix its permissions"
    if not stat.S_ISDIR(info.st_mode):
        return f"{path} is not a directory: remove it or choose another one"
    if info.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to uid {info.st_uid}, not to this user: remove it or choose another directory"
    if info.st_mode & 0o022:
        return f"{path} is writable by others (mode {info.st_mode & 0o777:o}): run chmod go-w {path}"
    return ""
