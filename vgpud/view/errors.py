"""Errors as users are shown them."""

from __future__ import annotations

from vgpud.client.failures import ClientError
from vgpud.errors import CliError, ExitCode, VgpudError
from vgpud.view.user_names import named_users


def make_cli_error(error: VgpudError, remote: bool = False) -> CliError:
    """The error as a user gets it. `remote`: the uids in it are another machine's."""
    found = CliError(str(error) if remote else named_users(str(error)), ExitCode(error.exit_code))
    found.is_unanswered = isinstance(error, ClientError) and error.is_unanswered
    return found
