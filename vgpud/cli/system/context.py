"""`vgpu context`: daemons of other machines, each with this user's certificate for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.watching import ListCommand

if TYPE_CHECKING:
    from vgpud.client.contexts import Context

_TITLES = ("USED", "NAME", "HOST", "USER", "CERTIFICATE")


@click.group("context", cls=LazyGroup, short_help="Choose among daemons of several machines.")
def context() -> None:
    """Choose the daemon that vgpu talks to: this machine's, or another's with a certificate from its admin.

    \b
    vgpu context add gpu1 alice.json --host gpu1.example.org:7443
    vgpu context use gpu1
    vgpu status

    --host HOST:PORT takes the certificate of the context with that address.
    """


@context.command("add", short_help="Add a daemon with a certificate.")
@click.argument("name")
@click.argument("credentials", metavar="FILE", type=click.Path(path_type=Path))
@click.option("--host", "address", required=True, metavar="HOST:PORT", help="Address of the daemon.")
@pass_settings
def add(settings: Settings, name: str, credentials: Path, address: str) -> None:
    """Store the certificate from FILE, which `vgpu cert user` wrote, as context NAME. The first one is in use at once.

    FILE may be deleted afterwards.
    """
    from vgpud.client import contexts

    _emit(settings, [contexts.add(name, address, credentials)])


@context.command("use", short_help="Use a daemon from now on.")
@click.argument("name", required=False)
@click.option("--none", is_flag=True, help="Use the daemon of this machine.")
def use(name: str | None, none: bool) -> None:
    """Talk to the daemon of context NAME from now on, unless --host or VGPU_HOST names another one."""
    from vgpud.client import contexts

    if bool(name) == none:
        raise click.UsageError("name a context, or write --none for the daemon of this machine")
    contexts.use(name or "")


@context.command("ls", cls=ListCommand, short_help="List contexts.")
@pass_settings
def ls(settings: Settings) -> None:
    """List the contexts; the one in use is marked."""
    from vgpud.client import contexts

    _emit(settings, [contexts.get(name) for name in contexts.names()])


@context.command("rm", short_help="Remove a context with its certificate.")
@click.argument("name")
def rm(name: str) -> None:
    """Remove context NAME and its key from this machine. Tell the daemon's admin if the key may be in other hands."""
    from vgpud.client import contexts

    contexts.remove(name)


def _emit(settings: Settings, user_contexts: list[Context]) -> None:
    from vgpud.cli.common.output import emit
    from vgpud.client import contexts
    from vgpud.view.fit import Cell, Grid
    from vgpud.view.text import duration

    used, now_s = contexts.current_name(), time.time_ns() / 1e9

    def state(one: Context) -> str:
        return "expired" if one.is_expired(now_s) else f"valid for {duration(one.expires - now_s)}"

    def view(one: Context) -> dict[str, Any]:
        fields = {name: getattr(one, name) for name in ("name", "host", "user", "uid")}
        return fields | {"expires": one.expires, "in_use": one.name == used}

    def row(one: Context) -> Sequence[str | Cell]:
        return ["*" if one.name == used else "", one.name, one.host, one.user, state(one)]

    emit(
        settings,
        {"contexts": list(map(view, user_contexts))},
        [one.name for one in user_contexts],
        lambda: Grid(_TITLES, list(map(row, user_contexts))),
    )
