"""The options of `vgpu service start` and `vgpu service update`, and the record that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.completions import complete_queue
from vgpud.cli.common.quantities import Bytes, Whole
from vgpud.cli.common.slice_options import build_spec, check_latency, list_fields, spec_options
from vgpud.cli.common.times import Span
from vgpud.cli.jobs.container_options import environment_option, registry_option, volume_option
from vgpud.cli.jobs.quantities import Cpus, Variable

if TYPE_CHECKING:
    from vgpud.services.core.model import Health, Service
    from vgpud.v1alpha1 import vgpud_pb2 as pb

F = TypeVar("F", bound=Callable[..., Any])
_NS = 1_000_000_000
#: as in vgpud.services.core.model, whose words these are
RESTARTS, REPLICAS_MAX = ("always", "on-failure", "never"), 64
SIZES = (
    *("gpus", "min_milli", "max_milli", "mem", "mem_min", "mem_max", "service_class", "weight", "spread"),
    *("mem_swap", "idle_after_ns", "copy_max_milli"),
)
#: of these, what is changed together
WHOLE = {"gpus", "min_milli", "max_milli", "mem", "mem_min", "mem_max", "spread"}
SECTIONS = {
    "Size of each replica": (*SIZES, "cpus", "ram", "queue", "preemptible"),
    "Replicas": ("replicas", "restart", "scale_to_zero", "wake", "drain"),
    "Health": ("health_http", "health_cmd", "health_every", "health_deadline", "start_limit"),
    "Address": ("listen", "public", "no_repeat"),
    "What runs, and where": ("name", "directory", "env", "no_env"),
    "In an image": ("environment", "image", "volumes", "registry_auth"),
}
#: of the replicas' job, beside its size
_OF_JOBS = ("cpus", "ram", "queue", "directory", "env", "no_env", "image", "environment", "volumes", "registry_auth")
#: only for a service that is started
_OF_START = {"cpus", "ram", "queue", "preemptible", "listen", "name", "directory", "no_env"}
_OF_START |= {"environment", "volumes", "registry_auth"}
UPDATE_SECTIONS = {title: tuple(name for name in names if name not in _OF_START) for title, names in SECTIONS.items()}

_SERVICE = (
    click.option("--replicas", type=Whole(0, REPLICAS_MAX), metavar="N", help="How many answer requests (default: 1)."),
    click.option(
        "--restart",
        type=click.Choice(RESTARTS),
        help="Which replicas are replaced when they end (default: always). Waits longer each time, up to 5 minutes.",
    ),
    click.option(
        "--scale-to-zero",
        type=Span(zero=True),
        metavar="TIME",
        help="Without requests for this time, give the GPUs to others; the next request wakes it. 0s: never (default)."
        " (--idle-after: without work on the GPU, its memory alone.)",
    ),
    click.option(
        "--wake",
        type=Span(),
        metavar="TIME",
        help="How long a request waits for a replica that can answer it (default: 2m).",
    ),
    click.option(
        "--drain",
        type=Span(zero=True),
        metavar="TIME",
        help="How long one that is to end may answer (default: 30s).",
    ),
    click.option("--health-http", metavar="PATH", help="Check replicas by GET PATH: 200 to 399 is healthy."),
    click.option(
        "--health-cmd",
        metavar="COMMAND",
        help="Check replicas by a shell command, as you, with VGPU_SERVICE_PORT: 0 is healthy.",
    ),
    click.option("--health-every", type=Span(), metavar="TIME", help="Check this often (default: 5s)."),
    click.option(
        "--health-deadline", type=Span(), metavar="TIME", help="A check that takes longer has failed (default: 2s)."
    ),
    click.option(
        "--start-limit",
        type=Span(),
        metavar="TIME",
        help="End a replica that is not healthy by then, and start another one (default: 10m).",
    ),
    click.option("--public/--private", default=None, help="Answer requests without the service's token, too."),
    click.option(
        "--no-repeat/--repeat",
        default=None,
        help="Do not send a POST again where a replica has died without an answer: it may have done its work.",
    ),
)


def service_options(function: F) -> F:
    """Those of both commands that are not of its jobs."""
    for option in reversed(_SERVICE):
        function = option(function)
    return function


def size_options(function: F) -> F:
    return partial(spec_options, excluded_names=("priority", "copy_min_milli"))(function)


_JOB = (
    click.option("--cpus", type=Cpus(), metavar="N", help="Limit of processors (default: none)."),
    click.option("--ram", type=Bytes(), metavar="SIZE", help="Limit of host memory (default: none)."),
    click.option("--queue", metavar="NAME", shell_complete=complete_queue, help="Queue (default: yours)."),
    click.option("--preemptible", is_flag=True, help="Let jobs that go first pause, move or restart replicas."),
    click.option("-C", "--directory", type=click.Path(), metavar="DIR", help="Working directory (default: this one)."),
    click.option("--no-env", is_flag=True, help="Pass on only HOME, PATH, LANG and the like of your environment."),
    environment_option,
    volume_option,
    registry_option,
)
image_option = click.option(
    "--image", metavar="IMAGE", help="Run replicas in containers of this image; its program, unless you name another."
)

env_option = click.option(
    "--env",
    type=Variable(),
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Set a variable; NAME alone passes on its present value.",
)


def job_options(function: F) -> F:
    for option in reversed(_JOB):
        function = option(function)
    return function


def build_template(
    option_values: Mapping[str, Any], command: Sequence[str], environment: pb.Environment | None
) -> pb.JobSpec:
    """The job of a replica, with this process's environment and directory. `environment`: the site's, if it has one."""
    from vgpud.cli.jobs.submit import build_job_spec, inherit_variables, submit
    from vgpud.core.jobs.session import REPLICA
    from vgpud.services.core.programs import complete_command

    usual = submit.make_context("submit", [], resilient_parsing=True).params
    known = {name: option_values[name] for name in (*SIZES, *_OF_JOBS)}
    chosen = {**usual, "prediction": None, **known, "no_preempt": not option_values["preemptible"]}
    image = option_values["image"] or (environment.defaults.image if environment else "")
    # this machine's values mean nothing in an image
    inherited = {} if image else inherit_variables(chosen["no_env"], environment)
    spec = build_job_spec(chosen, complete_command(command), inherited)
    spec.session = REPLICA
    return spec


def change_template(
    template: Mapping[str, Any], option_values: Mapping[str, Any], command: Sequence[str]
) -> pb.JobSpec:
    """The same job with what these options change. SM time, memory and spread are given as a whole, with --gpus.
    Raises UsageError."""
    from google.protobuf import json_format

    from vgpud.services.core.programs import complete_command
    from vgpud.v1alpha1 import vgpud_pb2 as pb
    from vgpud.v1alpha1.words import SERVICE_CLASS

    spec = json_format.ParseDict(dict(template), pb.JobSpec())
    sizes = {name: option_values[name] for name in SIZES if option_values[name] is not None}
    if "gpus" in sizes:
        for name in WHOLE:
            for field in list_fields(name):
                spec.slice.ClearField(field)
    elif sizes.keys() & WHOLE:
        raise click.UsageError("a size is changed as a whole: give --gpus as well")
    change = build_spec(sizes, is_change="gpus" not in sizes)
    for name in sizes:
        for field in list_fields(name):
            setattr(spec.slice, field, getattr(change, field))
    size = spec.slice
    service_class = SERVICE_CLASS.to_word(size.service_class)
    check_latency({"service_class": service_class, "mem_swap": size.mem_swap, "idle_after_ns": size.idle_after_ns})
    if option_values["image"]:
        spec.image = option_values["image"]
    if command:
        del spec.command[:]
        spec.command.extend(complete_command(command))
    for name, value in option_values["env"]:
        spec.environment[name] = value
    return spec


def changed_fields(option_values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the record, but for its template and its health, that these options set."""
    fields: dict[str, Any] = {}
    for name in ("replicas", "restart"):
        if option_values[name] is not None:
            fields[name] = option_values[name]
    for name, field in (("scale_to_zero", "idle_s"), ("wake", "wake_s"), ("drain", "drain_s")):
        if option_values[name] is not None:
            fields[field] = option_values[name] / _NS
    if option_values["public"] is not None:
        fields["is_public"] = option_values["public"]
    if option_values["no_repeat"] is not None:
        fields["repeats"] = not option_values["no_repeat"]
    return fields


def changed_health(health: Health, option_values: Mapping[str, Any]) -> Health:
    """The same with what these options change: a path or a command takes the place of the other."""
    from dataclasses import replace

    path, command = option_values["health_http"], option_values["health_cmd"]
    if path is not None or command is not None:
        health = replace(health, http_path=path or "", command=command or "")
    pairs = (("health_every", "every_s"), ("health_deadline", "deadline_s"), ("start_limit", "start_s"))
    spans = {field: option_values[name] / _NS for name, field in pairs if option_values[name] is not None}
    return replace(health, **spans)


def check_record(service: Service) -> None:
    """Raises UsageError."""
    from vgpud.services.core.model import RecordError, check

    try:
        check(service)
    except RecordError as error:
        raise click.UsageError(str(error)) from error
