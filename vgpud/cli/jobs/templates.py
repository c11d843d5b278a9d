"""`vgpu job template`, and --template of `vgpu submit`: job files below the user's home, by name."""

from __future__ import annotations

import re
from pathlib import Path

import click

from vgpud import paths
from vgpud.cli.common.completions import complete_job
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.watching import ListCommand
from vgpud.cli.jobs import job_document, job_file
from vgpud.cli.jobs.quantities import JobId
from vgpud.errors import CliError, ExitCode
from vgpud.host import private_files

#: in a command's meta: the template that it was given
META = "vgpud.template"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
_SUFFIX = ".toml"


def check_name(name: str) -> str:
    """Raises CliError for what is no name of a file."""
    if not _NAME.fullmatch(name):
        text = f"{name[:80]!r} is not the name of a template: write up to 64 letters, digits, `_`, `.` and `-`"
        raise CliError(text, ExitCode.USAGE)
    return name


def path_of(name: str) -> Path:
    """Raises CliError."""
    return paths.templates_dir() / f"{check_name(name)}{_SUFFIX}"


def list_names() -> list[str]:
    directory = paths.templates_dir()
    found = directory.glob(f"*{_SUFFIX}") if directory.is_dir() else ()
    return sorted(path.stem for path in found if _NAME.fullmatch(path.stem))


def complete_template(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of templates with this prefix."""
    return [name for name in list_names() if name.startswith(incomplete)]


def _missing(name: str) -> CliError:
    names = list_names()
    have = f"there are {', '.join(names)}" if names else "`vgpu job template save JOB NAME` makes one"
    return CliError(f"no template {name!r}: {have}", ExitCode.NOT_FOUND)


def read(ctx: click.Context, param: click.Parameter, name: str | None) -> None:
    """Callback of --template: as of -f, with its file."""
    if name is None:
        return
    if ctx.meta.get(job_file.META) is not None:
        raise click.UsageError("--template and -f both have the job's options: leave one out")
    path = path_of(name)
    if not path.exists():
        raise _missing(name)
    job_file.read(ctx, param, path)
    ctx.meta[META] = name


template_option = click.option(
    "--template",
    metavar="NAME",
    is_eager=True,
    expose_value=False,
    callback=read,
    shell_complete=complete_template,
    help="Read these options from your template (`vgpu job template`); the command line overrides it.",
)


@click.group("template", cls=LazyGroup, short_help="Keep jobs as templates for others.")
def template() -> None:
    """Keep jobs as templates: job files in ~/.config/vgpud/templates, which you may edit.

    \b
    vgpu job template save 12 nightly
    vgpu submit --template nightly --gpus 1
    """


@template.command("save", short_help="Make a template of a job.")
@click.argument("job_id", type=JobId(), metavar="JOB", shell_complete=complete_job)
@click.argument("name")
@click.option("--env", "variables", multiple=True, metavar="NAME", help="Save this variable of the job; repeatable.")
@click.option("--force", is_flag=True, help="Replace a template of this name.")
@pass_settings
def save(settings: Settings, job_id: int, name: str, variables: tuple[str, ...], force: bool) -> None:
    """Make template NAME of JOB, which may have ended.

    Its variables are not saved, since they may hold passwords: --env names those that are. Others are passed on from
    the shell of `vgpu submit --template`.
    """
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.client import calls

    path = path_of(name)
    if path.exists() and not force:
        raise CliError(
            f"there is a template {name!r}: choose another name, or replace it by --force", ExitCode.CONFLICT
        )
    with Client(settings) as client:
        job, own_uid = client.send(calls.job(job_id)), client.own_uid
    known = job_document.variables_of(job)
    lost = [variable for variable in variables if variable not in known]
    if lost:
        why = "its variables were deleted at its end" if job.state in calls.ENDED else "it was submitted without"
        raise CliError(f"job {job_id} has no variable {lost[0]}: {why}; leave --env {lost[0]} out", ExitCode.NOT_FOUND)
    text = job_document.write_toml(job_document.document_of(job, own_uid), {key: known[key] for key in variables})
    try:
        paths.make_private_dir(path.parent)
        private_files.replace(path, text)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}", ExitCode.OTHER) from error
    say(f"template {name} saved in {path}: `vgpu submit --template {name}` submits a job like job {job_id}")


@template.command("ls", cls=ListCommand, short_help="List your templates.")
@pass_settings
def ls(settings: Settings) -> None:
    """List your templates, and what they run."""
    from vgpud.cli.common.output import emit, say
    from vgpud.view.fit import Grid

    rows = [_describe(name) for name in list_names()]

    def grid() -> Grid:
        table = Grid(("TEMPLATE", "GPUS", "RUNS"), own_line_columns=("RUNS",))
        for row in rows:
            table.rows.append((row["name"] or "", row["gpus"] or "-", row["problem"] or row["runs"] or "-"))
        return table

    emit(settings, {"templates": rows}, [str(row["name"]) for row in rows], grid)
    if not rows and settings.output == "table":
        say("you have no templates: `vgpu job template save JOB NAME` makes one")


def _describe(name: str) -> dict[str, str | None]:
    """A damaged file is one line, and does not hide the others."""
    import shlex

    from vgpud.userfiles import bounded, toml

    row: dict[str, str | None] = {"name": name, "gpus": None, "runs": None, "problem": None}
    try:
        document = toml.read(path_of(name))
    except bounded.FileError as error:
        return row | {"problem": f"DAMAGED: {error}"}
    command = document.get("command")
    words = shlex.join(map(str, command)) if isinstance(command, list) else command
    runs = document.get("environment") or document.get("image") or words
    return row | {"gpus": str(document["gpus"]) if "gpus" in document else None, "runs": str(runs) if runs else None}


@template.command("show", short_help="Print a template.")
@click.argument("name", shell_complete=complete_template)
@pass_settings
def show(settings: Settings, name: str) -> None:
    """Print the job file that template NAME is."""
    from vgpud.userfiles import bounded, toml

    path = path_of(name)
    if not path.exists():
        raise _missing(name)
    print(bounded.read_text(path, toml.FILE_BYTES_MAX), end="")


@template.command("rm", short_help="Remove templates.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_template)
@pass_settings
def rm(settings: Settings, names: tuple[str, ...]) -> None:
    """Remove templates. Jobs that were submitted with them are not changed."""
    from vgpud.cli.common.output import say

    for name in names:
        try:
            path_of(name).unlink()
        except FileNotFoundError as error:
            raise _missing(name) from error
        say(f"template {name} removed")
