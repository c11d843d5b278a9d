"""What a run of the scheduling benchmark leaves behind: JSON, the table as Markdown, and plots, beside each other."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import results
from benchmarks.scheduling.rows import ROWS
from benchmarks.scheduling.table import Figure, by_row, markdown
from benchmarks.sharing.report import finite

DEVICE = "no device: traces on a SIMULATED cluster"

LEGEND = """\
GPUs are counted (`--placement count`) where the released Tiresias simulator is compared with, and starting and
preempting cost nothing there; `strict:` means that the first job which does not fit keeps the others waiting. Times of
decisions are of the whole machine and cluster, with devices, shares and memory."""


def verdict(figures: Sequence[Figure]) -> str:
    """How many goals were met, in words."""
    judged = [figure for figure in figures if figure.goal]
    return f"{sum(not figure.missed for figure in judged)} of {len(judged)} goals met"


def write(figures: Sequence[Figure], raw: Mapping[str, Any], folder: Path) -> list[Path]:
    """Writes all of it and returns the paths. Raises ValueError when there is no figure."""
    path = results.write(
        "scheduling",
        simulated=True,
        device=DEVICE,
        parameters={"rows": list(raw)},
        goals={f"{f.row} {f.case}: {f.what}": str(f.goal) for f in figures if f.goal},
        figures=finite(by_row(figures)),
        raw=finite(dict(raw)),
        folder=folder,
    )
    pictures = []
    for name, found in raw.items():
        draw = ROWS[name].plot
        if draw and "failed" not in found:
            pictures.append(path.with_name(f"{path.stem}-{name}.png"))
            draw(pictures[-1], found)
    page = path.with_suffix(".md")
    page.write_text(_page(json.loads(path.read_text()), figures, pictures))
    return [path, page, *pictures]


def _page(result: Mapping[str, Any], figures: Sequence[Figure], pictures: Sequence[Path]) -> str:
    machine = result["machine"]
    head = [
        "# Scheduling",
        "",
        f"{result['date']}, commit {result['commit']}, {machine['cores']} cores ({machine['cpu']}); "
        f"{result['device']}. {verdict(figures)}.",
        "",
        LEGEND,
        "",
        "| row | what runs |",
        "| --- | --- |",
        *(f"| {name} | {ROWS[name].what} |" for name in result["parameters"]["rows"]),
        "",
    ]
    tail = [line for picture in pictures for line in ("", f"![{picture.stem}]({picture.name})")]
    return "\n".join([*head, markdown(figures), *tail]) + "\n"
