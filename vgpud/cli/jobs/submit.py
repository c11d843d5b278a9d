"""`vgpu submit`: queues a job, which runs as the submitting user, in this directory and with this environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common import cluster_option
from vgpud.cli.common.completions import complete_queue
from vgpud.cli.common.exits import failures_are_125
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Bytes, Number, Whole
from vgpud.cli.common.slice_options import build_spec, spec_options
from vgpud.cli.common.times import Begin, Span
from vgpud.cli.jobs import container_options, directives, elastic_options, job_file, submit_cluster, templates
from vgpud.cli.jobs.after_options import NAMES, after_options, dependencies
from vgpud.cli.jobs.detach_keys import check_pty, detach_keys_option
from vgpud.cli.jobs.ending_options import ending_options, fill_ending
from vgpud.cli.jobs.notify_options import fill_notification, notify_options
from vgpud.cli.jobs.predicted_options import fill, predict_options
from vgpud.cli.jobs.predicted_run import fill_from_run, predict_run_option
from vgpud.cli.jobs.quantities import Array, Cpus, RequestId, Variable, jobs_text
from vgpud.cli.jobs.tuned_options import fill_from_tune, refuse_elsewhere
from vgpud.client.arrays import set_array
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: variables that --no-env keeps
_KEPT = ("HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "XDG_RUNTIME_DIR")
#: as in vgpud.core.queue.check, whose import would take longer than everything else
MEMBERS_MAX, RETRIES_MAX, PRIORITY_MAX = 1024, 1000, 1000
#: keywords of submit() that are fields of JobSpec as they are
_PLAIN = ("name", "queue", "priority", "retries", "hold", "image", "skew", "log")


class SubmitCommand(VgpuCommand):
    """With --wait or --pty it exits with the job's code, so failures of vgpu itself are 125, as for `vgpu run`.

    A job script's `#VGPU` lines are read before the options, whose defaults they are.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if ctx.resilient_parsing else directives.read(ctx, args))

    def invoke(self, ctx: click.Context) -> Any:
        with failures_are_125() if ctx.params.get("wait") or ctx.params.get("pty") else nullcontext():
            try:
                return super().invoke(ctx)
            except CliError as error:
                if template := ctx.meta.get(templates.META):
                    raise CliError(f"template {template}: {error.message}", error.exit_code) from error
                raise


#: title in `vgpu submit --help` -> names of its options' parameters
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "Size": (
        *("gpus", "min_milli", "max_milli", "mem", "mem_min", "mem_max", "gang", "cpus", "ram", "devices", "spread"),
        *("service_class", "weight", "mem_swap", "idle_after_ns", "skew"),
    ),
    "Order and time": (
        *("queue", "priority", "time_limit", "begin", "expected", "hold", *NAMES, "array", "retries"),
        *("signal", "grace", "no_preempt"),
    ),
    "What runs, and where": (
        *("file", "template", "environment", "image", "volumes", "ports", "registry_auth"),
        *("directory", "log", "env", "no_env", "name", "pty", "detach_keys"),
    ),
    "Elastic jobs": ("workers", "heuristic", "utility", "batch", "batch_max"),
    "Sizes that are predicted": ("predict", "predict_run", "optimizer", "precision", "dims", "predictor"),
    "Notifications": ("notify", "notify_mail", "notify_webhook", "notify_command"),
    "Over a Slurm cluster": ("over_cluster", "run_dir", "partition", "gpu_model", "model", "dry_run"),
}


@click.command(
    "submit",
    cls=SubmitCommand,
    sections=SECTIONS,
    short_help="Queue a job; it starts when enough capacity is free.",
    context_settings={"allow_interspersed_args": False},
)
@click.option(
    "-f",
    "--file",
    type=click.Path(exists=False, dir_okay=False, path_type=Path),
    metavar="JOB.TOML",
    is_eager=True,
    expose_value=False,
    callback=job_file.read,
    help="Read these options from a file; the command line overrides it.",
)
@templates.template_option
@submit_cluster.cluster_options
@elastic_options.elastic_options
@predict_options
@predict_run_option
@partial(spec_options, excluded_names=("gpus", "priority", "copy_min_milli"))
@click.option(
    "--device", "devices", multiple=True, metavar="GPU", help="Only on this device, by index or UUID; repeatable."
)
@click.option(
    "--gang",
    type=Whole(1, MEMBERS_MAX),
    metavar="N",
    help="N members, each with these resources: all start together or none does.",
)
@click.option("--cpus", type=Cpus(), metavar="N", help="Limit of processors of each member (default: none).")
@click.option("--ram", type=Bytes(), metavar="SIZE", help="Limit of host memory (default: none).")
@click.option("--name", metavar="NAME", help="Name of the job (default: the script's, module's or program's).")
@click.option("--queue", metavar="NAME", shell_complete=complete_queue, help="Queue (default: yours).")
@click.option(
    "--priority",
    type=Whole(-PRIORITY_MAX, PRIORITY_MAX),
    metavar="N",
    help="Higher ones come first, if the policy uses priorities. Above the site's job_priority_max (0): admins only.",
)
@click.option("--time-limit", type=Span(), metavar="TIME", help="End the job after this running time: 90s, 45m, 2h30m.")
@ending_options
@click.option(
    "--begin",
    type=Begin(),
    metavar="TIME",
    help="Do not start before this time: 2h (from now), 16:00, 2027-01-15T08:00.",
)
@click.option("--expected", type=Span(), metavar="TIME", help="Expected duration; some policies use it.")
@click.option("--retries", type=Whole(0, RETRIES_MAX), metavar="N", help="Retry up to N times on failure.")
@after_options
@click.option(
    "--array",
    type=Array(),
    metavar="1-8",
    help="One job for each index (VGPU_ARRAY_INDEX): 1-8; 1,3,5; 0-9:2 (every second); 1-10%2 (two at once).",
)
@click.option("--hold", is_flag=True, help="Wait for `vgpu job release`.")
@click.option("--image", metavar="IMAGE", help="Run in a container of this image, with --env's variables.")
@container_options.container_options
@click.option("-C", "--directory", type=click.Path(), metavar="DIR", help="Working directory (default: this one).")
@click.option("--log", metavar="PATH", help="Output file; %j: the job's number, %a: its index (default: vgpu-%j.log).")
@click.option(
    "--env",
    type=Variable(),
    multiple=True,
    metavar="NAME[=VALUE]",
    help="Set a variable; NAME alone passes on its present value.",
)
@click.option("--no-env", is_flag=True, help="Pass on only HOME, PATH, LANG and the like of your environment.")
@notify_options
@click.option(
    "--skew",
    type=Number(0, 1),
    metavar="0..1",
    help="Fraction of a gang's traffic that the largest tensor makes up (placement tiresias).",
)
@click.option("--no-preempt", is_flag=True, help="Never preempt the job.")
@click.option(
    "--request-id",
    type=RequestId(),
    metavar="ID",
    help="Repeat a submission whose answer was lost: within 10 minutes the same ID never queues it twice.",
)
@click.option("-w", "--wait", is_flag=True, help="Wait for the job's end, and exit with its code.")
@click.option("--pty", is_flag=True, help="Run the job at a terminal; yours is connected until you leave it.")
@detach_keys_option
@click.option("-q", "--quiet", is_flag=True, help="Print only the number.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARG]...]")
@click.pass_context
@pass_settings
def submit(
    settings: Settings,
    ctx: click.Context,
    /,
    wait: bool,
    pty: bool,
    detach_keys: bytes,
    quiet: bool,
    request_id: str | None,
    **option_values: Any,
) -> int:
    """Queue COMMAND as a job and print its number. It starts, as you, as soon as enough capacity is free.

    \b
    vgpu submit --gpus 0.5 -- python train.py            half a device, as soon as one is free
    vgpu submit --gpus 0.25..1 -- python train.py        grows while capacity is idle, shrinks when jobs wait
    vgpu submit --gpus 1 --workers 1-8 -- ./train.py     as many workers as pay off and fit
    vgpu submit --predict net:make -- ./train            derives --gpus and --mem from the model graph
    vgpu submit --predict-run -- python train.py         derives them from a run on a SIMULATED device
    vgpu submit --gpus auto -- python train.py           the size that `vgpu tune` has found for it
    vgpu submit --gpus 1 --gang 4 -- ./train             four members: all start together or none does
    vgpu submit --gpus 0.25 --array 1-8 -- ./try.sh      eight jobs; VGPU_ARRAY_INDEX tells them apart
    vgpu submit --gpus 1 --after 12 -- ./evaluate        when job 12 has completed
    vgpu submit --gpus 1 --image my/image -- ./train     in a container
    vgpu submit -E pytorch -- python train.py            in one of the site's environments, with its size
    vgpu submit -f job.toml --gpus 2                     as in the file, but on two devices
    vgpu submit train.sh                                 reads its lines of the form #VGPU --gpus 0.5 --mem 8G
    vgpu submit --wait --gpus 1 -- ./train               wait, and exit with the job's code
    vgpu submit --pty --gpus 0.5 -- bash                 a shell at this terminal; Ctrl-\\ d leaves it running
    vgpu submit --cluster --gpus 8 --gang 4 -- ./train   to Slurm: 8 GPUs on each of 4 nodes, all or none

    While the daemon does not answer, the request is repeated under the same ID for --timeout. If it is still not known
    whether the job was queued, the exit code is 3 or 7 (125 with --wait), and the ID is printed: repeat the command
    with --request-id ID.

    `vgpu job ls` shows jobs and why they wait, `vgpu job logs -f JOB` their output, `vgpu job cancel JOB` ends
    one. `vgpu docs queue` describes the job file.
    """
    from_file = ctx.meta.get(job_file.META, {})
    command = option_values.pop("command") or from_file.get("command", ())
    if cluster_option.check(submit_cluster.INSTEAD, submit_cluster.ONLY):
        from vgpud.cli.cluster import sbatch

        refuse_elsewhere(option_values)
        kept = [name for name in _KEPT if name in os.environ]
        job = submit_cluster.submission({**option_values, "wait": wait}, command, from_file.get("env", ()), kept)
        run = sbatch.Run(option_values["partition"], option_values["run_dir"], option_values["dry_run"], wait, quiet)
        return sbatch.submit(settings, job, run)
    spec = _read_options(settings, option_values, command, dict(from_file.get("env", ())), pty=pty, quiet=quiet)
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    with Client(settings) as client:
        spec.slice.device_uuids.extend(find_device_uuids(client, option_values["devices"]))
        spec.terminal = pty
        ids = client.send(calls.submit(spec, request_id or ""))
    if pty:
        from vgpud.cli.jobs.attach import Options, attach

        return attach(settings, ids[0], Options(detach_keys, quiet=quiet, is_new=True))
    with Client(settings) as client:
        if not wait:
            _tell(settings, client, ids, quiet=quiet, wait=False)
            return 0
        from vgpud.cli.jobs.wait import leaving, wait_for

        with leaving(ids):
            _tell(settings, client, ids, quiet=quiet, wait=True)
            return wait_for(settings, ids, quiet)


def _read_options(
    settings: Settings,
    option_values: dict[str, Any],
    command: Sequence[str],
    file_env: Mapping[str, str],
    *,
    pty: bool,
    quiet: bool,
) -> pb.JobSpec:
    """The API's message, except the devices. Raises UsageError, CliError."""
    environment = container_options.find_environment(settings, option_values["environment"])
    image = option_values["image"] or (environment.defaults.image if environment else "")
    if not (command or image or environment):
        raise click.UsageError("specify a command: for example vgpu submit --gpus 0.5 -- python train.py")
    elastic_options.check({**option_values, "image": image})
    tuned, command = fill_from_tune(settings, option_values, command)
    predicted = fill(settings, option_values) + fill_from_run(settings, option_values, command)
    if (tuned or predicted) and not quiet:  # at most one of the three is not empty
        from vgpud.cli.common.output import say

        say(tuned or predicted)
    if option_values["gpus"] is None and not (environment and environment.defaults.slice.gpus_milli):
        raise click.UsageError("specify a size: for example --gpus 0.5")
    from vgpud.cli.common.target import find_daemon

    if pty:
        check_pty(settings, option_values)
    little = bool(option_values["no_env"]) or find_daemon(settings)[1] is not None
    # this machine's values mean nothing in an image, and little on another machine
    inherited = {} if image else inherit_variables(little, environment)
    return build_job_spec(option_values, command, {**inherited, **file_env})


def build_job_spec(option_values: dict[str, Any], command: Sequence[str], variables: Mapping[str, str]) -> pb.JobSpec:
    """The API's message, except the devices. `variables`: of its environment, beside those of --env."""
    from google.protobuf.duration_pb2 import Duration

    from vgpud.v1alpha1 import vgpud_pb2 as pb

    share = {name: option_values.get(name) for name in _SHARE} | {
        "gpus": elastic_options.least_gpus(option_values) or None
    }
    spec = pb.JobSpec(slice=build_spec(share), members=option_values["gang"] or 1, umask=_umask())
    for name in _PLAIN:
        if option_values[name]:
            setattr(spec, name, option_values[name])
    for field, option in (("time_limit", "time_limit"), ("expected_duration", "expected")):
        if option_values[option]:
            getattr(spec, field).CopyFrom(
                Duration(seconds=option_values[option] // 10**9, nanos=option_values[option] % 10**9)
            )
    container_options.fill_parts(spec, option_values)
    fill_notification(spec, option_values)
    fill_ending(spec, option_values)
    if option_values["begin"]:
        spec.begin_time.FromNanoseconds(option_values["begin"])
    set_array(spec, *(option_values["array"] or ((), 0)))
    for field, job_ids in dependencies(option_values).items():
        getattr(spec, field).extend(job_ids)
    spec.cpu_milli, spec.ram_bytes = option_values["cpus"] or 0, option_values["ram"] or 0
    spec.not_preemptible = option_values["no_preempt"]
    elastic_options.fill(spec, option_values)
    if option_values["prediction"] is not None:
        spec.prediction.CopyFrom(option_values["prediction"])
    spec.directory = (
        os.path.join(_find_working_dir(), option_values["directory"])
        if option_values["directory"]
        else _find_working_dir()
    )
    try:
        spec.command.extend(command)
    except (UnicodeEncodeError, ValueError) as error:
        raise CliError("the command is not UTF-8: put it into a script", ExitCode.USAGE) from error
    for name, value in _texts({**variables, **dict(option_values["env"])}).items():
        spec.environment[name] = value
    return spec


_SHARE = (
    *("min_milli", "max_milli", "mem", "mem_min", "mem_max", "service_class", "weight", "spread"),
    *("mem_swap", "idle_after_ns", "copy_max_milli"),
)


def _find_working_dir() -> str:
    try:
        return os.getcwd()
    except OSError as error:
        raise CliError(f"the working directory is gone ({error.strerror}): give one with --directory") from error


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def inherit_variables(little: bool, environment: pb.Environment | None) -> dict[str, str]:
    """Of this shell; `little`: only those that --no-env keeps; not those that the site's environment has."""
    of_site = environment.defaults.environment if environment else {}
    kept = {k: v for k, v in os.environ.items() if not little or k in _KEPT or k.startswith("LC_")}
    return {name: text for name, text in kept.items() if name not in of_site}


def _texts(variables: Mapping[str, str]) -> dict[str, str]:
    """Variables that are UTF-8, because others cannot be sent; the names of those are printed."""
    from vgpud.cli.common.output import say

    invalid_names = [name for name, value in variables.items() if not _is_text(name + value)]
    if invalid_names:
        say(f"left out of the job's environment, because not UTF-8: {', '.join(map(ascii, invalid_names))}")
    return {name: value for name, value in variables.items() if name not in invalid_names}


def _is_text(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_device_uuids(client: Client, device_names: Sequence[str]) -> list[str]:
    """UUIDs of devices named by index or UUID."""
    from vgpud.client import calls

    if not device_names:
        return []
    devices = client.all(calls.devices())
    by_name = {str(d.index): d.uuid for d in devices} | {d.uuid: d.uuid for d in devices}
    for name in device_names:
        if name not in by_name:
            text = f"no device {name!r}: the devices are {', '.join(str(d.index) for d in devices) or 'none'}"
            raise CliError(text, ExitCode.NOT_FOUND)
    return [by_name[name] for name in device_names]


def _fetch_state(view: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """The job's state; None if the daemon has gone in the meantime: the job is queued all the same."""
    from vgpud.cli.common.output import say

    try:
        return view()
    except CliError as error:
        if not error.is_unanswered:
            raise
        say(f"queued; its state is not known: {error.message}")
        return None


def _tell(settings: Settings, client: Client, ids: Sequence[int], *, quiet: bool, wait: bool) -> None:
    """Prints the number on stdout (of an array: the first and the last), and the job's state on stderr."""
    from vgpud.cli.common.output import dump, say
    from vgpud.client import calls
    from vgpud.view import job_tables, jobs

    if settings.output == "name":
        print("\n".join(map(str, ids)), flush=True)
        return
    if settings.output != "table":
        if not wait:  # with --wait there is one document, at the end
            found = _fetch_state(lambda: jobs.job_view(client.send(calls.job(ids[0])), client.find_simulated_indices()))
            dump(settings, {"job_ids": list(ids), "job": found})
        return
    print(jobs_text(ids), flush=True)
    job = _fetch_state(lambda: jobs.job_view(client.send(calls.job(ids[0])), frozenset()))
    if job is None or quiet or (wait and job["state"] in jobs.ENDED):
        return
    if len(ids) > 1:
        say(f"{len(ids)} jobs, {ids[0]} to {ids[-1]}: `vgpu job cancel {jobs_text(ids)}` would end all")
    text = f"job {ids[0]} ({job_tables.name_label(job)}) {job_tables.state_words(job['state'], job['reason'])}"
    say(text if job["reason"] else f"{text}, its output goes to {job['log']}")
