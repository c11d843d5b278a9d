"""`vgpu explain JOB`: the reasons for its waiting, size, devices, neighbours and resizes, with the numbers."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpud.cli.common import cluster_option
from vgpud.cli.common.completions import complete_job
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.jobs.quantities import JobIdOrSlurms
from vgpud.view.job_tables import LABELS
from vgpud.view.slices import View

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

_LABEL_CELLS = 12
#: maximum length of lines on a wide terminal: longer ones are hard to read
_WIDTH_MAX = 100


@click.command("explain", cls=VgpuCommand, short_help="Say why a job waits, runs where it does, and has its size.")
@click.argument("job_id", type=JobIdOrSlurms(), metavar="JOB", shell_complete=complete_job)
@cluster_option.with_run_dir("A job of the queue over a Slurm cluster, by Slurm's number")
@pass_settings
def explain(settings: Settings, job_id: int | str, run_dir: Path | None, over_cluster: bool) -> None:
    """Say why JOB waits and what would help, or why it has its size, devices, neighbours and resizes; also its
    prediction, its expected duration and its anomalies.

    A sentence with a time records a decision of that moment; the others describe the present.

    \b
    vgpu explain 12
    vgpu explain --cluster 12_3       a job of Slurm: element 3 of array 12
    """
    if cluster_option.check({}):
        from vgpud.cli.cluster import listing

        listing.explain(settings, run_dir, str(job_id))
        return
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import dump
    from vgpud.client import calls
    from vgpud.view import slice_tables
    from vgpud.view.jobs import job_view

    with Client(settings) as client:
        answer = client.send(calls.explain_job(int(job_id)))
        job = job_view(answer.job, client.find_simulated_indices())
    facts = [_view(fact) for fact in answer.facts]
    if settings.output == "table":
        print("\n".join(_lines(job, facts, slice_tables.now_utc(), _width())))
    elif settings.output == "name":
        print(job_id)
    else:
        dump(settings, {"job": job, "facts": facts})


def _view(fact: pb.Fact) -> View:
    from vgpud.v1alpha1.words import FACT_KIND

    return {
        "decision_time": fact.decision_time.ToJsonString() if fact.HasField("decision_time") else None,
        "kind": FACT_KIND.to_word(fact.kind),
        "text": fact.text,
    }


def _width() -> int:
    import shutil

    return max(40, min(_WIDTH_MAX, shutil.get_terminal_size().columns))


def _lines(job: View, facts: Sequence[View], now: datetime.datetime, width: int) -> Iterator[str]:
    import textwrap

    from vgpud.view import job_tables
    from vgpud.view.text import plain

    runs = job["state"] == "running" and job["device_indices"]
    where = f" on device {job_tables.devices_label(job)}" if runs else ""
    head = f"job {job['job_id']} ({job_tables.name_label(job)}) {job_tables.state_words(job['state'], None)}{where}"
    yield from textwrap.wrap(plain(f"{head}, {_since(job, now)}"), width)
    kind = ""
    for fact in facts:
        label = str(LABELS.get(fact["kind"], fact["kind"])) if fact["kind"] != kind else ""
        kind = fact["kind"]
        first = f"  {plain(label):<{_LABEL_CELLS}}"
        text = plain(f"{_moment(fact['decision_time'], now)}{fact['text']}")
        yield from textwrap.wrap(text, width, initial_indent=first, subsequent_indent=" " * len(first))


def _since(job: View, now: datetime.datetime) -> str:
    from vgpud.view.job_tables import span_between

    if job["end_time"]:
        return f"{span_between(job['end_time'], now)} ago"
    if job["state"] == "running" and job["start_time"]:
        return f"for {span_between(job['start_time'], now)}"
    return f"submitted {span_between(job['submit_time'], now)} ago"


def _moment(stamp: str | None, now: datetime.datetime) -> str:
    """The time on the local clock, with the date if it is not today."""
    from vgpud.view.slice_tables import parse_time

    if stamp is None:
        return ""
    at = parse_time(stamp).astimezone()
    return at.strftime("%H:%M:%S " if at.date() == now.astimezone().date() else "%Y-%m-%d %H:%M:%S ")
