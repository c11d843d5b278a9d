"""A benchmark whose rows are run by name: the command, and what a run leaves behind: JSON, a table, plots.

A missed goal is a figure like any other: it is shown, kept, and makes the exit code 1. Table and plots lie beside the
JSON; those of some rows only in build/bench, beside no result of the whole. With --keep other rows stay as the last
result has them, which says of which commit they are: for rows that need a quiet machine. With --take they are as
another result has them: for rows that ran apart. A result is replaced only by one that has all of its rows; rows that
were never run may still be missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.results import Page, write_figures
from benchmarks.table import YES, Figure, count_met, format_line, format_table

Raw = dict[str, Any]


@dataclass(frozen=True)
class Row:
    """`figures` leaves in its raw data what is worth keeping, of which `plot` (path without suffix) draws."""

    what: str
    figures: Callable[[Raw], Iterable[Figure]]
    plot: Callable[[Path, Raw], None] | None = None


@dataclass(frozen=True)
class Bench:
    """A benchmark of rows. `legend`: what a reader of its page must know; `about`: what --help says first."""

    name: str
    title: str
    about: str
    device: str
    legend: str
    rows: Mapping[str, Row]


def main(bench: Bench) -> int:
    """Runs the rows that the command line names and writes the result. Exit code 1 when a goal is missed."""
    args = _arguments(bench)
    found, raw = _read_kept(_last(bench), args.keep)
    for path, names in args.take.items():
        figures_elsewhere, raw_elsewhere = _read_kept(path, names)
        found |= figures_elsewhere
        raw |= raw_elsewhere
    print(format_table(Figure.HEADER), flush=True)
    for number, name in enumerate(args.rows, 1):
        begin = time.monotonic()
        for figure in row_figures(bench, name, raw.setdefault(name, {})):
            found.setdefault(name, []).append(figure)
            print(format_line(figure.cells()), flush=True)
        print(
            f"{name}: {time.monotonic() - begin:.0f} s; {number} of {len(args.rows)} rows", file=sys.stderr, flush=True
        )
    figures = [figure for name in bench.rows for figure in found.get(name, ())]
    paths = write(bench, figures, {name: raw[name] for name in bench.rows if name in raw}, args.results)
    print(f"{count_met(figures)}; {', '.join(map(str, paths))}")
    return 1 if any(figure.is_missed for figure in figures) else 0


def _arguments(bench: Bench) -> argparse.Namespace:
    made = harness.parser(bench.about)
    add_rows(made, {name: row.what for name, row in bench.rows.items()})
    made.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="ROW",
        help="a row that is not run and stays as the last result has it; may be repeated",
    )
    made.add_argument(
        "--take",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="a result (JSON) of rows that are not run and stay as it has them; may be repeated",
    )
    args = made.parse_args()
    if args.real:
        made.error("--real: this benchmark uses no device")
    args.keep = choose_rows(made, args.keep, bench.rows) if args.keep else []
    last = _last(bench)
    there = set(bench.rows) & set(json.loads(last.read_text())["figures"]) if last.is_file() else set(bench.rows)
    for name in args.keep:
        if not last.is_file() or name not in there:
            made.error(f"--keep: {last} has no row {name}: run it")
    args.take = {
        path: choose_rows(made, list(json.loads(path.read_text())["figures"]), bench.rows) for path in args.take
    }
    settled = {*args.keep, *(name for names in args.take.values() for name in names)}
    args.rows = [name for name in choose_rows(made, args.rows, bench.rows) if name not in settled]
    if not there <= {*args.rows, *settled} and args.results == results.RESULTS:
        args.results = harness.BUILD
    return args


def add_rows(parser: argparse.ArgumentParser, rows: Mapping[str, str], noun: str = "row") -> None:
    """Rows by their names as arguments; what each runs stands below --help."""
    width = max(map(len, rows))
    parser.epilog = "\n".join(f"{name:<{width}} {what}" for name, what in rows.items())
    what = f"{noun}s to run: {', '.join(rows)} (default: all of them)"
    parser.add_argument(f"{noun}s", nargs="*", metavar=noun.upper(), help=what)


def choose_rows(
    parser: argparse.ArgumentParser, names: Sequence[str], rows: Collection[str], noun: str = "row"
) -> list[str]:
    """Those named, each once; all of them when none is. Ends the program when one does not exist."""
    for name in names:
        if name not in rows:
            parser.error(f"{name} is no {noun}: choose from {', '.join(rows)}")
    return list(dict.fromkeys(names)) or list(rows)


def _last(bench: Bench) -> Path:
    return results.RESULTS / f"{bench.name}-sim.json"


@dataclass(frozen=True)
class _KeptGoal:
    """A goal that was judged when its figure was measured."""

    text: str
    was_met: bool

    def is_met_by(self, value: float) -> bool:
        return self.was_met

    def __str__(self) -> str:
        return self.text


def _read_kept(path: Path, names: Sequence[str]) -> tuple[dict[str, list[Figure]], Raw]:
    """Figures and raw data of rows as that result has them; `run` in the latter: when, and at which commit."""
    if not names:
        return {}, {}
    last = json.loads(path.read_text())

    def figure(name: str, one: Mapping[str, Any]) -> Figure:
        goal = _KeptGoal(one["goal"], one["met"]) if one["goal"] else None
        return Figure(name, one["case"], one["what"], one["value"], goal)

    run = {"commit": last["commit"], "date": last["date"]}
    figures = {name: [figure(name, one) for one in last["figures"][name]] for name in names}
    return figures, {name: {"run": run, **last["raw"][name]} for name in names}


def row_figures(bench: Bench, name: str, raw: Raw) -> Iterator[Figure]:
    """Those of a row. One that fails has missed a goal, and costs the other rows nothing."""
    try:
        yield from bench.rows[name].figures(raw)
    except Exception as error:
        traceback.print_exc()
        raw["failed"] = f"{type(error).__name__}: {error}"
        yield Figure(name, "the row", "ran to its end (1 = yes)", 0, YES)


def write(bench: Bench, figures: Sequence[Figure], raw: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes all of it and returns the paths. Raises ValueError when there is no figure."""

    def draw(stem: Path) -> list[Path]:
        pictures = []
        for name, found in raw.items():
            plot = bench.rows[name].plot
            if plot and "failed" not in found:
                pictures.append(stem.with_name(f"{stem.name}-{name}.png"))
                plot(pictures[-1], found)
        return pictures

    old_rows = [
        f"The row {name} is of {found['run']['date']}, commit {found['run']['commit']}."
        for name, found in raw.items()
        if "run" in found
    ]
    page = Page(bench.title, [bench.legend, *old_rows], ("row", "what runs"), [(n, bench.rows[n].what) for n in raw])
    return write_figures(
        bench.name,
        figures,
        page,
        is_simulated=True,
        device=bench.device,
        parameters={"rows": list(raw)},
        raw=raw,
        folder=folder,
        draw=draw,
    )
