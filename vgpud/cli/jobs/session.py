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
from vgpud.cli.jobs.container_options import environment_option, find_environment, registry_option, volume_option
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
@click.option("--gpus", type=Gpus(), metavar="F", help="SM time: 0.25 is a quarter of a device.")
@environment_option
@click.option(
    "--image", metavar="IMAGE", help="Run it in a container of this image, for example quay.io/jupyter/base-notebook."
)
@volume_option
@registry_option
@click.option("--mem", type=Bytes(), metavar="SIZE", help="Device memory (default: in proportion to --gpus).")
@click.option("--cpus", type=Cpus(), metavar="N", help="Limit of processors (default: none).")
@click.option("--ram", type=Bytes(), metavar="SIZE", help="Limit of host memory (default: none).")
@click.option("--name", metavar="NAME", help="Name of the job (default: the program's).")
@click.option("--queue", metavar="NAME", shell_complete=complete_queue, help="Queue (default: yours).")
@click.option("--time-limit", type=Span(), metavar="TIME", help="End the session after this running time: 45m, 8h.")
@click.option("--preemptible", is_flag=True, help="Let jobs that go first pause, move or restart the session.")
@click.option(
    "--idle-after",
    type=Span(),
    metavar="TIME",
    help="End the session when it was not used for so long (with --preemptible: pause it): 30m, 2h.",
)
@click.option(
    "--port",
    "port_names",
    multiple=True,
    metavar="NAME",
    help="One more port for the session's programs, VGPU_SESSION_PORT_NAME: tb. May be given again.",
)
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
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[jupyter|code|rstudio|shell|COMMAND] [ARG]...")
@pass_settings
def start(
    settings: Settings,
    /,
    preemptible: bool,
    idle_after: int | None,
    port_names: tuple[str, ...],
    quiet: bool,
    command: tuple[str, ...],
    **option_values: Any,
) -> None:
    """Queue a session and print its number. It starts, as you, as soon as enough capacity is free.

    \b
    vgpu session start --gpus 0.25 --mem 20G jupyter      JupyterLab; also: jupyter notebook
    vgpu session start --gpus 0.5 code                    VS Code: code serve-web
    vgpu session start --gpus 0.25 rstudio                RStudio Server: rserver
    vgpu session start --gpus 0.25 --image IMAGE jupyter  the image's own JupyterLab
    vgpu session start -E NAME                            the command of the site's environment
    vgpu session start --gpus 1 -- ./serve.sh             any program that serves a page
    vgpu session start --gpus 0.25 shell                  a terminal: `vgpu session open` joins it
    vgpu session start --gpus 0.25 --idle-after 30m jupyter

    Any other program listens at VGPU_SESSION_HOST and VGPU_SESSION_PORT, serves below VGPU_SESSION_BASE, and refuses
    requests without the header `Authorization: Bearer VGPU_SESSION_TOKEN`: docs/sessions.md.

    A session is used by requests for its page, by an open terminal, and by launches on its device.
    """
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.cli.common.target import find_daemon
    from vgpud.cli.jobs.submit import build_job_spec, inherit_variables, submit
    from vgpud.client import calls
    from vgpud.core.jobs import session as sessions

    environment = find_environment(settings, option_values["environment"])
    if option_values["gpus"] is None and not (environment and environment.defaults.slice.gpus_milli):
        raise click.UsageError("specify a size: for example --gpus 0.25")
    command = command or tuple(environment.defaults.command if environment else ())
    if not command:
        raise click.UsageError("specify a program: for example vgpu session start --gpus 0.25 jupyter")
    image = option_values["image"] or (environment.defaults.image if environment else "")
    is_elsewhere = find_daemon(settings)[1] is not None
    usual = submit.make_context("submit", [], resilient_parsing=True).params
    chosen = {**usual, **_UNUSED, **option_values, "no_preempt": not preemptible}
    chosen["name"] = option_values["name"] or command[0].rpartition("/")[2]
    # this machine's values mean nothing in an image, and little on another machine
    inherited = {} if image else inherit_variables(bool(option_values["no_env"]) or is_elsewhere, environment)
    spec = build_job_spec(chosen, sessions.complete_command(command, _read_gate(command)), inherited)
    spec.session = sessions.program_of(command)
    if not (image or is_elsewhere or environment):
        _check_installed(command, spec.environment.get("PATH"), spec.directory)
    spec.session_ports.extend(port_names)
    spec.terminal = spec.session == sessions.SHELL
    if idle_after is not None:
        spec.idle_after.FromNanoseconds(idle_after)
    with Client(settings) as client:
        (job_id,) = client.send(calls.submit(spec, ""))
        print(job_id, flush=True)
        if not quiet:
            then = "open" if spec.session == sessions.SHELL else "url"
            does = "joins it" if spec.session == sessions.SHELL else "prints its address"
            say(f"{_describe(client.send(calls.job(job_id)))}; `vgpu session {then} {job_id}` {does}")


def _check_installed(command: Sequence[str], path: str | None, directory: str) -> None:
    """Raises CliError: the program is neither here nor in an image. `path`: the session's PATH, None: the usual one."""
    import os
    import shutil

    from vgpud.core.jobs.session import RSTUDIO, SHELL
    from vgpud.host import session_gate

    program = command[0]
    if program == RSTUDIO:
        if not session_gate.find_rserver():
            raise CliError(session_gate.MISSING.format(session_gate.USUAL_DIR), ExitCode.NOT_FOUND)
    elif "/" in program:
        if not shutil.which(os.path.join(directory, program)):
            raise CliError(f"{program} is no program that can be run: name one that is", ExitCode.NOT_FOUND)
    elif program != SHELL and not shutil.which(program, path=path):
        text = f"{program} is not installed (not on the session's PATH): install it, or name an image that has it"
        raise CliError(f"{text} with --image", ExitCode.NOT_FOUND)


def _read_gate(command: Sequence[str]) -> str:
    """The text of the program that RStudio Server is started by; "" for any other."""
    from pathlib import Path

    from vgpud.core.jobs.session import RSTUDIO
    from vgpud.host import session_gate

    return Path(session_gate.__file__).read_text() if command[0] == RSTUDIO else ""


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
    from vgpud.view import session_tables, slice_tables

    rows = _list_sessions(settings)
    emit(
        settings,
        {"sessions": rows},
        [row["job_id"] for row in rows],
        lambda: session_tables.sessions_grid(rows, slice_tables.now_utc()),
    )
    if not rows and settings.output == "table":
        say("no session waits or runs: `vgpu session start --gpus 0.25 jupyter` starts one")


@session.command("url", short_help="Print the address of a session.")
@click.argument("job_id", type=JobId(), metavar="JOB", shell_complete=complete_job)
@click.option("--direct", is_flag=True, help="The session's own port, with its token, even where there is a console.")
@click.option("--port", "port_name", default="", metavar="NAME", help="One of its further ports.")
@pass_settings
def url(settings: Settings, job_id: int, direct: bool, port_name: str) -> None:
    """Print the address of session JOB: through the console, where one serves this daemon.

    The console asks you to log in (`vgpu console open`), and shows the session to you alone. Without a console it is
    the address on this machine, with the session's token: who has that address has the session.
    """
    from vgpud.cli.common.console_address import find_address
    from vgpud.cli.common.output import dump
    from vgpud.cli.common.target import find_daemon
    from vgpud.client.target import unix_path
    from vgpud.core.jobs.session import base_path

    job = _find_session(settings, job_id)
    _check_page(job, port_name)
    api_socket = unix_path(find_daemon(settings)[0])
    found = find_address(settings, api_socket) if api_socket and not direct else ""
    address = f"{found}{base_path(job_id, port_name)}" if found else _direct_address(job, api_socket, port_name)
    if settings.output in ("table", "name"):
        print(address, flush=True)
    else:
        dump(settings, {"url": address})


def _check_page(job: pb.Job, port_name: str) -> None:
    """Raises CliError where it has no page, or will not have one again."""
    from vgpud.client import calls
    from vgpud.core.jobs import session as sessions
    from vgpud.v1alpha1 import words

    if job.state in calls.ENDED:
        why = f"`vgpu session logs {job.job_id}` says why; " if job.state == words.JOB_STATE.to_number("failed") else ""
        raise CliError(f"{_describe(job)}: {why}start another one", ExitCode.CONFLICT)
    if job.spec.session == sessions.SHELL:
        raise CliError(f"session {job.job_id} is a terminal: `vgpu session open {job.job_id}` joins it", ExitCode.USAGE)
    if port_name and port_name not in job.spec.session_ports:
        names = ", ".join(job.spec.session_ports) or "it has its own port only"
        raise CliError(f"session {job.job_id} has no port {port_name!r}: {names}", ExitCode.NOT_FOUND)


def _direct_address(job: pb.Job, api_socket: str | None, port_name: str) -> str:
    """Raises CliError where there is none, or none that is the caller's, or another user's program listens there."""
    from vgpud.cli.common.local_ports import find_listener, may_serve
    from vgpud.core.jobs import session as sessions

    if api_socket is None:
        text = (
            f"session {job.job_id} is on {job.node}, at a port of that machine only: `vgpu session open {job.job_id}`"
        )
        text += " leads a port here to it, or open it by that node's console"
        raise CliError(text, ExitCode.CONFLICT)
    token = _own_token(job)
    if not job.HasField("session_port"):
        raise CliError(f"{_describe(job)}: it has no address yet", ExitCode.CONFLICT)
    port = job.named_ports[port_name] if port_name else job.session_port
    uid = find_listener(port)
    if uid is None:
        text = f"session {job.job_id} is running, and its program does not listen at port {port} yet"
        raise CliError(f"{text}: `vgpu session logs {job.job_id}` shows what it does", ExitCode.CONFLICT)
    if not may_serve(uid, job.uid, is_published=bool(job.spec.image)):
        text = f"session {job.job_id} does not listen at its port {port}, a program of uid {uid} does"
        raise CliError(f"{text}, which must not get its token: stop it and start another one", ExitCode.DENIED)
    return sessions.direct_url(job.spec.session, job.job_id, port, token, port_name)


@session.command("open", short_help="Open a session from another machine: a port here that leads to it.")
@click.argument("job_id", type=JobId(), metavar="JOB", shell_complete=complete_job)
@click.option("--listen", "local_port", type=click.IntRange(1, 65535), metavar="PORT", help="Port here (default: any).")
@click.option("--port", "port_name", default="", metavar="NAME", help="One of the session's further ports.")
@pass_settings
def open_session(settings: Settings, job_id: int, local_port: int | None, port_name: str) -> int:
    """Print an address on this machine that leads to session JOB, and serve it until Ctrl-C.

    \b
    vgpu --host gpu1:7443 session open 7

    As `ssh -L`, over vgpud's own API: with the certificate of `vgpu context add` from another machine. Only programs of
    your own user on this machine may use the address, which has the session's token. Of a `shell` session it joins the
    terminal.
    """
    from vgpud.cli.common.output import dump, say
    from vgpud.cli.jobs.session_tunnel import Tunnel
    from vgpud.core.jobs import session as sessions

    job = _find_session(settings, job_id)
    if job.spec.session == sessions.SHELL:
        from vgpud.cli.jobs.attach import Options, attach
        from vgpud.cli.jobs.detach_keys import DEFAULT, check_terminal, parse

        check_terminal()
        return attach(settings, job_id, Options(parse(DEFAULT)))
    _check_page(job, port_name)
    token = _own_token(job)

    def announce(port: int) -> None:
        address = sessions.direct_url(job.spec.session, job_id, port, token, port_name)
        if settings.output in ("table", "name"):
            print(address, flush=True)
        else:
            dump(settings, {"url": address})
        say(f"this leads to session {job_id} until you press Ctrl-C")

    Tunnel(settings.host, settings.timeout_s, job_id, port_name, local_port or 0, announce).run()
    return 0


def _own_token(job: pb.Job) -> str:
    """Raises CliError where it is another user's."""
    from vgpud.core.jobs import session as sessions

    token = job.spec.environment.get(sessions.TOKEN)
    if not token:
        raise CliError(f"session {job.job_id} is uid {job.uid}'s: only they may open it", ExitCode.DENIED)
    return token


@session.command("share", short_help="Print a link by which others open a session for a time.")
@click.argument("job_id", type=JobId(), metavar="JOB", shell_complete=complete_job)
@click.option("--for", "span_ns", type=Span(), required=True, metavar="TIME", help="How long it works: 1m to 7d.")
@pass_settings
def share(settings: Settings, job_id: int, span_ns: int) -> None:
    """Print a link that opens session JOB at the console for whoever has it, without a log-in, for a time.

    \b
    vgpu session share 7 --for 1h
    vgpu session shares
    vgpu session unshare 3f2a9c01

    Whoever opens it does everything in the session that you can, as you: a notebook runs programs. It opens this
    session and nothing else, and ends with its time, with the session, or with `vgpu session unshare`.
    """
    from vgpud.cli.common.console_address import share_session
    from vgpud.cli.common.output import dump, say

    job = _find_session(settings, job_id)
    _check_page(job, "")
    _own_token(job)
    url, share_id = share_session(settings, job_id, span_ns // 10**9)
    if settings.output in ("table", "name"):
        print(url, flush=True)
    else:
        dump(settings, {"url": url, "share_id": share_id})
    say(f"who has this link has session {job_id}; `vgpu session unshare {share_id}` ends it")


@session.command("shares", short_help="List links that you have shared.")
@pass_settings
def shares(settings: Settings) -> None:
    """List your links that are valid: to which session, for how long, and when each was last used."""
    from vgpud.cli.common.console_address import list_shares
    from vgpud.cli.common.output import emit, say
    from vgpud.view.session_tables import shares_grid

    rows = list_shares(settings)
    emit(settings, {"shares": rows}, [row["share_id"] for row in rows], lambda: shares_grid(rows))
    if not rows and settings.output == "table":
        say("no link is valid: `vgpu session share JOB --for 1h` makes one")


@session.command("unshare", short_help="End shared links.")
@click.argument("share_ids", nargs=-1, required=True, metavar="LINK...")
@pass_settings
def unshare(settings: Settings, share_ids: tuple[str, ...]) -> None:
    """End links at once, by the names of `vgpu session shares`; pages that they have opened are closed within 10 s."""
    from vgpud.cli.common.console_address import end_share

    for share_id in share_ids:
        end_share(settings, share_id)


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
