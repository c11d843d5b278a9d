"""A table within the width of a terminal: the least important columns go first, a long text gets lines of its own.

Pure; widths are in terminal cells. Nothing is broken within a word, except a name that is wider than the terminal.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from vgpud.view.text import plain

#: cells between two columns, and in front of a text on a line of its own
GAP_CELLS, INDENT_CELLS = 2, 4
#: a column that is cut keeps at least this much
_CUT_CELLS = 6
#: a name that is shortened for the sake of other columns keeps at least this much
NAME_CELLS = 16
#: a text beside the other columns is worth this much of a long name
_BESIDE_CELLS = 30


@dataclass
class Cell:
    """Text with a rich style."""

    text: str
    style: str = ""


@dataclass
class Grid:
    """Contents of a table: titles (">" in front: right-aligned) and rows of texts.

    On a terminal that is too narrow the columns of `first_to_go` are left out, in this order, and the last columns,
    those of `own_line_columns`, have lines of their own where a row has too little space for them. Before that the
    texts of `names` are shortened, each to no less than most names need: one long name costs no other row a column.
    """

    titles: Sequence[str]
    rows: list[Sequence[str | Cell]] = field(default_factory=list)
    first_to_go: Sequence[str] = ()
    own_line_columns: Sequence[str] = ()
    names: Sequence[str] = ()


Line = list[tuple[str, str]]  # pieces of text with their styles


def cells_of(text: str) -> int:
    """Width of a text in a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def wrap_text(text: str, width: int, subsequent_indent: str = "") -> list[str]:
    """The text in lines of at most this width, broken between words only. subsequent_indent: from line 2 on."""
    lines, line = [], ""
    for gap, word in re.findall(r"(\s*)(\S+)", text):
        if line.strip() and cells_of(line + gap + word) > width:
            lines.append(line)
            line, gap = subsequent_indent, ""
        line += gap + word
    return [*lines, line]


@dataclass
class Drawing:
    """A table for a terminal. `left_out`: titles of the columns for which it is too narrow."""

    lines: list[Line]  # without trailing blanks
    left_out: list[str]


def draw(grid: Grid, headers: bool, width: int | None) -> Drawing:
    """The table within this width. width None: as wide as the contents are."""
    rows = [[c if isinstance(c, Cell) else Cell(c) for c in row] for row in grid.rows]
    rows = [[Cell(plain(cell.text), cell.style) for cell in row] for row in rows]
    titles = list(grid.titles)
    if width is None or _measure_width(titles, rows) <= width:
        return Drawing(_draw_lines(titles, rows, headers, _widths(titles, rows), [[] for _ in rows]), [])
    kept = [i for i, title in enumerate(titles) if title.lstrip(">") not in grid.own_line_columns]
    long = [i for i in range(len(titles)) if i not in kept]
    _shorten_names(grid, titles, rows, kept, width - (_BESIDE_CELLS + GAP_CELLS if long else 0))
    for name in grid.first_to_go:
        if _measure_width([titles[i] for i in kept], [[row[i] for i in kept] for row in rows]) <= width:
            break
        kept = [i for i in kept if titles[i].lstrip(">") != name]
        long = [i for i in long if titles[i].lstrip(">") != name]
    main = [[row[i] for i in kept] for row in rows]
    shown = [titles[i] for i in kept]
    widths = _cut(_widths(shown, main), width)
    left = width - sum(widths) - GAP_CELLS * len(widths)
    beside = bool(long) and left >= len(titles[long[0]])
    notes: list[list[str]] = []
    for row, cells in zip(rows, main, strict=True):
        inline = beside and cells_of(row[long[0]].text) <= left
        if beside:
            cells.append(row[long[0]] if inline else Cell(""))
        texts = [(index, row[index].text) for index in long[int(inline) :] if row[index].text not in ("", "-")]
        untitled = long[int(beside) :]
        notes.append([line for index, text in texts for line in _note(titles[index], text, index in untitled, width)])
    if beside:
        shown.append(titles[long[0]])
        widths.append(left)
    left_out = [title.lstrip(">") for index, title in enumerate(titles) if index not in (*kept, *long)]
    return Drawing(_draw_lines(shown, main, headers, widths, notes), left_out)


def _shorten_names(
    grid: Grid, titles: Sequence[str], rows: Sequence[list[Cell]], column_indices: Sequence[int], width: int
) -> None:
    """Shortens the widest names until the columns that are kept fit, or none is wider than NAME_CELLS."""
    named = [i for i in column_indices if titles[i] in grid.names]
    widths = _widths(titles, rows)
    over = sum(widths[i] for i in column_indices) + GAP_CELLS * (len(column_indices) - 1) - width
    while over > 0 and named:
        widest = max(named, key=lambda i: widths[i])
        if widths[widest] <= NAME_CELLS:
            return
        second = max([NAME_CELLS, *(widths[i] for i in named if widths[i] < widths[widest])])
        taken = min(over, widths[widest] - second)
        widths[widest] -= taken
        over -= taken
        for row in rows:
            row[widest] = Cell(shorten_text(row[widest].text, widths[widest]), row[widest].style)


def _note(title: str, text: str, has_label: bool, width: int) -> list[str]:
    """A text on lines of its own; has_label: with its column's title, which is not above it."""
    label = f"{title.lower()}: " if has_label else ""
    indent = " " * min(INDENT_CELLS, max(0, width - 1))
    return wrap_text(indent + label + text, width, indent)


def _widths(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[int]:
    columns = [[row[i] for row in rows] for i in range(len(titles))]
    return [
        max([len(title.lstrip(">")), *(cells_of(cell.text) for cell in column)])
        for title, column in zip(titles, columns, strict=True)
    ]


def _measure_width(titles: Sequence[str], rows: Sequence[Sequence[Cell]]) -> int:
    widths = _widths(titles, rows)
    return sum(widths) + GAP_CELLS * max(0, len(widths) - 1)


def _cut(widths: list[int], width: int) -> list[int]:
    """Takes from the widest columns what does not fit, as long as they have more than _CUT_CELLS."""
    over = sum(widths) + GAP_CELLS * (len(widths) - 1) - width
    while over > 0 and max(widths) > _CUT_CELLS:
        widest = widths.index(max(widths))
        second = max([_CUT_CELLS, *(w for w in widths if w < widths[widest])])
        taken = min(over, widths[widest] - second)
        widths[widest] -= taken
        over -= taken
    return widths


def _draw_lines(
    titles: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    headers: bool,
    widths: Sequence[int],
    notes: Sequence[Sequence[str]],
) -> list[Line]:
    right = [title.startswith(">") for title in titles]
    lines = [_line([Cell(title.lstrip(">"), "bold") for title in titles], widths, right)] if headers else []
    for row, more in zip(rows, notes, strict=True):
        lines.append(_line(row, widths, right))
        lines += [[(line, "dim")] for line in more]
    return lines


def _line(row: Sequence[Cell], widths: Sequence[int], right: Sequence[bool]) -> Line:
    pieces: Line = []
    blanks = 0  # not written yet: a line has no blanks at its end
    for cell, width, is_right in zip(row, widths, right, strict=True):
        text = shorten_text(cell.text, width)
        fill = width - cells_of(text)
        if text:
            pieces.append((" " * (blanks + (fill if is_right else 0)), ""))
            pieces.append((text, cell.style))
            blanks = 0
        blanks += GAP_CELLS + (0 if is_right and text else fill)
    return [piece for piece in pieces if piece[0]]


def shorten_text(text: str, width: int) -> str:
    """The text, or its first characters and "~" in place of the rest."""
    if cells_of(text) <= width:
        return text
    while text and cells_of(text) > width - 1:
        text = text[:-1]
    return f"{text}~"
