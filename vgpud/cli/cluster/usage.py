"""What ended jobs of the cluster used: `vgpu cluster usage`, and `vgpu usage --cluster`."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.cli.cluster.places import state_dir as find_state_dir
from vgpud.cli.common.options import Settings
from vgpud.core.units import MILLI_PER_DEVICE

if TYPE_CHECKING:
    from vgpud.view.fit import Grid

Row = dict[str, Any]
#: amounts of `vgpu usage` that are known here; what of its GPUs a job used, the nodes know
_AMOUNTS = ("gpu_seconds_asked", "gpu_seconds_granted")


@dataclass(frozen=True, slots=True)
class Asked:
    """Which ended jobs, and how they are summed up."""

    since_ns: int | None = None
    until_ns: int | None = None
    by: str = "job"  # or user, or queue
    uid: int | None = None
    states: Collection[str] = ()


def show(settings: Settings, state_dir: Path | None, query: Asked) -> None:
    """In any of the four formats, or as csv: that of single jobs is a trace for `vgpu whatif`."""
    from vgpud.cli.common.output import emit
    from vgpud.core.jobs.model import NEVER_NS
    from vgpud.store import cluster as store
    from vgpud.view.user_names import add_user_name

    until_ns = NEVER_NS if query.until_ns is None else query.until_ns
    found = store.usage(find_state_dir(state_dir), query.since_ns or 0, until_ns)
    items = [dict(zip(store.USAGE_COLUMNS, row, strict=True)) for row in found]
    items = [one for one in items if query.uid in (None, one["uid"])]
    items = [one for one in items if not query.states or one["state"] in query.states]
    if query.by == "job":
        columns, rows, key = store.USAGE_COLUMNS, items, "slurm_id"
        data: Row = {"jobs": [add_user_name(row) for row in items]}
    else:
        key = "uid" if query.by == "user" else "queue"
        columns, rows = (key, "jobs", *_AMOUNTS), _sums(items, key)
        data = {"by": query.by, "usage": [add_user_name(row) for row in rows]}
    if settings.output == "csv":
        headers = [columns] if settings.headers else []
        csv.writer(sys.stdout, lineterminator="\n").writerows([*headers, *([row[c] for c in columns] for row in rows)])
        return
    grid: Callable[[], Grid] = (lambda: _jobs_grid(rows)) if query.by == "job" else (lambda: _sums_grid(rows, key))
    emit(settings, data, [row[key] for row in rows], grid)


def _sums(items: Sequence[Row], key: str) -> list[Row]:
    """Decimals, since nanoseconds of this century are too many digits for a float."""
    found: dict[Any, Row] = {}
    for item in items:
        row = found.setdefault(item[key], {key: item[key], "jobs": 0, **dict.fromkeys(_AMOUNTS, Decimal(0))})
        gpus = Decimal(item["gpus_milli"] * item["members"]) / MILLI_PER_DEVICE
        row["jobs"] += 1
        row["gpu_seconds_asked"] += gpus * (Decimal(item["ended_s"]) - Decimal(item["submitted_s"]))
        row["gpu_seconds_granted"] += gpus * Decimal(item["duration_s"])
    for row in found.values():
        row |= {name: float(round(row[name], 6)) for name in _AMOUNTS}
    return [found[name] for name in sorted(found)]


def _jobs_grid(items: Sequence[Row]) -> Grid:
    from vgpud.view.fit import Grid

    titles = ("JOB", "QUEUE", ">UID", ">GPUS", ">NODES", ">RAN (s)", "STATE")
    names = ("slurm_id", "queue", "uid", "gpus_milli", "members", "duration_s", "state")
    shown = [{**item, "gpus_milli": f"{item['gpus_milli'] / 1000:g}"} for item in items]
    return Grid(titles, [[str(item[name]) for name in names] for item in shown])


def _sums_grid(rows: Sequence[Row], key: str) -> Grid:
    from vgpud.view.fit import Grid
    from vgpud.view.text import gpu_time
    from vgpud.view.user_names import user_name

    def line(row: Row) -> list[str]:
        name = user_name(row[key]) if key == "uid" else row[key]
        return [name, str(row["jobs"]), *(gpu_time(row[amount]) for amount in _AMOUNTS)]

    return Grid(("USER" if key == "uid" else "QUEUE", ">JOBS", ">ASKED", ">GRANTED"), [line(row) for row in rows])
