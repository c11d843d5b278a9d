"""`vgpu service`: programs that answer requests at one address, on slices."""

from __future__ import annotations

import secrets
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import LazyGroup, Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Whole
from vgpud.cli.services.options import (
    REPLICAS_MAX,
    SECTIONS,
    UPDATE_SECTIONS,
    build_template,
    change_template,
    changed_fields,
    changed_health,
    check_record,
    env_option,
    image_option,
    job_options,
    service_options,
    size_options,
)
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.services.core.model import Service
    from vgpud.services.shell.control_client import Balancer
    from vgpud.services.shell.folder import Folder
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: how long `start` waits for the balancer to answer
START_S = 30.0
_TOKEN_BYTES = 24
_LISTED = "vgpud.cli.services.listing"


@click.group(
    "service",
    cls=LazyGroup,
    lazy={
        "ls": (f"{_LISTED}:ls", "List services."),
        "show": (f"{_LISTED}:show", "Show a service and its replicas."),
        "logs": (f"{_LISTED}:logs", "Show the output of a replica."),
        "url": (f"{_LISTED}:url", "Print the address of a service, or its token."),
    },
    short_help="Programs that answer requests at one address, on slices.",
)
def service_group() -> None:
    """Programs that answer requests, on slices, behind one address that passes requests on to those that are healthy.

    \b
    vgpu service start --gpus 0.5 --replicas 2 --port 8000 --name chat -- vllm serve MODEL
    vgpu service show chat
    vgpu service update chat --gpus 0.25        one replica after the other, without a failed request
    vgpu service stop chat

    A replica is a job: it waits for capacity like any other, and `vgpu job ls` shows it.
    """


def split_address(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, int]:
    host, _, port = (value or "127.0.0.1:0").rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not port.isdigit() or int(port) > 65535:
        raise click.BadParameter(f"{value!r}: write PORT, or HOST:PORT", ctx, param)
    return host, int(port)


@service_group.command(
    "start",
    cls=VgpuCommand,
    sections=SECTIONS,
    short_help="Start a service.",
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
)
@click.option("--name", metavar="NAME", help="Name of the service (default: the program's).")
@click.option(
    "--listen",
    "--port",
    callback=split_address,
    metavar="[HOST:]PORT",
    help="Where it listens (default: at 127.0.0.1, at a port that stays the same).",
)
@size_options
@service_options
@job_options
@image_option
@env_option
@click.option("-q", "--quiet", is_flag=True, help="Print only the name.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[COMMAND] [ARG]...")
@pass_settings
def start(
    settings: Settings,
    /,
    name: str | None,
    listen: tuple[str, int],
    quiet: bool,
    command: tuple[str, ...],
    **option_values: Any,
) -> None:
    """Start a service, and print its name. Its replicas start, as you, as soon as enough capacity is free.

    \b
    vgpu service start --gpus 0.5 --port 8000 -- vllm serve MODEL
    vgpu service start --gpus 0.25 --replicas 3 --health-http /health -- ./serve.sh
    vgpu service start --gpus 0.25 --scale-to-zero 10m --health-http /health -- ./serve.sh
    vgpu service start --gpus 0.5 --image IMAGE --health-http /health -- ./serve.sh

    A program listens at VGPU_SERVICE_HOST and VGPU_SERVICE_PORT, which is another port for each replica, and should
    refuse requests without `Authorization: Bearer VGPU_SERVICE_TOKEN`, which the balancer shows it. `vllm serve` is
    given all three by itself. Of a size, what is not given follows from --gpus. `vgpu docs services` has more.
    """
    from vgpud.cli.common.output import say
    from vgpud.cli.common.target import check_local
    from vgpud.cli.jobs.container_options import find_environment
    from vgpud.cli.services.balancer import ask, check_installed, find_balancer
    from vgpud.services.core.programs import name_of, usual_health_path
    from vgpud.services.shell.folder import folder_of
    from vgpud.services.shell.starting import check_port, choose_port, keep_address
    from vgpud.view.services import url_of

    check_local(settings, "vgpu service start", "log in there and start it")
    check_installed()
    environment = find_environment(settings, option_values["environment"])
    if option_values["gpus"] is None and not (environment and environment.defaults.slice.gpus_milli):
        raise click.UsageError("specify the size of a replica: for example --gpus 0.5")
    command = command or tuple(environment.defaults.command if environment else ())
    image = option_values["image"] or (environment.defaults.image if environment else "")
    if not command and not image:
        raise click.UsageError("specify a program: for example vgpu service start --gpus 0.5 -- vllm serve MODEL")
    name = name or name_of(command or (environment.name if environment else image,))
    template = build_template(option_values, command, environment)
    service = _new_service(name, listen, template, option_values, usual_health_path(command))
    there = find_balancer(settings, name)
    if there is not None:
        text = f"service {name} runs already (its balancer is job {there.job.job_id}):"
        raise CliError(f"{text} change it with `vgpu service update {name}`, or stop it first", ExitCode.CONFLICT)
    folder = folder_of(name)
    folder.make()
    service = keep_address(folder, service)
    if service.port:
        check_port(service.host, service.port)
    service = choose_port(service)
    folder.save(service)
    balancer = _await_balancer(settings, _submit_balancer(settings, folder, service), folder)
    print(name, flush=True)
    if not quiet:
        status = ask(balancer.status())
        where = f"at {url_of(status)}" if status["port"] else status["trouble"]
        say(f"service {name} {where}; `vgpu service show {name}` shows its replicas")


def _new_service(
    name: str, listen: tuple[str, int], template: pb.JobSpec, option_values: dict[str, Any], health_path: str
) -> Service:
    """Raises UsageError."""
    from google.protobuf import json_format

    from vgpud.services.core.model import Health, Service

    health = changed_health(Health(http_path=health_path), option_values)
    service = Service(name, json_format.MessageToDict(template), secrets.token_hex(_TOKEN_BYTES), health=health)
    service = replace(service, host=listen[0], port=listen[1], **changed_fields(option_values))
    check_record(service)
    return service


def _submit_balancer(settings: Settings, folder: Folder, service: Service) -> int:
    """The job. It has this process's environment: the replicas' is in the record."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.jobs.submit import build_job_spec, inherit_variables, submit
    from vgpud.client import calls
    from vgpud.services.shell.starting import fill_balancer

    usual = submit.make_context("submit", [], resilient_parsing=True).params
    chosen = {**usual, "prediction": None, "gpus": 0}
    spec = build_job_spec(chosen, (), inherit_variables(chosen["no_env"], None))
    fill_balancer(spec, service, str(folder.path))
    spec.log = str(folder.balancer_log).replace("%", "%%")
    spec.directory = str(folder.path)
    with Client(settings) as client:
        return client.send(calls.submit(spec, ""))[0]


def _await_balancer(settings: Settings, job_id: int, folder: Folder) -> Balancer:
    """Until it answers. Raises CliError, with what it has written last."""
    from vgpud.cli.services.balancer import ask, balancer_of
    from vgpud.client import calls

    until_s = time.monotonic() + START_S
    why = ""
    while time.monotonic() < until_s:
        found = balancer_of(settings, job_id)
        try:
            if found.job.state not in calls.ENDED and ask(found.status())["port"]:
                return found
        except CliError as error:
            why = error.message
        if found.job.exit_code in (ExitCode.NOT_RUNNABLE, ExitCode.COMMAND_NOT_FOUND):
            text = f"the balancer, job {job_id}, cannot be run: it is started, as you, by the Python of the daemon"
            raise CliError(f"{text}; install vgpud where all users may read it", ExitCode.DENIED)
        if found.job.state in calls.ENDED or found.job.attempt > 1:
            break
        time.sleep(0.1)
    said = _last_line(folder)
    raise CliError(f"the balancer, job {job_id}, has not started: {said or why}", ExitCode.OTHER)


def _last_line(folder: Folder) -> str:
    try:
        lines = folder.balancer_log.read_text(errors="replace").split("\n")
    except OSError:
        return ""
    return next((line for line in reversed(lines) if line.strip()), "")


@service_group.command(
    "update",
    cls=VgpuCommand,
    sections=UPDATE_SECTIONS,
    short_help="Change a service; its replicas are replaced one at a time.",
    context_settings={"ignore_unknown_options": False},
)
@size_options
@service_options
@image_option
@env_option
@click.argument("name", metavar="NAME")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARG]...]")
@pass_settings
def update(settings: Settings, /, name: str, command: tuple[str, ...], **option_values: Any) -> None:
    """Change service NAME: what is not given stays. Another size, command or environment replaces the replicas, one at
    a time: a new one is healthy before an old one ends. That needs the capacity of one more for a while.

    --gpus, --min, --max, --mem, --mem-min, --mem-max and --spread are changed together: give --gpus, and all of the
    others that are not to have their defaults. All other options are changed one by one.

    \b
    vgpu service update chat --gpus 0.25 --mem 40G
    vgpu service update chat --scale-to-zero 10m --replicas 2
    vgpu service update chat -- vllm serve ANOTHER-MODEL
    """
    from google.protobuf import json_format

    from vgpud.cli.common.output import say
    from vgpud.cli.services.balancer import ask, need_balancer

    balancer = need_balancer(settings, name)
    before = ask(balancer.record())
    template = json_format.MessageToDict(change_template(before.template, option_values, command))
    health = changed_health(before.health, option_values)
    after = replace(before, template=template, health=health, **changed_fields(option_values))
    if after == before:
        raise click.UsageError("nothing is changed: give an option, or a command")
    if after.template != before.template:
        after = replace(after, generation=before.generation + 1)
    check_record(after)
    ask(balancer.change(after))
    if after.generation == before.generation:
        say(f"service {name} is changed, and its replicas stay")
    else:
        _say_replaced(name)


def _say_replaced(name: str) -> None:
    from vgpud.cli.common.output import say

    say(f"service {name}: its replicas are replaced; `vgpu service show {name}` shows how far it is")


@service_group.command("scale", short_help="Change the number of replicas.")
@click.argument("name", metavar="NAME")
@click.argument("replicas", type=Whole(0, REPLICAS_MAX), metavar="N")
@pass_settings
def scale(settings: Settings, name: str, replicas: int) -> None:
    """Give service NAME N replicas. Those that are too many answer what they have, and end."""
    from vgpud.cli.common.output import say
    from vgpud.cli.services.balancer import ask, need_balancer

    balancer = need_balancer(settings, name)
    before = ask(balancer.record())
    ask(balancer.change(replace(before, replicas=replicas)))
    text = f"service {name}: replicas {before.replicas} -> {replicas}"
    say(f"{text}; `vgpu service show {name}` shows how far it is")


@service_group.command("restart", short_help="Replace all replicas, one at a time.")
@click.argument("name", metavar="NAME")
@pass_settings
def restart(settings: Settings, name: str) -> None:
    """Replace the replicas of service NAME by new ones, one at a time: a new one is healthy before an old one ends."""
    from vgpud.cli.services.balancer import ask, need_balancer

    balancer = need_balancer(settings, name)
    record = ask(balancer.record())
    ask(balancer.change(replace(record, generation=record.generation + 1)))
    _say_replaced(name)


@service_group.command("stop", short_help="End services.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@pass_settings
def stop(settings: Settings, names: tuple[str, ...]) -> None:
    """End services: their replicas answer what they have, then end. Address, token and logs stay for a later start."""
    for name in names:
        _stop_one(settings, name)


def _stop_one(settings: Settings, name: str) -> None:
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.cli.services.balancer import ask, find_balancer, find_jobs
    from vgpud.client import calls
    from vgpud.core.jobs.session import REPLICA

    balancer = find_balancer(settings, name)
    why = ""
    if balancer is not None:
        try:
            ask(balancer.stop())
            say(f"service {name} ends: its replicas answer what they have first")
            return
        except CliError as error:
            why = f" ({error.message})"
    left = find_jobs(settings, REPLICA, name)
    if balancer is None and not left:
        raise CliError(f"no service {name} runs: `vgpu service ls` lists yours", ExitCode.NOT_FOUND)
    with Client(settings) as client:  # without a balancer: its jobs are cancelled as they are
        for job_id in [*([balancer.job.job_id] if balancer else ()), *(job.job_id for job in left)]:
            client.send(calls.cancel(job_id))
    say(f"service {name}: its jobs were cancelled without a drain{why}")
