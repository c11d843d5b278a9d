"""Completion of slice names in the shell. Asks the daemon, briefly, and is silent when there is none."""

from __future__ import annotations

import click

from vgpud.cli.options import Settings


def complete_slice(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of slices that begin like this."""
    from vgpud.cli.client import Client

    settings = ctx.find_object(Settings) or Settings()
    settings.timeout_s = 1.0
    try:
        with Client(settings) as client:
            return [item.name for item in client.slices() if item.name.startswith(incomplete)]
    except click.ClickException:
        return []
