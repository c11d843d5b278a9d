"""The four output formats: table (for people), json and yaml (stable, for programs), name (one per line).

Data goes to stdout, remarks go to stderr.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vgpud.cli.common.options import Settings
from vgpud.cli.common.text import plain
from vgpud.core.units import finite

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

SCHEMA_VERSION = 1
#: wider than any table: lines are never broken or cut, so piped output is the same as shown
_WIDTH = 10_000


@dataclass
class Cell:
    """Text with a rich style."""

    text: str
    style: str = ""


@dataclass
class Grid:
    """Contents of a table: titles (">" in front: right-aligned) and rows of texts."""

    titles: Sequence[str]
    rows: list[Sequence[str | Cell]] = field(default_factory=list)


def console(settings: Settings, stderr: bool = False, width: int | None = None) -> Console:
    """A rich console that honours --no-color and NO_COLOR. width None: the terminal's."""
    from rich.console import Console

    return Console(file=sys.stderr if stderr else sys.stdout, no_color=not settings.color, width=width, highlight=False)


def blocks_unknown(out: Console) -> bool:
    """Whether the encoding or the Linux console's font lacks block characters.

    In the C locale Python assumes UTF-8, which the terminal may not.
    """
    named = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := os.environ.get(name))), "")
    plain = named in ("C", "POSIX") or os.environ.get("TERM") == "linux"
    return out.options.ascii_only or (out.is_terminal and plain)


def to_rich(grid: Grid, headers: bool) -> Table:
    """The grid as a table without lines; texts are made safe for the terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=headers, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for title in grid.titles:
        right = title.startswith(">")
        table.add_column(title.lstrip(">"), justify="right" if right else "left", no_wrap=True)
    for row in grid.rows:
        cells = (cell if isinstance(cell, Cell) else Cell(cell) for cell in row)
        table.add_row(*(Text(plain(cell.text), style=cell.style) for cell in cells))
    return table


def print_grid(settings: Settings, grid: Grid) -> None:
    """Writes the grid to stdout without trailing blanks."""
    out = console(settings, width=_WIDTH)
    with out.capture() as capture:
        out.print(to_rich(grid, settings.headers))
    for line in capture.get().splitlines():
        print(line.rstrip())


def dump(settings: Settings, data: Mapping[str, Any], line: bool = False) -> None:
    """Writes one json or yaml document; line: as one line of a stream (yaml: a separate document)."""
    document = finite({"schema_version": SCHEMA_VERSION, **data})
    if settings.output == "json":
        import json

        print(json.dumps(document, indent=None if line else 2, ensure_ascii=False), flush=line)
        return
    import yaml

    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    print(("---\n" if line else "") + text, end="", flush=line)


def emit(settings: Settings, data: Mapping[str, Any], names: Iterable[object], grid: Callable[[], Grid]) -> None:
    """Writes the data in the chosen format."""
    if settings.output == "table":
        print_grid(settings, grid())
    elif settings.output == "name":
        for name in names:
            print(plain(str(name)))
    else:
        dump(settings, data)


def say(text: str) -> None:
    """Prints a remark: one line on stderr."""
    print(f"vgpu: {plain(text)}", file=sys.stderr)
