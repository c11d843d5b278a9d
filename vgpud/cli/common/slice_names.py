"""A slice by the begin of its name, where no other slice's name begins so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from vgpud.errors import CliError, ExitCode
from vgpud.view.text import plain

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client

T = TypeVar("T")
#: a refusal names at most so many slices
_NAMED_MAX = 8


def with_slice(client: Client, name: str, act: Callable[[str], T]) -> T:
    """act(name); if there is no slice of this name, act of the only one whose name begins with it.

    An exact name costs no further call. Raises CliError, also for a begin of several names.
    """
    from vgpud.cli.common.output import say

    try:
        return act(name)
    except CliError as error:
        if error.exit_code != ExitCode.NOT_FOUND or not name:
            raise
        found = _find_names(client, name)
        if not found or name in found:
            raise
        if len(found) > 1:
            further = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
            named = ", ".join(map(plain, found[:_NAMED_MAX]))
            text = f"{name!r} is the begin of {len(found)} slices: {named}{further}: write more of the name"
            raise CliError(text, ExitCode.NOT_FOUND) from error
    say(f"{name} is slice {found[0]}")
    return act(found[0])


def _find_names(client: Client, begin: str) -> list[str]:
    from vgpud.client import calls

    return sorted(item.name for item in client.all(calls.slices()) if item.name.startswith(begin))
