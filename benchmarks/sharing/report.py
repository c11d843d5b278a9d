"""What a run of the sharing benchmark leaves behind: JSON, the table as Markdown, and plots, beside each other."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.sharing import plots
from benchmarks.sharing.measure import STOLEN_JUDGED
from benchmarks.sharing.plain import ARBITER, NO_HOOK, Plain
from benchmarks.sharing.plan import STOLEN_MAX
from benchmarks.sharing.rows import ROWS
from benchmarks.sharing.table import Figure, by_row, markdown


def finite(value: Any) -> Any:
    """The same with None for what JSON cannot say: figures that were infinite or not a number."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def verdict(figures: Sequence[Figure]) -> str:
    """How many goals were met, in words."""
    judged = [figure for figure in figures if figure.judged]
    others = sum(figure.goal is not None for figure in figures) - len(judged)
    met = f"{sum(not figure.missed for figure in judged)} of {len(judged)} goals met"
    return f"{met}, {others} not judged" if others else met


def write(
    figures: Sequence[Figure],
    raw: Mapping[str, Any],
    *,
    simulated: bool,
    device: str,
    parameters: Mapping[str, Any],
    folder: Path,
) -> list[Path]:
    """Writes all of it and returns the paths. Raises ValueError when there is no figure."""
    path = results.write(
        f"sharing-busy{parameters['busy']}" if parameters.get("busy") else "sharing",
        simulated=simulated,
        device=device,
        parameters=parameters,
        goals={f"{f.row} {f.case}: {f.what}": str(f.goal) for f in figures if f.goal},
        figures=finite(by_row(figures)),
        raw=finite(raw),
        folder=folder,
    )
    pictures = plots.write_all(folder, path.stem, device, raw)
    page = path.with_suffix(".md")
    page.write_text(_page(json.loads(path.read_text()), figures, pictures))
    return [path, page, *pictures]


LEGEND = f"""\
- *{NO_HOOK}*: the tenants as they are, with the device's own time slices; *{ARBITER}*: each in a slice.
- *{Plain.FIXED.value}*: a static timetable of 100 ms that the tenants keep themselves; *{Plain.RATE.value}*: a bucket
  of device time for each process, steered by sampled utilisation (benchmarks/sharing/plain.py says both in full).
- The goals are {ARBITER}'s, whose figures are the worst of all seeds, or the median where it says so or where work is
  compared with the same without a hook (W2, W2c, W5, W8): these runs are pairs. Else the other columns are of one run.
- *stolen*: of the processors' time, what the host of the virtual machine took while {ARBITER}'s figure was measured; of
  a worst window, in that window. Figures from times with more than {STOLEN_JUDGED:.0%} are shown and not judged.
- Parts (.5/.3) are fractions of the device; pp: percentage points of it; `-`: not run so, or it says nothing there."""


def _quietness(raw: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Whether something else than the benchmark had the machine: what a figure is to be read with."""
    seen = [(row, run) for row, runs in raw.items() for run in runs if run.get("machine")]
    if not seen:
        return ""
    row, busiest = min(seen, key=lambda one: one[1]["machine"]["idle"])
    stolen = max(run["machine"]["stolen"] for _, run in seen)
    again = sum(run["machine"]["tries"] - 1 for _, run in seen)
    return (
        f"The machine's processors were idle for {busiest['machine']['idle']:.0%} of the time or more (least in {row}, "
        f"{busiest['case']}); the host took {stolen:.1%} of it at most (where it took more than {STOLEN_MAX:.0%} a run "
        f"was made again: {again} times)."
    )


def _page(result: Mapping[str, Any], figures: Sequence[Figure], pictures: Sequence[Path]) -> str:
    parameters, machine = result["parameters"], result["machine"]
    ran = [(name, row) for name, row in ROWS.items() if any(figure.row == name for figure in figures)]
    head = [
        f"# Sharing on {result['device']}",
        "",
        f"{result['date']}, commit {result['commit']}, {machine['cores']} cores ({machine['cpu']}); "
        f"{parameters['seconds']:g} s, {parameters['seeds']} seed(s){', every case' if parameters['full'] else ''}"
        f"{', beside {} spinning processes'.format(parameters['busy']) if parameters.get('busy') else ''}. "
        f"{verdict(figures)}.",
        _quietness(result["raw"]),
        "",
        LEGEND,
        "",
        "| row | what runs, and what is asked | kernels |",
        "| --- | --- | --- |",
        *(f"| {name} | {row.what} | {row.kernels} |" for name, row in ran),
        "",
    ]
    tail = [line for picture in pictures for line in ("", f"![{picture.stem}]({picture.name})")]
    return "\n".join([*head, markdown(figures), *tail]) + "\n"
