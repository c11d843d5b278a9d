"""The daemon's address: --host as a gRPC target, and a check of the socket that gives a better reason than gRPC can."""

from __future__ import annotations

import errno
import os
import socket
import stat

from vgpud import paths
from vgpud.client import contexts
from vgpud.client.contexts import Context
from vgpud.errors import ExitCode, VgpudError


def find_target(host: str | None) -> tuple[str, Context | None]:
    """The daemon's address as gRPC takes it, and for one of another machine the credentials.

    `host`: unix:///PATH (or a bare absolute path) or HOST:PORT; None: $VGPU_HOST, the context in use, or this machine's
    daemon. Raises VgpudError.
    """
    if not host and not os.environ.get("VGPU_HOST"):
        context = contexts.current()
        if context:
            return context.host, context
    target = parse_target(host)
    return target, None if unix_path(target) else contexts.for_host(target)


def parse_target(host: str | None) -> str:
    """`--host` as gRPC takes it: unix:///PATH (or a bare absolute path) or HOST:PORT. Raises VgpudError (usage)."""
    text = host or paths.default_host()
    if text.startswith("/"):
        return f"unix://{text}"
    if text.startswith("unix:"):
        path = unix_path(text)
        if path and path.startswith("/"):
            return f"unix://{path}"
    elif contexts.is_address(text):
        return text
    raise VgpudError(f"{text!r} names no daemon: write unix:///run/vgpud/vgpud.sock or HOST:PORT", ExitCode.USAGE)


def unix_path(target: str) -> str | None:
    """The socket's path of a unix target, None for another one."""
    return target.removeprefix("unix:").removeprefix("//") if target.startswith("unix:") else None


def probe(target: str) -> None:
    """Connects to a unix socket once, to get the exact reason. Raises VgpudError; does nothing for TCP."""
    path = unix_path(target)
    if path is None:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(2)
            sock.connect(path)
    except OSError as error:
        raise _unreachable(path, error) from error


def _unreachable(path: str, error: OSError) -> VgpudError:
    if error.errno == errno.EACCES:
        return VgpudError(f"no permission to use {path}{_owner(path)}", ExitCode.DENIED)
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return VgpudError(f"daemon not running: start it with `vgpud serve` (looked at {path})", ExitCode.UNREACHABLE)
    if error.errno == errno.ECONNREFUSED:
        what = "no process listens on" if _is_socket(path) else "not a socket:"
        return VgpudError(f"daemon not running: start it with `vgpud serve` ({what} {path})", ExitCode.UNREACHABLE)
    reason = error.strerror or str(error)
    return VgpudError(f"cannot reach the daemon at {path}: {reason}: see `vgpu doctor`", ExitCode.UNREACHABLE)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _owner(path: str) -> str:
    """The socket's owner and the remedy; empty if even that cannot be seen."""
    try:
        info = os.stat(path)
    except OSError:
        return f": no permission for directory {os.path.dirname(path)}: ask its owner, or start your own `vgpud serve`"
    import grp
    import pwd

    try:
        user = pwd.getpwuid(info.st_uid).pw_name
    except KeyError:
        user = str(info.st_uid)
    try:
        group = grp.getgrgid(info.st_gid).gr_name
    except KeyError:
        group = str(info.st_gid)
    if info.st_gid and info.st_mode & stat.S_IWGRP:
        remedy = f"ask to be added to group {group}"
    else:
        remedy = f"ask {user} to set `group` in vgpud's configuration"
    return f" (owner {user}:{group}, mode {info.st_mode & 0o777:04o}): {remedy}, or start your own `vgpud serve`"
