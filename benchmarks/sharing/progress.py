"""Keeps the rows that are finished, so that a run of the whole table that was interrupted can go on (--resume)."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.sharing.table import Figure, Goal
from vgpud.errors import VgpudError


class ProgressError(VgpudError):
    """What is kept belongs to another run."""


class Progress:
    """Finished rows in a file. made_by: commit and parameters; rows of different ones never come together."""

    def __init__(self, path: Path, made_by: Mapping[str, Any], resume: bool) -> None:
        """Raises ProgressError when what is kept was made by something else."""
        self._path = path
        self._made_by = dict(made_by)
        self._rows: dict[str, dict[str, Any]] = {}
        if resume and path.exists():
            kept = json.loads(path.read_text())
            if kept["made_by"] != self._made_by:
                raise ProgressError(f"{path} is of {kept['made_by']}, this would be {self._made_by}: start anew")
            self._rows = kept["rows"]

    def finished(self, row: str) -> tuple[list[Figure], list[dict[str, Any]]] | None:
        """The row's figures and runs; None when it was not finished."""
        if row not in self._rows:
            return None
        kept = self._rows[row]
        return [_figure(one) for one in kept["figures"]], kept["raw"]

    def keep(self, row: str, figures: Sequence[Figure], raw: Sequence[Mapping[str, Any]]) -> None:
        """Writes the row down; a crash meanwhile loses this row and no other."""
        self._rows[row] = {"figures": [dataclasses.asdict(figure) for figure in figures], "raw": list(raw)}
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({"made_by": self._made_by, "rows": self._rows}))
        os.replace(new, self._path)

    def forget(self) -> None:
        """The whole table is written: nothing is to be resumed."""
        self._path.unlink(missing_ok=True)


def _figure(kept: Mapping[str, Any]) -> Figure:
    goal = kept["goal"] and Goal(**kept["goal"])
    return Figure(**{**kept, "goal": goal})
