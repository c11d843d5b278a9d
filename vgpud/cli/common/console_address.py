"""Where the console of this machine is: its socket for links, and the URL that browsers reach it by."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from vgpud import paths
from vgpud.cli.common.options import Settings
from vgpud.errors import CliError, DeniedError, ExitCode

T = TypeVar("T")


def find_socket_path(runtime_dir: Path | None) -> Path:
    """The socket of the user's own console, or else of root's."""
    from vgpud.console.login.broker import link_socket_path

    if runtime_dir:
        return link_socket_path(runtime_dir)
    own = link_socket_path(paths.runtime_dir())
    try:
        paths.check_private_dir(own.parent)  # in /tmp any user can take the name, and show a console of their own
    except DeniedError:
        return link_socket_path(paths.runtime_dir(uid=0))
    return own if own.exists() else link_socket_path(paths.runtime_dir(uid=0))


def share_session(settings: Settings, job_id: int, span_s: int) -> tuple[str, str]:
    """A link to a session of the user's, and its id. Raises CliError."""
    from vgpud.console.login import broker

    return _ask(lambda path: broker.share(path, settings.timeout_s, job_id, span_s))


def list_shares(settings: Settings) -> list[dict[str, Any]]:
    """The user's shared links, as broker.list_shares() has them. Raises CliError."""
    from vgpud.console.login import broker

    return _ask(lambda path: broker.list_shares(path, settings.timeout_s))


def end_share(settings: Settings, share_id: str) -> None:
    """Raises CliError."""
    from vgpud.console.login import broker

    _ask(lambda path: broker.unshare(path, settings.timeout_s, share_id))


def _ask(ask: Callable[[Path], T]) -> T:
    """What the console answers at its socket. Raises CliError."""
    from vgpud.console.login import wire

    socket_path = find_socket_path(None)
    try:
        return ask(socket_path)
    except ValueError as error:
        raise CliError(str(error), ExitCode.DENIED) from error
    except (OSError, KeyError, wire.GoneError, wire.NotMessageError) as error:
        text = f"no console answers at {socket_path}: start it with `vgpu console serve`, or systemctl start"
        raise CliError(f"{text} vgpud-console", ExitCode.UNREACHABLE) from error


def find_address(settings: Settings, api_socket: str) -> str:
    """The URL of the console that shows the daemon at this socket; "": none answers."""
    from vgpud.console.login import wire
    from vgpud.console.login.broker import address

    try:
        url, its_socket = address(find_socket_path(None), settings.timeout_s)
    except (ImportError, OSError, ValueError, KeyError, wire.GoneError, wire.NotMessageError):
        return ""
    return url if os.path.realpath(its_socket) == os.path.realpath(api_socket) else ""
