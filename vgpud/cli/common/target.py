"""Which daemon a command talks to, for commands that look before they connect."""

from __future__ import annotations

from vgpud.cli.common.options import Settings
from vgpud.client.contexts import Context
from vgpud.client.target import find_target
from vgpud.errors import CliError, ExitCode, VgpudError


def find_daemon(settings: Settings) -> tuple[str, Context | None]:
    """The daemon's address, and for one of another machine the credentials. Raises CliError."""
    try:
        return find_target(settings.host)
    except VgpudError as error:
        raise CliError(str(error), ExitCode(error.exit_code)) from error


def check_local(settings: Settings, command: str, alternative: str) -> None:
    """Raises CliError for a command that needs the daemon of this machine when the chosen one is another's."""
    target, context = find_daemon(settings)
    if context:
        text = f"{command} needs the daemon of this machine, and {target} is another one's"
        raise CliError(f"{text}: {alternative}", ExitCode.USAGE)
