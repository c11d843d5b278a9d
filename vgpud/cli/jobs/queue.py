"""`vgpu queue`: the queues, their guarantees, limits and rules."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common import cluster_option
from vgpud.cli.common.completions import complete_queue
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.quantities import DEFAULT, AnyParam, Bytes, OrDefault, Whole
from vgpud.cli.common.times import Span
from vgpud.cli.common.watching import ListCommand
from vgpud.cli.jobs.quantities import Cpus
from vgpud.core.units import MILLI_PER_DEVICE, UnitError, format_gpus, parse_gpus

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: keyword of set_() -> field of the API's queue
_FIELDS = {
    "guarantee": "guarantee_milli",
    "limit": "limit_milli",
    "weight": "weight",
    "policy": "policy",
    "placement": "placement",
    "parent": "parent",
    "min_run": "min_run",
    "elastic_wait": "elastic_wait",
    "elastic_idle": "elastic_idle",
    "elastic_eager": "elastic_eager",
    "cpus": "cpu_limit_milli",
    "ram": "ram_limit_bytes",
    "strict": "strict",
    "backfill": "backfill",
    "spread": "spread",
    "members": "members",
}
_SPANS = ("min_run", "elastic_wait", "elastic_idle")
_MEMBER = "uid:1000, gid:1000, a user's name or @GROUP"


class Gpus(AnyParam):
    """GPUs of a whole cluster, at most three decimals; becomes milli-GPU."""

    name = "gpus"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        whole, point, part = str(value).strip().partition(".")
        try:  # a cluster may have more whole devices than parse_gpus() lets a node have
            rest = parse_gpus(f"0.{part}" if point else "0", zero=True)
        except UnitError as error:
            self.fail(str(error), param, ctx)
        if not (whole.isascii() and whole.isdigit() and len(whole) <= 6):
            self.fail(f"{str(value)!r} is not a number of GPUs: write for example 0, 0.5 or 16", param, ctx)
        return int(whole) * MILLI_PER_DEVICE + rest


class Member(AnyParam):
    """A user or group whose default queue it is, as the API has it: uid:1000 or gid:1000."""

    name = "member"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        import grp
        import pwd

        text = str(value)
        kind, colon, number = text.partition(":")
        if text == DEFAULT or (colon and kind in ("uid", "gid") and number.isascii() and number.isdigit()):
            return text
        try:
            if text.startswith("@"):
                return f"gid:{grp.getgrnam(text[1:]).gr_gid}"
            return f"uid:{pwd.getpwnam(text).pw_uid}"
        except KeyError:
            self.fail(f"there is no user or group {text!r}: write {_MEMBER}", param, ctx)


#: names of before the first release
OLD_NAMES = {
    name: (f"vgpud.cli.jobs.job:job.{name}", f"vgpu job {name}")
    for name in ("show", "cancel", "hold", "release", "requeue", "logs", "attach", "wait", "top")
}
OLD_NAMES["get"] = ("vgpud.cli.jobs.queue:queue.ls", "vgpu queue ls")


@click.group(
    "queue", cls=LazyGroup, old_names=OLD_NAMES, short_help="Show and set queues: guarantees, limits, policies."
)
def queue() -> None:
    """Show and set queues. Users see the queues that they may use; admins create and change them."""


def _show(settings: Settings, queues: Sequence[Any], many: bool) -> None:
    from vgpud.cli.common.output import emit
    from vgpud.view import job_tables
    from vgpud.view.jobs import queue_view

    rows = [queue_view(item) for item in queues]
    data: dict[str, Any] = {"queues": rows} if many else {"queue": rows[0]}
    emit(settings, data, [row["name"] for row in rows], lambda: job_tables.queues_grid(rows))


@queue.command("ls", cls=ListCommand, short_help="Show queues, their quotas and their use.")
@click.argument("name", required=False, metavar="[QUEUE]", shell_complete=complete_queue)
@cluster_option.with_run_dir("Queues over a Slurm cluster")
@pass_settings
def ls(settings: Settings, name: str | None, run_dir: Path | None, over_cluster: bool) -> None:
    """Show the queues that you may use, or QUEUE: guarantee, limit, present use and rules.

    GPU-TIME is past use, halved every half-life: shares beyond the guarantees depend on it.
    """
    if cluster_option.check({}):
        from vgpud.cli.cluster import listing

        listing.quota(settings, run_dir, name)
        return
    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.core.slices.queue_quota import name_queues
    from vgpud.errors import CliError, ExitCode

    with Client(settings) as client:
        queues = client.all(calls.queues())
    if name is not None:
        names = [item.name for item in queues]
        if name not in names:
            text = f"no queue {name!r} that you may use: {name_queues(names)}"
            raise CliError(text, ExitCode.NOT_FOUND)
        queues = [item for item in queues if item.name == name]
    _show(settings, queues, many=name is None)


def _rules() -> str:
    """All policies and placements (\\b: click keeps the lines)."""
    from vgpud.core.placement import registry as placements
    from vgpud.core.policy import registry as policies

    def table(title: str, names: dict[str, str]) -> str:
        return "\n".join([f"\b\n{title}:", *(f"{name:<10}  {line}" for name, line in names.items())])

    return table("Policies", policies.NAMES) + "\n\n" + table("Placements", placements.NAMES)


@queue.command("set", short_help="Create or change a queue.", epilog=_rules())
@click.argument("name", metavar="QUEUE", shell_complete=complete_queue)
@click.option(
    "--guarantee", type=OrDefault(Gpus()), metavar="GPUS", help="Guaranteed GPUs, reclaimed by preemption (default: 0)."
)
@click.option("--limit", type=OrDefault(Gpus()), metavar="GPUS", help="Hard limit in GPUs (default: none).")
@click.option(
    "--weight",
    type=OrDefault(Whole(1, 10_000)),
    metavar="N",
    help="Share of capacity beyond the guarantees (default: 1).",
)
@click.option("--policy", metavar="POLICY", help="Order of jobs: fifo, '2d-las(3250,7200)', ... (default: 2d-gittins).")
@click.option("--placement", metavar="RULE", help="Choice of devices: best-fit, fgd, 'colocate(120,2)', ...")
@click.option("--parent", metavar="QUEUE", shell_complete=complete_queue, help="Parent queue (default: none).")
@click.option(
    "--min-run", type=OrDefault(Span(zero=True)), metavar="TIME", help="No job is preempted earlier (default: 60s)."
)
@click.option(
    "--elastic-wait",
    type=OrDefault(Span(zero=True)),
    metavar="TIME",
    help="Elastic jobs shrink for a job that has waited longer (default: 30s).",
)
@click.option(
    "--elastic-idle",
    type=OrDefault(Span(zero=True)),
    metavar="TIME",
    help="Elastic jobs grow when nothing has changed for this long (default: 60s).",
)
@click.option(
    "--elastic-eager/--no-elastic-eager",
    default=None,
    help="Elastic jobs take all they can use before jobs behind them start; otherwise those start first.",
)
@click.option("--cpus", type=OrDefault(Cpus()), metavar="N", help="Limit of processors (default: none).")
@click.option("--ram", type=OrDefault(Bytes()), metavar="SIZE", help="Limit of the host's memory (default: none).")
@click.option("--strict/--no-strict", default=None, help="The first job that does not fit keeps the others waiting.")
@click.option("--backfill/--no-backfill", default=None, help="With --strict: jobs that end in time may overtake it.")
@click.option("--spread/--pack", default=None, help="Spread jobs over many devices, or pack them (default: pack).")
@click.option(
    "--member", "members", type=Member(), multiple=True, metavar="WHO", help=f"Only for these users: {_MEMBER}."
)
@cluster_option.with_run_dir("A queue over a Slurm cluster: says which file to change")
@pass_settings
def set_(settings: Settings, /, name: str, run_dir: Path | None, over_cluster: bool, **option_values: Any) -> None:
    """Create QUEUE, or change it while its jobs wait and run; other values stay.

    \b
    vgpu queue set vision --guarantee 2 --limit 4 --weight 3 --member @vision
    vgpu queue set vision-ann --parent vision --limit 1 --member ann
    vgpu queue set vision --policy '2d-las(3250,7200)' --min-run 5m
    vgpu queue set vision --limit default                as if --limit had never been given

    "default" resets any value. A queue is the default queue of its members. Only they and the members of its parent may
    use it; if neither it nor its parent has members, all users may.
    """
    if name.isdecimal():  # as typed before jobs had a command of their own: it would make a queue of this name
        raise click.UsageError(f"{name} is a number, as of a job: change job {name} with `vgpu job set {name}`")
    _check_over_cluster(run_dir)
    asked = {key: value for key, value in option_values.items() if value not in (None, ())}
    if not asked:
        raise click.UsageError("specify a value: for example --limit 4")
    low, high = asked.get("guarantee", DEFAULT), asked.get("limit", DEFAULT)
    if DEFAULT not in (low, high) and low > high:
        text = f"--guarantee {format_gpus(low)} is more than --limit {format_gpus(high)}"
        raise click.UsageError(f"{text}: lower --guarantee or raise --limit")
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    with Client(settings) as client:
        _show(
            settings, [client.send(calls.set_queue(_message(name, asked), [_FIELDS[key] for key in asked]))], many=False
        )


def _check_over_cluster(run_dir: Path | None) -> None:
    """Queues over a cluster are in a file. Raises UsageError that names it."""
    if cluster_option.check({}):
        from vgpud.cli.cluster import listing

        raise click.UsageError(listing.how_to_set_queues(run_dir))


def _message(name: str, option_values: dict[str, Any]) -> pb.Queue:
    """The fields with a value; fields that are reset to their default are left out."""
    from google.protobuf.duration_pb2 import Duration

    from vgpud.v1alpha1 import vgpud_pb2 as pb

    queue = pb.Queue(name=name)
    for key, value in option_values.items():
        if value == DEFAULT or value == (DEFAULT,):
            continue
        if key == "members":
            queue.members.extend(value)
        elif key in _SPANS:
            getattr(queue, key).CopyFrom(Duration(seconds=value // 10**9, nanos=value % 10**9))
        else:
            setattr(queue, _FIELDS[key], value)
    return queue


@queue.command("rm", short_help="Remove empty queues.")
@click.argument("names", nargs=-1, required=True, metavar="QUEUE...", shell_complete=complete_queue)
@cluster_option.with_run_dir("A queue over a Slurm cluster: says which file to change")
@pass_settings
def rm(settings: Settings, names: tuple[str, ...], run_dir: Path | None, over_cluster: bool) -> None:
    """Remove queues that no job, slice or other queue is in."""
    _check_over_cluster(run_dir)
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.client import calls

    with Client(settings) as client:
        for name in names:
            client.send(calls.delete_queue(name))
            say(f"queue {name} removed")
