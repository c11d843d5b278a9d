"""Jobs for `vgpu job cancel`, `hold` and `release`: named by number, or chosen by filters, of which several narrow."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common import filters
from vgpud.cli.common.completions import complete_queue
from vgpud.cli.common.options import Settings
from vgpud.cli.common.quantities import AnyParam
from vgpud.errors import CliError, ExitCode
from vgpud.view.text import plain
from vgpud.view.user_names import user_name

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

Command = Callable[..., Any]
#: a question names at most so many jobs
_NAMED_MAX = 8
_UNENDED = ("pending", "held", "running", "suspended")


class FilterText(AnyParam):
    """A name to look for. An empty one is refused: it is mostly an unset variable, and would choose every job."""

    name = "text"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("the name is empty: leave the option out, or set the variable", param, ctx)
        return str(value)


@dataclass(frozen=True)
class Filters:
    """What a job must be to be chosen: one of each tuple; (): anything."""

    mine: bool = False
    states: tuple[str, ...] = ()
    job_names: tuple[str, ...] = ()
    queue_names: tuple[str, ...] = ()
    yes: bool = False

    @property
    def is_empty(self) -> bool:
        return not (self.mine or self.states or self.job_names or self.queue_names)


def filter_options(with_state: bool = False) -> Callable[[Command], Command]:
    """--mine, --name, --queue, --yes, and with_state --state: the keywords of Filters."""
    options: list[Callable[[Command], Command]] = [
        click.option("--mine", is_flag=True, help="Choose your own jobs (admins see those of all users)."),
        click.option(
            "--name",
            "job_names",
            type=FilterText(),
            multiple=True,
            metavar="NAME",
            help="Choose jobs of this name. May be given again: of one of these names.",
        ),
        click.option(
            "--queue",
            "queue_names",
            type=FilterText(),
            multiple=True,
            metavar="NAME",
            shell_complete=complete_queue,
            help="Choose jobs of this queue. May be given again: of one of these queues.",
        ),
        click.option("-y", "--yes", is_flag=True, help="Do not ask on a terminal."),
    ]
    if with_state:
        options.insert(1, filters.state_option(_UNENDED, "Choose jobs in this state"))

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def choose(
    settings: Settings, job_ids: Sequence[int], job_filters: Filters, verb: str, states: Sequence[str] = _UNENDED
) -> Sequence[int]:
    """The numbers that were given, or of the jobs that the filters choose; on a terminal it asks about the latter.

    verb: what is done to them, such as "cancel"; states: in which that can be done. Without any such job there is
    nothing to do, which is no error. Raises UsageError when jobs are neither named nor chosen, or both.
    """
    from vgpud.cli.common.output import say

    if job_ids and not job_filters.is_empty:
        raise click.UsageError("name jobs by number, or choose them by filters, not both")
    if job_ids:
        return job_ids
    if job_filters.is_empty:
        example = "--mine --state pending" if verb == "cancel" else "--mine"
        raise click.UsageError(f"say which jobs: their numbers, or a filter such as {example}")
    found, own_uid = _find(settings, job_filters, job_filters.states or states)
    if not found:
        say(f"there is no such job to {verb}")
        return ()
    question = f"{verb} {_describe(found)}"
    if not (job_filters.yes or sys.stdin.isatty()) and {job.uid for job in found} - {own_uid}:
        raise click.UsageError(f"not all of these jobs are yours: write --yes to {question}")
    if job_filters.yes or not sys.stdin.isatty():
        say(question)
    elif not click.confirm(f"vgpu: {question}?", err=True):
        raise CliError("nothing was changed", ExitCode.OTHER)
    return [job.job_id for job in found]


def _find(settings: Settings, job_filters: Filters, states: Sequence[str]) -> tuple[list[pb.Job], int]:
    """The jobs, and the caller's uid as the daemon knows it."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    with Client(settings) as client:
        uid = client.own_uid if job_filters.mine else None
        names, queues = job_filters.job_names, job_filters.queue_names
        jobs = client.all(calls.jobs(False, queues[0] if len(queues) == 1 else "", uid, states))
        jobs = [job for job in jobs if job.spec.name in (names or (job.spec.name,))]
        return [job for job in jobs if job.spec.queue in (queues or (job.spec.queue,))], client.own_uid


def _describe(jobs: Sequence[pb.Job]) -> str:
    """How many, of whom where several users have some, and the first of them."""
    named = ", ".join(f"{job.job_id} ({plain(job.spec.name)})" for job in jobs[:_NAMED_MAX])
    further = f" and {len(jobs) - _NAMED_MAX} more" if len(jobs) > _NAMED_MAX else ""
    users = sorted({job.uid for job in jobs})
    whose = f" of {len(users)} users" if len(users) > 1 else f" of {user_name(users[0])}"
    return f"{len(jobs)} job{'s' if len(jobs) > 1 else ''}{whose}: {named}{further}"
