"""The four output formats: table (for people), json and yaml (stable, for programs), name (one per line).

Data goes to stdout, remarks go to stderr. What goes to a terminal keeps within its width; anything else is whole.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TextIO

from vgpud.cli.common.options import Settings
from vgpud.core.units import finite
from vgpud.view.fit import INDENT_CELLS, Grid, Line, draw, wrap_text
from vgpud.view.text import plain

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SCHEMA_VERSION = 1
#: wider than any table: rich neither breaks nor cuts a line
_WIDTH = 10_000
#: width of a terminal that does not say it
_USUAL_CELLS = 80


def console(settings: Settings, stderr: bool = False, width: int | None = None) -> Console:
    """A rich console that honours --no-color and NO_COLOR. width None: the terminal's."""
    from rich.console import Console

    return Console(file=sys.stderr if stderr else sys.stdout, no_color=not settings.color, width=width, highlight=False)


def blocks_unknown(terminal: Console) -> bool:
    """Whether the encoding or the Linux console's font lacks block characters.

    In the C locale Python assumes UTF-8, which the terminal may not.
    """
    named = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := os.environ.get(name))), "")
    plain = named in ("C", "POSIX") or os.environ.get("TERM") == "linux"
    return terminal.options.ascii_only or (terminal.is_terminal and plain)


def width_of(stream: TextIO) -> int | None:
    """Cells of the terminal that the stream is; None: it is none, and what is written there stays whole."""
    import shutil

    if not stream.isatty():
        return None
    if os.environ.get("COLUMNS", "").isdigit():
        return shutil.get_terminal_size().columns
    try:
        return os.get_terminal_size(stream.fileno()).columns or _USUAL_CELLS
    except (OSError, ValueError):  # a terminal of a test, without a descriptor
        return _USUAL_CELLS


def to_rich(lines: Iterable[Line]) -> list[Text]:
    """Lines of a table as rich texts, which are never broken."""
    from rich.text import Text

    return [Text.assemble(*line, no_wrap=True, overflow="crop") for line in lines]


def print_grid(settings: Settings, grid: Grid) -> None:
    """Writes the grid to stdout: within the width of a terminal, whole into anything else.

    Columns that are left out are named in a remark, if there are headers.
    """
    out, width = console(settings, width=_WIDTH), width_of(sys.stdout)
    drawing = draw(grid, settings.headers, width)
    for line in to_rich(drawing.lines):
        out.print(line)
    if drawing.left_out and settings.headers:
        say(f"not shown in {width} columns: {', '.join(drawing.left_out)} (-o json has all)")


def print_lines(lines: Iterable[str], subsequent_indent: str = "") -> None:
    """Writes lines of text to stdout; on a terminal broken between words, with this indent from the second line on."""
    width = width_of(sys.stdout)
    for line in lines:
        indent = line[: len(line) - len(line.lstrip())]
        print("\n".join([line] if width is None else wrap_text(line, width, subsequent_indent or indent)))


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
        dump(settings, data, settings.is_stream)


def say(text: str) -> None:
    """Prints a remark on stderr: one line, broken between words on a terminal."""
    print("\n".join(remark(text, width_of(sys.stderr))), file=sys.stderr)


def remark(text: str, width: int | None) -> list[str]:
    """The lines of a remark within this width; None: one line."""
    line = f"vgpu: {plain(text)}"
    return [line] if width is None else wrap_text(line, width, " " * INDENT_CELLS)
