"""`vgpu job`: shows jobs and why they wait; cancels, holds, requeues and follows them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common import cluster_option, filters
from vgpud.cli.common.columns import check_columns, columns_option, with_columns
from vgpud.cli.common.completions import complete_job, complete_queue
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.quantities import Number
from vgpud.cli.common.watching import ListCommand
from vgpud.cli.jobs.choice import Filters, choose, filter_options
from vgpud.cli.jobs.detach_keys import check_terminal, detach_keys_option
from vgpud.cli.jobs.quantities import ArrayOrJob, JobId
from vgpud.cli.slices.run import RunningCommand
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client
    from vgpud.v1alpha1 import vgpud_pb2 as pb
    from vgpud.view.slices import View

_TWO_USERS = "--mine and --user name different users: leave one out"
_ENDED = "ended jobs are shown by `sacct`, or by `vgpu usage --cluster --by job`"
#: options of `ls` that make no sense over a cluster -> what to write instead
_INSTEAD = {"ended": _ENDED, "since": _ENDED}
_PRESENT = ("pending", "held", "running")
#: more jobs than this have a progress bar
_MANY = 20


#: in modules of their own
_LAZY = {
    "set": ("vgpud.cli.jobs.job_set:set_", "Change priority, time limit, queue or size of jobs."),
    "clone": ("vgpud.cli.jobs.clone:clone", "Submit a job like another, with changes."),
    "resubmit": ("vgpud.cli.jobs.clone:resubmit", "Submit jobs again as they were."),
    "template": ("vgpud.cli.jobs.templates:template", "Keep jobs as templates for others."),
}


@click.group("job", cls=LazyGroup, lazy=_LAZY, short_help="List, show, change, cancel, hold and follow jobs.")
def job() -> None:
    """List, show, change, cancel, hold and follow jobs of `vgpu submit`."""


#: in a command's meta: of each word that names jobs, the first: that of the array
_FIRSTS = "vgpud.firsts"


def job_ids_argument(command: Callable[..., Any], is_required: bool = True) -> Callable[..., Any]:
    argument = click.argument(
        "job_ids",
        nargs=-1,
        required=is_required,
        type=ArrayOrJob(),
        metavar="JOB..." if is_required else "[JOB]...",
        shell_complete=complete_job,
        callback=_all_jobs,
    )
    return argument(command)


_named_or_chosen = partial(job_ids_argument, is_required=False)


def _all_jobs(ctx: click.Context, _param: click.Parameter, words: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    ctx.meta[_FIRSTS] = tuple(dict.fromkeys(word[0] for word in words))
    return tuple(dict.fromkeys(job_id for word in words for job_id in word))


def _views(client: Client, jobs: Sequence[pb.Job]) -> list[View]:
    from vgpud.view.jobs import job_view

    simulated = client.find_simulated_indices()
    return [job_view(job, simulated) for job in jobs]


@job.command("ls", cls=ListCommand, short_help="List jobs, and why they wait.")
@click.option("-a", "--all", "ended", is_flag=True, help="Include jobs that have ended.")
@click.option(
    "--queue", "queue_name", default="", metavar="NAME", shell_complete=complete_queue, help="Only jobs of this queue."
)
@filters.user_option("Only jobs of this user (users other than admins see their own only).")
@click.option("--mine", is_flag=True, help="Only your own (admins see those of all users).")
@filters.state_option(filters.JOB_STATES, "Only jobs in this state")
@filters.since_option(
    "Jobs that waited or ran at any time since then, also those that have ended: 1h (ago), 2026-11-01T08:00."
)
@click.option("-n", "--last", type=click.IntRange(min=0), default=None, metavar="N", help="Only the last N jobs.")
@columns_option("job,name,state")
@cluster_option.with_run_dir("Jobs of the queue over a Slurm cluster, of all users")
@pass_settings
def ls(
    settings: Settings,
    run_dir: Path | None,
    over_cluster: bool,
    ended: bool,
    queue_name: str,
    uid: int | None,
    mine: bool,
    states: tuple[str, ...],
    since: int | None,
    last: int | None,
    columns: tuple[str, ...],
) -> None:
    """List your waiting and running jobs: how long they have run or waited, on which device, or why they wait.

    \b
    vgpu job ls --state failed,timed_out --since 7d     what went wrong in the last week
    vgpu job ls --cluster --mine                        your jobs of the queue over a Slurm cluster
    """
    check_columns(settings, columns)
    if cluster_option.check(_INSTEAD):
        if set(states).difference(_PRESENT):
            raise click.UsageError(f"--state with --cluster: {_ENDED}; the states there are {', '.join(_PRESENT)}")
        if mine and uid not in (None, os.getuid()):
            raise click.UsageError(_TWO_USERS)
        from vgpud.cli.cluster import listing

        listing.ls(settings, run_dir, queue_name, os.getuid() if mine else uid, states, last, columns)
        return
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import emit, say
    from vgpud.client import calls
    from vgpud.view import job_tables, slice_tables

    with Client(settings) as client:
        if mine and uid not in (None, client.own_uid):
            raise click.UsageError(_TWO_USERS)
        uid = client.own_uid if mine else uid
        rows = _views(client, client.all(calls.jobs(ended, queue_name, uid, states, since)))
    rows = rows if last is None else rows[len(rows) - min(last, len(rows)) :]
    emit(
        settings,
        {"jobs": rows},
        [r["job_id"] for r in rows],
        lambda: with_columns(job_tables.jobs_grid(rows, slice_tables.now_utc()), columns),
    )
    if not rows and not (ended or states or since) and settings.output == "table":
        say("no such job waits or runs; -a lists those that have ended as well")


@job.command("show", short_help="Show everything about a job.")
@click.argument("job_id", type=JobId(), metavar="JOB", shell_complete=complete_job)
@pass_settings
def show(settings: Settings, job_id: int) -> None:
    """Show everything about JOB: its request, why it waits or where it runs, and its usage."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import dump, print_lines
    from vgpud.client import calls
    from vgpud.view import job_tables, slice_tables
    from vgpud.view.jobs import job_view

    with Client(settings) as client:
        found = client.send(calls.job(job_id))
        row = job_view(found, client.find_simulated_indices())
    if settings.output == "table":
        print_lines(job_tables.job_lines(row, slice_tables.now_utc()), job_tables.FURTHER)
    elif settings.output == "name":
        print(job_id)
    else:
        dump(settings, {"job": {**row, "environment": dict(sorted(found.spec.environment.items()))}})


def each_job(
    settings: Settings,
    job_ids: Sequence[int],
    act: Callable[[Client, int], object],
    done: str,
    harmless: Collection[ExitCode] = (),
) -> None:
    """Acts on each job; a refusal is printed and does not stop the rest; the first one is the exit code, unless it is
    a `harmless` one."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say

    refusal: CliError | None = None
    with Client(settings) as client:
        for job_id in _track_jobs(settings, job_ids):
            try:
                act(client, job_id)
                if len(job_ids) <= _MANY:
                    say(f"job {job_id} {done}")
            except CliError as error:
                is_harmless = error.exit_code in harmless
                if error.exit_code == ExitCode.UNREACHABLE or (len(job_ids) == 1 and not is_harmless):
                    raise
                say(error.message)
                if not is_harmless:
                    refusal = refusal or error
    if refusal:
        raise CliError("some jobs were refused: see above", ExitCode(refusal.exit_code))


def _track_jobs(settings: Settings, job_ids: Sequence[int]) -> Iterator[int]:
    if len(job_ids) <= _MANY or not sys.stderr.isatty():
        yield from job_ids
        return
    from rich.progress import track

    from vgpud.cli.common.output import console

    yield from track(job_ids, "jobs", console=console(settings, stderr=True), transient=True)


#: of jobs that were chosen by filters: a job may have started or ended since
_LATE = (ExitCode.CONFLICT, ExitCode.NOT_FOUND)


@job.command("cancel", short_help="End running jobs, remove waiting ones.")
@_named_or_chosen
@click.option("--array", is_flag=True, help="Cancel whole arrays: name the first job of each.")
@filter_options(with_state=True)
@click.pass_context
@pass_settings
def cancel(
    settings: Settings, ctx: click.Context, /, job_ids: tuple[int, ...], array: bool, **filter_values: Any
) -> None:
    """End running jobs with all their processes, and remove waiting ones from the queue.

    Name jobs by number, or choose those that match all of the filters. On a terminal the jobs that were chosen are
    shown, and it asks before it cancels them.

    \b
    vgpu job cancel 12 20-29
    vgpu job cancel --mine --state pending       all of yours that wait
    vgpu job cancel --name sweep --queue team    those of this name in this queue
    """
    from vgpud.client import calls

    job_filters = Filters(**filter_values)
    if array and not job_ids:
        raise click.UsageError("--array cancels whole arrays by the number of their first job: name that")
    job_ids = ctx.meta[_FIRSTS] if array else job_ids
    found = choose(settings, job_ids, job_filters, "cancel")
    late = () if job_ids else _LATE
    each_job(settings, found, lambda client, job_id: client.send(calls.cancel(job_id, array)), "cancelled", late)


@job.command("hold", short_help="Keep waiting jobs from starting.")
@_named_or_chosen
@filter_options()
@pass_settings
def hold(settings: Settings, /, job_ids: tuple[int, ...], **filter_values: Any) -> None:
    """Keep waiting jobs from starting until they are released.

    Name jobs by number, or choose the waiting ones that match all of the filters: vgpu job hold --mine
    """
    from vgpud.client import calls

    found = choose(settings, job_ids, Filters(**filter_values), "hold", ["pending"])
    late = () if job_ids else _LATE
    each_job(settings, found, lambda client, job_id: client.send(calls.hold(job_id)), "held", late)


@job.command("release", short_help="Let held jobs start.")
@_named_or_chosen
@filter_options()
@pass_settings
def release(settings: Settings, /, job_ids: tuple[int, ...], **filter_values: Any) -> None:
    """Let held jobs start as soon as enough capacity is free.

    Name jobs by number, or choose the held ones that match all of the filters: vgpu job release --mine
    """
    from vgpud.client import calls

    found = choose(settings, job_ids, Filters(**filter_values), "release", ["held"])
    late = () if job_ids else _LATE
    each_job(settings, found, lambda client, job_id: client.send(calls.release(job_id)), "released", late)


@job.command("requeue", short_help="Restart running jobs from the beginning.")
@job_ids_argument
@pass_settings
def requeue(settings: Settings, job_ids: tuple[int, ...]) -> None:
    """End running jobs and queue them again: they start from the beginning, with their old place in the queue.

    A job that has ended cannot be requeued, because its environment was deleted at its end: submit it again.
    """
    from vgpud.client import calls

    each_job(settings, job_ids, lambda client, job_id: client.send(calls.requeue(job_id)), "queued again")


@job.command("suspend", short_help="Take the GPUs of running jobs for others, for a while.")
@job_ids_argument
@pass_settings
def suspend(settings: Settings, job_ids: tuple[int, ...]) -> None:
    """Take the GPUs of running jobs for others, until `vgpu job resume`.

    The job's memory moves to the host, or stays on the device where it cannot be moved. Its processes live on, and wait
    in their GPU calls.
    """
    from vgpud.client import calls

    each_job(settings, job_ids, lambda client, job_id: client.send(calls.suspend_job(job_id)), "suspended")


@job.command("resume", short_help="Let suspended jobs continue.")
@job_ids_argument
@pass_settings
def resume(settings: Settings, job_ids: tuple[int, ...]) -> None:
    """Let jobs that were suspended by `vgpu job suspend` continue where they were, as soon as enough is free there."""
    from vgpud.client import calls

    each_job(settings, job_ids, lambda client, job_id: client.send(calls.resume_job(job_id)), "resumed")


@job.command("logs", short_help="Show a job's output.")
@click.argument("job_id", type=JobId(), metavar="JOB", shell_complete=complete_job)
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the job has ended.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=None, metavar="N", help="Only the last N lines.")
@click.option(
    "--member", type=click.IntRange(min=0), default=0, metavar="N", help="Output of this member of a gang, from 0."
)
@pass_settings
def logs(settings: Settings, job_id: int, follow: bool, lines: int | None, member: int) -> None:
    """Show the output of JOB, if you may read its file; -f follows it, also when the job is started again."""
    from vgpud.cli.jobs.wait import show_log

    show_log(settings, job_id, follow, lines, member)


@job.command("attach", cls=RunningCommand, short_help="Join the terminal of a job of `vgpu submit --pty`.")
@click.argument("job_id", type=JobId(), metavar="JOB", shell_complete=complete_job)
@click.option("--as-admin", is_flag=True, help="Join another user's terminal (admins only); it is an event of the job.")
@detach_keys_option
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but the job's output.")
@pass_settings
def attach(settings: Settings, job_id: int, as_admin: bool, detach_keys: bytes, quiet: bool) -> int:
    """Join the terminal of JOB. If JOB has not started, wait for its start. An earlier viewer is disconnected.

    Ctrl-\\ d, or a closed window, leaves the job running. The exit code is the job's when the job ends, and 0 if you
    leave it; 125 means that vgpu itself failed. A restart of the daemon does not end the command.
    """
    from vgpud.cli.jobs.attach import Options
    from vgpud.cli.jobs.attach import attach as join

    check_terminal()
    return join(settings, job_id, Options(detach_keys, as_admin=as_admin, quiet=quiet))


@job.command("wait", cls=RunningCommand, short_help="Wait until jobs have ended.")
@job_ids_argument
@click.option("-q", "--quiet", is_flag=True, help="Print nothing.")
@pass_settings
def wait(settings: Settings, job_ids: tuple[int, ...], quiet: bool) -> int:
    """Wait until all JOBs have ended, and exit with the greatest of their codes.

    A job without a code of its own gives 124 if it reached its time limit and 130 if it was cancelled; 125 means that
    vgpu itself failed. Waiting continues across a restart of the daemon. Ctrl-C leaves the jobs alone.
    """
    from vgpud.cli.jobs.wait import wait_for

    return wait_for(settings, job_ids, quiet)


@job.command("top", short_help="Watch the queue live.")
@click.option("-d", "--interval", type=Number(0.1, 60), default=1.0, help="Seconds between updates.")
@click.option("-n", "--count", type=click.IntRange(min=1), default=None, help="End after this many updates.")
@pass_settings
def top(settings: Settings, interval: float, count: int | None) -> None:
    """Watch queues and jobs live; end with Ctrl-C. Into a pipe, each update is printed below the last."""
    from vgpud.cli.jobs.top import watch

    with suppress(KeyboardInterrupt):  # the way to end it
        watch(settings, _samples(settings, interval, count), count)


def _samples(settings: Settings, interval_s: float, count: int | None) -> Iterator[dict[str, Any] | str]:
    """A view of queues and jobs per interval; while the daemon is away, the problem as a message."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.view.jobs import queue_view

    number = 0
    while True:
        try:
            with Client(settings) as client:
                while True:
                    yield {
                        "queues": [queue_view(q) for q in client.all(calls.queues())],
                        "jobs": _views(client, client.all(calls.jobs())),
                    }
                    number += 1
                    if number == count:
                        return
                    time.sleep(interval_s)
        except CliError as error:
            if not number or error.exit_code != ExitCode.UNREACHABLE:
                raise
            yield error.message
        time.sleep(interval_s)
