"""The table of sessions: jobs, with the time that each was not used."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from vgpud.view.fit import Grid
from vgpud.view.job_tables import gpus_label, name_label, state_cell, time_label, where_or_why
from vgpud.view.slice_tables import parse_time
from vgpud.view.slices import View
from vgpud.view.text import duration
from vgpud.view.user_names import user_name


def unused_label(job: View, now: datetime.datetime) -> str:
    """How long it was not used, of how long it may be: 12m of 30m; - where that does not matter."""
    if not job["idle_after_ns"]:
        return "-"
    most = duration(job["idle_after_ns"] / 1e9)
    if job["use_time"] is None or job["state"] != "running":
        return f"- of {most}"
    unused_s = max(0.0, (now - parse_time(job["use_time"])).total_seconds())
    return f"{duration(unused_s)} of {most}"


def shares_grid(shares: Sequence[View]) -> Grid:
    """Links that were shared."""
    grid = Grid(("LINK", ">SESSION", "USER", ">VALID-FOR", ">LAST-USED"))
    for one in shares:
        used = "never" if one["unused_s"] is None else f"{duration(one['unused_s'])} ago"
        row = (one["share_id"], str(one["job_id"]), user_name(one["uid"]), duration(one["left_s"]), used)
        grid.rows.append(row)
    return grid


def sessions_grid(jobs: Sequence[View], now: datetime.datetime) -> Grid:
    titles = (">JOB", "NAME", "USER", "STATE", ">GPUS", ">TIME", ">UNUSED", "WHERE-OR-WHY")
    first_to_go = ("GPUS", "NAME", "TIME", "UNUSED")
    grid = Grid(titles, first_to_go=first_to_go, own_line_columns=("WHERE-OR-WHY",), names=("NAME", "USER"))
    for job in jobs:
        grid.rows.append(
            (
                str(job["job_id"]),
                name_label(job),
                user_name(job["uid"]),
                state_cell(job),
                gpus_label(job),
                time_label(job, now),
                unused_label(job, now),
                where_or_why(job, now),
            )
        )
    return grid
