"""Tables with the columns that a user has chosen. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.view.fit import Grid


def choose_columns(grid: Grid, column_names: Sequence[str]) -> Grid:
    """The table with these columns alone, in this order. Raises ValueError for one that it does not have."""
    known = {title.lstrip(">").lower(): index for index, title in enumerate(grid.titles)}
    wanted = [name.lower().replace("_", "-") for name in column_names]
    for name in wanted:
        if name not in known:
            raise ValueError(f"there is no column {name!r}: choose from {', '.join(known)}")
    indices = [known[name] for name in wanted]
    last_title = grid.titles[indices[-1]]
    return Grid(
        [grid.titles[i] for i in indices],
        [[row[i] for i in indices] for row in grid.rows],
        own_line_columns=[title for title in grid.own_line_columns if title == last_title],
        names=grid.names,
    )
