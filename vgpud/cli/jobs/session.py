"""`vgpu session`: jobs that serve a page, such as notebooks, and the address of that page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.completions import complete_job, complete_queue
from vgpud.cli.common.options import LazyGroup, Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Bytes, Gpus
from vgpud.cli.common.times import Span
from vgpud.cli.common.watching import ListCommand
from vgpud.cli.jobs.quantities import Cpus, JobId, Variable
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: options of `vgpu submit` that a session has no use for
_UNUSED = {"prediction": None}


@click.group("session", cls=LazyGroup, short_help="Notebooks and editors on a slice, at an address of their own.")
def session() -> None:
    """Notebooks, editors and other programs with a page, on a slice.

    A session is a job: it waits for capacity like any other, `vgpu job ls` shows it, and it outlives this terminal.

    \b
    vgpu session start --gpus 0.25 --mem 20G jupyter
    vgpu session url 7
    vgpu session stop 7
    """


@session.command(
    "start",
    cls=VgpuCommand,
    short_help="Queue a session and print its number.",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)
@click.option("--gpus", type=Gpus(), required=True, metavar="F", help="SM time: 0.25 is a quarter of a device.")
@click.option("--mem", type=Bytes(), metavar="SIZE", help="Device memory (default: in proportion to --gpus).")
@click.option("--cpus", type=Cpus(), metavar="N", help="Limit of processors (default: none).")
@click.option("--ram", type=Bytes(), metavar="SIZE", help="Limit of host memory (default: none).")
@click.option("--name", metavar="NAME", help="Name of the job (default: the program's).")
@click.option("--queue", metavar="NAME", shell_complete=complete_queue, help="Queue (default: yours).")
@click.option("--time-limit", type=Span(), metavar="TIME", help="End the session after this running time: 45m, 8h.")
@click.option("--preemptible", is_flag=True, help="Let jobs that go first pause, move or restart the session.")
@click.option("-C", "--directory", type=click.Path(), metavar="DIR", help="Working directory (default: this one).")
@click.option(
    "--env",
    type=Variable(),
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Set a variable; NAME alone passes on its present value.",
)
@click.option("--no-env", is_flag=True, help="Pass on only HOME, PATH, LANG and the like of your environment.")
@click.option("-q", "--quiet", is_flag=True, help="Print only the number.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="jupyter|code|COMMAND [ARG]...")
@pass_settings
def start(
    settings: Settings,
    /,
    preemptible: bool,
    quiet: bool,
    command: tuple[str, ...],
    **option_values: Any,
) -> None:
    """Queue a session and print its number. It starts, as you, as soon as enough capacity is free.

    \b
    vgpu session start --gpus 0.25 --mem 20G jupyter      JupyterLab; also: jupyter notebook
    vgpu session start --gpus 0.5 code                    VS Code: code serve-web
    vgpu session start --gpus 1 -- ./serve.sh             any program that serves a page

    Any other program listens on 127.0.0.1 at VGPU_SESSION_PORT, serves below VGPU_SESSION_BASE, and refuses requests
    without the header `Authorization: Bearer VGPU_SESSION_TOKEN`: docs/sessions.md.
    """
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.cli.common.target import find_daemon
    from vgpud.cli.jobs.submit import build_job_spec, submit
    from vgpud.client import calls
    from vgpud.core.jobs import session as sessions

    usual = submit.make_context("submit", [], resilient_parsing=True).params
    chosen = {**usual, **_UNUSED, **option_values, "no_preempt": not preemptible}
    chosen["name"] = option_values["name"] or command[0].rpartition("/")[2]
    spec = build_job_spec(chosen, sessions.complete_command(command), (), find_daemon(settings)[1] is not None)
    spec.session = sessions.program_of(command)
    with Client(settings) as client:
        (job_id,) = client.send(calls.submit(spec, ""))
        print(job_id, flush=True)
        if not quiet:
            say(f"{_describe(client.send(calls.job(job_id)))}; `vgpu session url {job_id}` prints its address")


def _describe(job: pb.Job) -> str:
    from vgpud.v1alpha1 import words
    from vgpud.view.job_tables import state_words

    return f"session {job.job_id} ({job.spec.name}) {state_words(words.JOB_STATE.to_word(job.state), job.reason)}"


def _find_session(settings: Settings, job_id: int) -> pb.Job:
    """Raises CliError where the job is no session."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.core.jobs.session import OF_SERVICES

    with Client(settings) as client:
        job = client.send(calls.job(job_id))
    if not job.spec.session or job.spec.session in OF_SERVICES:
        raise CliError(f"job {job_id} is not a session: `vgpu session ls` lists yours", ExitCode.NOT_FOUND)
    return job


def _list_sessions(settings: Settings) -> Sequence[dict[str, Any]]:
    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.core.jobs.session import OF_SERVICES
    from vgpud.view.jobs import job_view

    with Client(settings) as client:
        simulated = client.find_simulated_indices()
        found = client.all(calls.jobs(False, "", client.own_uid, (), None))
    return [job_view(job, simulated) for job in found if job.spec.session not in ("", *OF_SERVICES)]


@session.command("ls", cls=ListCommand, short_help="List your waiting and running sessions.")
@pass_settings
def ls(settings: Settings) -> None:
    """List your waiting and running sessions: how long they have run, on which device, or why they wait."""
    from vgpud.cli.common.output import emit, say
    from vgpud.view import job_tables, slice_tables

    rows = _list_sessions(settings)
    emit(
        settings,
        {"sessions": rows},
        [row["job_id"] for row in rows],
        lambda: job_tables.jobs_grid(rows, slice_tables.now_utc()),
    )
    if not rows and settings.output == "table":
        say("no session waits or runs: `vgpu session start --gpus 0.25 jupyter` starts one")


@session.command("url", short_help="Print the address of a session.")
@click.argument("job_id", type=JobId(), metavar="JOB", shell_complete=complete_job)
@click.option("--direct", is_flag=True, help="The session's own port, with its token, even where there is a console.")
@pass_settings
def url(settings: Settings, job_id: int, direct: bool) -> None:
    """Print the address of session JOB: through the console, where one serves this daemon.

    The console asks you to log in (`vgpu console open`), and shows the session to you alone. Without a console it is
    the address on this machine, with the session's token: who has that address has the session.
    """
    from vgpud.cli.common.console_address import find_address
    from vgpud.cli.common.output import dump
    from vgpud.cli.common.target import find_daemon
    from vgpud.client import calls
    from vgpud.client.target import unix_path
    from vgpud.core.jobs.session import base_path

    job = _find_session(settings, job_id)
    if job.state in calls.ENDED:
        raise CliError(f"{_describe(job)}: start another one", ExitCode.CONFLICT)
    api_socket = unix_path(find_daemon(settings)[0])
    found = find_address(settings, api_socket) if api_socket and not direct else ""
    address = f"{found}{base_path(job_id)}" if found else _direct_address(job, api_socket)
    if settings.output in ("table", "name"):
        print(address, flush=True)
    else:
        dump(settings, {"url": address})


def _direct_address(job: pb.Job, api_socket: str | None) -> str:
    """Raises CliError where there is none, or none that is the caller's."""
    from vgpud.core.jobs import session as sessions

    if api_socket is None:
        text = f"session {job.job_id} is on {job.node}, at a port of that machine only: open it by that node's console"
        raise CliError(text, ExitCode.CONFLICT)
    token = job.spec.environment.get(sessions.TOKEN)
    if not token:
        raise CliError(f"session {job.job_id} is uid {job.uid}'s: only they may open it", ExitCode.DENIED)
    if not job.HasField("session_port"):
        raise CliError(f"{_describe(job)}: it has no address yet", ExitCode.CONFLICT)
    return sessions.direct_url(job.spec.session, job.job_id, job.session_port, token)


@session.command("logs", short_help="Show a session's output.")
@click.argument("job_id", type=JobId(), metavar="JOB", shell_complete=complete_job)
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the session has ended.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=None, metavar="N", help="Only the last N lines.")
@pass_settings
def logs(settings: Settings, job_id: int, follow: bool, lines: int | None) -> None:
    """Show the output of session JOB: why it did not start, for example."""
    from vgpud.cli.jobs.wait import show_log

    _find_session(settings, job_id)
    show_log(settings, job_id, follow, lines, 0)


@session.command("stop", short_help="End sessions.")
@click.argument("job_ids", nargs=-1, required=True, type=JobId(), metavar="JOB...", shell_complete=complete_job)
@pass_settings
def stop(settings: Settings, job_ids: tuple[int, ...]) -> None:
    """End sessions with all their processes, or remove waiting ones from the queue. Unsaved work in them is lost."""
    from vgpud.cli.jobs.job import each_job
    from vgpud.client import calls

    def end(client: Client, job_id: int) -> None:
        _find_session(settings, job_id)
        client.send(calls.cancel(job_id))

    each_job(settings, job_ids, end, "cancelled")
