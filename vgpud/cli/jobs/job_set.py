"""`vgpu job set`: changes jobs that wait, and the time limit and GPUs of those that run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.completions import complete_queue
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import DEFAULT, Bytes, Gpus, OrDefault, Whole
from vgpud.cli.common.slice_options import build_spec, changed_fields
from vgpud.cli.common.times import Begin, Span
from vgpud.cli.jobs.job import each_job, job_ids_argument
from vgpud.cli.jobs.quantities import Cpus
from vgpud.cli.jobs.submit import MEMBERS_MAX, PRIORITY_MAX

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: keyword -> the field of the API's JobSpec, where the value goes as it is
_PLAIN = {"priority": "priority", "queue": "queue", "gang": "members", "cpus": "cpu_milli", "ram": "ram_bytes"}
_TIMES = {"time_limit": "time_limit", "begin": "begin_time"}
_SIZES = ("gpus", "min_milli", "max_milli", "mem", "mem_min", "mem_max")


@click.command("set", cls=VgpuCommand, short_help="Change priority, time limit, queue or size of jobs.")
@job_ids_argument
@click.option(
    "--priority", type=OrDefault(Whole(-PRIORITY_MAX, PRIORITY_MAX)), metavar="N", help="Higher ones come first."
)
@click.option("--time-limit", type=OrDefault(Span()), metavar="TIME", help="End after this running time: 90s, 2h30m.")
@click.option(
    "--begin", type=OrDefault(Begin()), metavar="TIME", help="Do not start before this time: 2h, 16:00, a date."
)
@click.option("--queue", metavar="NAME", shell_complete=complete_queue, help="Move the job to this queue.")
@click.option("--gpus", type=Gpus(), metavar="F", help="SM time of each member.")
@click.option("--min", "min_milli", type=OrDefault(Gpus(zero=True)), metavar="F", help="Guaranteed SM time.")
@click.option("--max", "max_milli", type=OrDefault(Gpus()), metavar="F", help="Maximum SM time.")
@click.option(
    "--mem", type=OrDefault(Bytes()), metavar="SIZE", help="Device memory of each member; sets minimum and maximum."
)
@click.option("--mem-min", type=OrDefault(Bytes()), metavar="SIZE", help="Guaranteed device memory.")
@click.option("--mem-max", type=OrDefault(Bytes()), metavar="SIZE", help="Maximum device memory.")
@click.option("--gang", type=OrDefault(Whole(1, MEMBERS_MAX)), metavar="N", help="Number of members.")
@click.option("--cpus", type=OrDefault(Cpus()), metavar="N", help="Limit of processors of each member.")
@click.option("--ram", type=OrDefault(Bytes()), metavar="SIZE", help="Limit of host memory.")
@pass_settings
def set_(settings: Settings, /, job_ids: tuple[int, ...], **option_values: Any) -> None:
    """Change waiting JOBs. Other values stay, and each job keeps its place in the order of submission.

    \b
    vgpu job set 12 --priority -5
    vgpu job set 12 13 --gpus 0.25 --mem 4G --queue team
    vgpu job set 12 --time-limit default         as if --time-limit had never been given

    For a running job, only the time limit and --gpus can be changed. Its user may lower the time limit, admins may
    raise it, too. A job with one slice on one device can shrink at any time, and grow into what is free on its device
    while no other job waits. Its programs continue, and its memory stays.
    """
    from vgpud.client import calls

    fields = [f"slice.{field}" for field in changed_fields({name: option_values[name] for name in _SIZES})]
    fields += [field for name, field in _PLAIN.items() if option_values[name] is not None]
    fields += [field for name, field in _TIMES.items() if option_values[name] is not None]
    if not fields:
        raise click.UsageError("specify a change: for example --priority 5 or --time-limit 2h")
    spec = _spec(option_values)
    each_job(settings, job_ids, lambda client, job_id: client.send(calls.update_job(job_id, spec, fields)), "changed")


def _spec(option_values: Mapping[str, Any]) -> pb.JobSpec:
    from google.protobuf.duration_pb2 import Duration

    from vgpud.v1alpha1 import vgpud_pb2 as pb

    spec = pb.JobSpec(slice=build_spec({name: option_values[name] for name in _SIZES}, is_change=True))
    for name, field in _PLAIN.items():
        if option_values[name] not in (None, DEFAULT):
            setattr(spec, field, option_values[name])
    if option_values["begin"] not in (None, DEFAULT):
        spec.begin_time.FromNanoseconds(option_values["begin"])
    limit_ns = option_values["time_limit"]
    if limit_ns not in (None, DEFAULT):
        spec.time_limit.CopyFrom(Duration(seconds=limit_ns // 10**9, nanos=limit_ns % 10**9))
    return spec
