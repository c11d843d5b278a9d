"""`vgpu job clone` and `resubmit`: jobs like others, which may have ended."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.jobs import job_document, job_file
from vgpud.cli.jobs.job import job_ids_argument
from vgpud.cli.jobs.quantities import JobId
from vgpud.cli.jobs.submit import SECTIONS, SubmitCommand, submit
from vgpud.errors import CliError

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: options of submit that are not of one like another
_OPTIONS_OF_FILES = ("file", "template")
_NOT_HERE = ("request_id", "over_cluster", "run_dir", "partition", "gpu_model", "model", "dry_run")
_HELP = """Submit a job like JOB, with changes: the options of `vgpu submit`, and another COMMAND.

    \b
    vgpu job clone 12 --gpus 1                  as job 12, on a whole device
    vgpu job clone 12 --mem 20G -- ./train -v   with another size and command

    JOB may have ended, as long as `vgpu job show JOB` has it. It is submitted as you, also if it is another user's (for
    admins). While JOB waits or runs, its variables are passed on; at its end they are deleted, and this shell's are
    passed on instead. Not passed on: --after, --begin, --hold and --pty.
"""


class CloneCommand(SubmitCommand):
    """JOB, then what `vgpu submit` takes: the job's values are the defaults of the options."""

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        return ["JOB", *super().collect_usage_pieces(ctx)]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing or {"-h", "--help"}.intersection(args[:1]):
            return VgpuCommand.parse_args(self, ctx, args)
        if not args or args[0].startswith("-"):
            raise click.UsageError("name the job first: for example vgpu job clone 12 --gpus 1", ctx)
        word, *rest = args
        self._read_job(ctx, JobId().convert(word, None, ctx), rest)
        return VgpuCommand.parse_args(self, ctx, rest)

    def invoke(self, ctx: click.Context) -> Any:
        for name in _NOT_HERE:
            ctx.params.setdefault(name, None)
        return super().invoke(ctx)

    def _read_job(self, ctx: click.Context, job_id: int, args: Sequence[str]) -> None:
        """Makes the job's values the defaults. Raises CliError."""
        from vgpud.cli.common.client import Client
        from vgpud.cli.common.output import say
        from vgpud.client import calls

        self.read_globals(ctx, args)  # which daemon is asked is among the options
        with Client(ctx.ensure_object(Settings)) as client:
            job, own_uid = client.send(calls.job(job_id)), client.own_uid
        document = job_document.document_of(job, own_uid)
        command = tuple(document.pop("command", ()))
        variables = job_document.variables_of(job)
        if variables and not job.spec.image:
            document["no_env"] = True
        ctx.default_map = job_file.read_document(ctx, Path(f"job {job_id}"), document)
        ctx.meta[job_file.META] = {"command": command, "env": tuple(variables.items())}
        for line in _warnings(job, own_uid):
            say(line)


def _warnings(job: pb.Job, own_uid: int) -> list[str]:
    """What is not as it was, one sentence each."""
    from vgpud.client import calls

    lines = []
    if job.uid != own_uid:
        text = f"job {job.job_id} is uid {job.uid}'s: its variables and notifications are not shown to others"
        lines.append(f"{text}, and this shell's variables are passed on")
    elif job.state in calls.ENDED and not job.spec.environment:
        whose = "give --env again, if it needs variables" if job.spec.image else "this shell's are passed on"
        lines.append(f"job {job.job_id} has ended, and its variables were deleted: {whose}")
    if job.spec.terminal:
        lines.append(f"job {job.job_id} had a terminal: --pty gives the new job one")
    return lines


clone = CloneCommand(
    "clone",
    params=[param for param in submit.own_params if param.name not in (*_OPTIONS_OF_FILES, *_NOT_HERE)],
    callback=submit.callback,
    help=_HELP,
    short_help="Submit a job like another, with changes.",
    sections={
        title: [name for name in names if name not in (*_OPTIONS_OF_FILES, *_NOT_HERE)]
        for title, names in SECTIONS.items()
    },
    context_settings={"allow_interspersed_args": False},
)


@click.command("resubmit", cls=VgpuCommand, short_help="Submit jobs again as they were.")
@job_ids_argument
@click.option("-q", "--quiet", is_flag=True, help="Print only the numbers.")
@click.pass_context
@pass_settings
def resubmit(settings: Settings, ctx: click.Context, /, job_ids: tuple[int, ...], quiet: bool) -> None:
    """Submit JOBs again as they were, and print the new numbers. `vgpu job clone` does the same with changes.

    A refusal is printed and does not keep the others from being submitted.
    """
    from vgpud.cli.common.output import say

    refusal: CliError | None = None
    for job_id in job_ids:
        try:
            with clone.make_context("clone", [str(job_id), *(["-q"] if quiet else [])], parent=ctx) as one:
                clone.invoke(one)
        except CliError as error:
            if len(job_ids) == 1:
                raise
            say(f"job {job_id}: {error.message}")
            refusal = refusal or error
    if refusal:
        raise CliError("some jobs were not submitted: see above", refusal.exit_code)
