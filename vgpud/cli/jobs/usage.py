"""`vgpu usage`: GPU time asked for, granted and used, and what was copied, by job, user or queue, or of pods."""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpud.cli.common import cluster_option, filters
from vgpud.cli.common.options import FORMATS, Settings, pass_settings
from vgpud.cli.common.times import When
from vgpud.cli.common.watching import ListCommand
from vgpud.view.usage_csv import POD_COLUMNS, csv_rows

if TYPE_CHECKING:
    from vgpud.view.slices import View


@click.command("usage", cls=ListCommand, short_help="Show GPU time asked for, granted and used.")
@click.option(
    "--since", type=When(), metavar="MOMENT", help="Start: 7d (ago) or 2026-11-01 (default: all that is kept)."
)
@click.option("--until", type=When(), metavar="MOMENT", help="End (default: now).")
@click.option(
    "--by",
    type=click.Choice(("job", "user", "queue", "namespace", "pod")),
    help="One row per job (default of csv), or sums (default: user). For Kubernetes' claims: namespace or pod.",
)
@filters.user_option("Only of this user (users other than admins see their own only).")
@filters.state_option(filters.JOB_STATES, "With --by job, only jobs in this state")
@click.option(
    "-o", "--output", "format_", type=click.Choice((*FORMATS, "csv")), help="Output format; csv is in seconds."
)
@cluster_option.cluster_option(
    "Ended jobs of the queue over a Slurm cluster; you must be able to read the controller's database"
)
@cluster_option.state_dir_option("With --cluster: directory")
@pass_settings
def usage(
    settings: Settings,
    over_cluster: bool,
    state_dir: Path | None,
    since: int | None,
    until: int | None,
    by: str | None,
    uid: int | None,
    states: tuple[str, ...],
    format_: str | None,
) -> None:
    """Show GPU time: your own, for admins that of all users. Tables are rounded; -o json and csv have GPU-seconds and
    bytes.

    \b
    ASKED     GPUs asked for x time from submission to the end
    GRANTED   GPUs of the job x the time that it had them
    USED      device time, as the arbiters counted it
    TO-GPU    bytes copied from the host to devices
    FROM-GPU  bytes copied from devices to the host

    `vgpu usage --since 30d -o csv` is a trace for `vgpu whatif`. Lines without a job are slices of containers and of
    `vgpu run`, which the simulator passes over. With --cluster the CSV is a trace, too, but without GPU time used: only
    the nodes know that.

    Slices of Kubernetes' claims belong to root: --by namespace and --by pod divide them. A claim that several pods
    share is shown under its namespace only.
    """
    if since is not None and until is not None and since >= until:
        raise click.UsageError("--since must be before --until: swap them")
    settings.output = format_ or settings.output
    by = by or ("job" if settings.output == "csv" else "user")
    if states and by != "job":
        raise click.UsageError("--state is for single jobs: add --by job")
    if cluster_option.check({}, cluster_options=("state_dir",)):
        if by in POD_COLUMNS:
            raise click.UsageError(f"--by {by} is for claims of Kubernetes, and --cluster for jobs of Slurm: drop one")
        from vgpud.cli.cluster import usage as ended

        ended.show(settings, state_dir, ended.Asked(since, until, by, uid, states))
        return
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import emit
    from vgpud.client import calls
    from vgpud.view import job_tables, jobs

    with Client(settings) as client:
        found = client.all(calls.usage(since, until, by, uid))
    rows = [row for row in map(jobs.usage_view, found) if not states or row.get("state") in states]
    if settings.output == "csv":
        _csv(rows, by, settings.headers)
        return
    key = {"job": "job_id", "user": "uid"}.get(by, by)
    names = [row.get(key) or row.get("slice") for row in rows]
    emit(settings, {"by": by, "usage": rows}, names, lambda: job_tables.usage_grid(rows, by))


def _csv(rows: Sequence[View], by: str, headers: bool) -> None:
    lines = csv_rows(rows, by)
    if not headers:
        next(lines)
    csv.writer(sys.stdout, lineterminator="\n").writerows(lines)
