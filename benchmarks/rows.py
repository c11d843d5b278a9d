"""A benchmark whose rows are run by name: the command, and what a run leaves behind: JSON, a table, plots.

A missed goal is a figure like any other: it is shown, kept, and makes the exit code 1. Table and plots lie beside the
JSON; those of some rows only in build/bench, beside no result of the whole. With --keep other rows stay as the last
result has them, which says of which commit they are: for rows that need a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.scheduling.table import Figure, Near, by_row, line, markdown
from benchmarks.sharing.report import finite

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
    found, raw = _kept(bench, args.keep)
    print(markdown([]), flush=True)
    for number, name in enumerate(args.rows, 1):
        begin = time.monotonic()
        for figure in row_figures(bench, name, raw.setdefault(name, {})):
            found.setdefault(name, []).append(figure)
            print(line(figure), flush=True)
        print(
            f"{name}: {time.monotonic() - begin:.0f} s; {number} of {len(args.rows)} rows", file=sys.stderr, flush=True
        )
    figures = [figure for name in bench.rows for figure in found.get(name, ())]
    paths = write(bench, figures, {name: raw[name] for name in bench.rows if name in raw}, args.results)
    print(f"{verdict(figures)}; {', '.join(map(str, paths))}")
    return 1 if any(figure.missed for figure in figures) else 0


def _arguments(bench: Bench) -> argparse.Namespace:
    made = harness.parser(bench.about)
    width = max(map(len, bench.rows))
    made.epilog = "\n".join(f"{name:<{width}} {row.what}" for name, row in bench.rows.items())
    known = ", ".join(bench.rows)
    made.add_argument("rows", nargs="*", metavar="ROW", help=f"rows to run: {known} (default: all of them)")
    made.add_argument(
        "--keep",
        action="append",
        default=[],
        metavar="ROW",
        help="a row that is not run and stays as the last result has it; may be repeated",
    )
    args = made.parse_args()
    if args.real:
        made.error("--real: this benchmark uses no device")
    for name in (*args.rows, *args.keep):
        if name not in bench.rows:
            made.error(f"{name} is no row: choose from {known}")
    args.keep = list(dict.fromkeys(args.keep))
    if args.keep and not _last(bench).is_file():
        made.error(f"--keep: there is no {_last(bench)}: run all rows")
    args.rows = list(dict.fromkeys(args.rows)) or list(bench.rows)
    args.rows = [name for name in args.rows if name not in args.keep]
    if {*args.rows, *args.keep} != set(bench.rows) and args.results == results.RESULTS:
        args.results = harness.BUILD
    return args


def _last(bench: Bench) -> Path:
    return results.RESULTS / f"{bench.name}-sim.json"


@dataclass(frozen=True)
class _KeptGoal:
    """A goal that was judged when its figure was measured."""

    text: str
    was_met: bool

    def met(self, value: float) -> bool:
        return self.was_met

    def __str__(self) -> str:
        return self.text


def _kept(bench: Bench, names: Sequence[str]) -> tuple[dict[str, list[Figure]], Raw]:
    """Figures and raw data of rows as the last result has them; `run` in the latter: when, and at which commit."""
    if not names:
        return {}, {}
    last = json.loads(_last(bench).read_text())

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
        yield Figure(name, "the row", "ran to its end (1 = yes)", 0, Near(1, 0, "= yes"))


def verdict(figures: Sequence[Figure]) -> str:
    """How many goals were met, in words."""
    judged = [figure for figure in figures if figure.goal]
    return f"{sum(not figure.missed for figure in judged)} of {len(judged)} goals met"


def write(bench: Bench, figures: Sequence[Figure], raw: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes all of it and returns the paths. Raises ValueError when there is no figure."""
    path = results.write(
        bench.name,
        simulated=True,
        device=bench.device,
        parameters={"rows": list(raw)},
        goals={f"{f.row} {f.case}: {f.what}": str(f.goal) for f in figures if f.goal},
        figures=finite(by_row(figures)),
        raw=finite(dict(raw)),
        folder=folder,
    )
    pictures = []
    for name, found in raw.items():
        draw = bench.rows[name].plot
        if draw and "failed" not in found:
            pictures.append(path.with_name(f"{path.stem}-{name}.png"))
            draw(pictures[-1], found)
    page = path.with_suffix(".md")
    page.write_text(_page(bench, json.loads(path.read_text()), figures, pictures))
    return [path, page, *pictures]


def _page(bench: Bench, result: Mapping[str, Any], figures: Sequence[Figure], pictures: Sequence[Path]) -> str:
    machine = result["machine"]
    head = [
        f"# {bench.title}",
        "",
        f"{result['date']}, commit {result['commit']}, {machine['cores']} cores ({machine['cpu']}); "
        f"{result['device']}. {verdict(figures)}.",
        "",
        bench.legend,
        *(
            f"\nThe row {name} is of {raw['run']['date']}, commit {raw['run']['commit']}."
            for name, raw in result["raw"].items()
            if "run" in raw
        ),
        "",
        "| row | what runs |",
        "| --- | --- |",
        *(f"| {name} | {bench.rows[name].what} |" for name in result["parameters"]["rows"]),
        "",
    ]
    tail = [line for picture in pictures for line in ("", f"![{picture.stem}]({picture.name})")]
    return "\n".join([*head, markdown(figures), *tail]) + "\n"
