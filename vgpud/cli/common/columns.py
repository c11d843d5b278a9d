"""--columns: which columns a table has, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings
from vgpud.cli.common.quantities import AnyParam

if TYPE_CHECKING:
    from vgpud.view.fit import Grid

Command = Callable[..., Any]


class Columns(AnyParam):
    """Names of columns, separated by commas, each once."""

    name = "columns"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        words = tuple(word.strip().lower() for word in str(value).split(","))
        if "" in words or len(set(words)) < len(words):
            self.fail(f"{str(value)!r} is not a list of columns: write each once, such as job,name,state", param, ctx)
        return words


def columns_option(example: str) -> Callable[[Command], Command]:
    """--columns: the keyword `columns`, (): those of the table."""
    text = f"Only these columns, in this order, separated by commas: {example}. For tables."
    return click.option("--columns", type=Columns(), default=(), metavar="NAME[,NAME]", help=text)


def with_columns(grid: Grid, columns: Sequence[str]) -> Grid:
    """The table that is to be shown. Raises UsageError for a column that it does not have."""
    from vgpud.view.columns import choose_columns

    if not columns:
        return grid
    try:
        return choose_columns(grid, columns)
    except ValueError as error:
        raise click.UsageError(f"--columns: {error}") from error


def check_columns(settings: Settings, columns: Sequence[str]) -> None:
    """Raises UsageError where there is no table."""
    if columns and settings.output != "table":
        raise click.UsageError(f"--columns is for tables: with -o {settings.output} leave it out")
