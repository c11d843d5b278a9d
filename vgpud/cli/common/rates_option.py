"""--rates: tables of speeds, of the package or of the site."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def rates_option(what: str) -> Callable[[F], F]:
    """Keyword `rates`: names and paths for userfiles.rates.read_all(). `what`: the tables' purpose, for --help."""
    text = f"{what}: Gavel's table, or CSV model,gpu,rate; may be repeated."
    return click.option("--rates", multiple=True, type=click.Path(), metavar="gavel|FILE", help=text)
