"""What a run of the sharing benchmark leaves behind: JSON, the table as Markdown, and plots, beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.results import Page, write_figures
from benchmarks.sharing import plots
from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.measure import STOLEN_JUDGED
from benchmarks.sharing.plain import ARBITER, NO_HOOK, Plain
from benchmarks.sharing.plan import STOLEN_MAX
from benchmarks.sharing.rows import ROWS


def write(
    figures: Sequence[SharingFigure],
    raw: Mapping[str, Any],
    *,
    is_simulated: bool,
    device: str,
    parameters: Mapping[str, Any],
    folder: Path,
) -> list[Path]:
    """Writes all of it and returns the paths. Raises ValueError when there is no figure."""
    ran = [name for name in ROWS if any(figure.row == name for figure in figures)]
    length = f"{parameters['seconds']:g} s, {parameters['seeds']} seed(s)"
    every_case = ", every case" if parameters["full"] else ""
    beside = f", beside {parameters['busy']} spinning processes" if parameters.get("busy") else ""
    page = Page(
        f"Sharing on {device}",
        [f"{length}{every_case}{beside}. {_quietness(raw)}".rstrip(), LEGEND],
        ("row", "what runs, and what is asked", "kernels"),
        [(name, ROWS[name].what, ROWS[name].kernels) for name in ran],
    )
    return write_figures(
        f"sharing-busy{parameters['busy']}" if parameters.get("busy") else "sharing",
        figures,
        page,
        is_simulated=is_simulated,
        device=device,
        parameters=parameters,
        raw=raw,
        folder=folder,
        draw=lambda stem: plots.write_all(stem, device, raw),
    )


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
