"""`vgpu cluster`: the queue over the nodes of a Slurm cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.exits import CliError
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.quantities import Gpus, Number
from vgpud.cli.common.times import Span, When
from vgpud.errors import ExitCode

if TYPE_CHECKING:
    from vgpud.cli.common.fit import Grid

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("table", "json", "yaml", "name", "csv")
_SECOND_NS = 1_000_000_000


@click.group("cluster", cls=LazyGroup, short_help="Run and show the queue over the nodes of a Slurm cluster.")
def cluster() -> None:
    """The queue over many nodes: Slurm starts, kills and accounts, the queue decides who starts when and where.

    \b
    vgpu cluster run --partition gpu --queues queues.json    beside slurmctld, as SlurmUser or root
    sbatch --partition=gpu --gres=shard:500 train.sh         as always
    vgpu cluster ls                                          who waits, why, and who runs where

    Jobs are submitted, cancelled, held and shown by Slurm's own commands (docs/cluster.md).
    """


def _path(name: str, metavar: str, text: str) -> Callable[[F], F]:
    return click.option(name, type=click.Path(path_type=Path), metavar=metavar, help=text)


def _run_dir() -> Callable[[F], F]:
    return _path("--run-dir", "DIR", "Directory of the heartbeat and the status (default: /run/vgpud/cluster).")


def _state_dir() -> Callable[[F], F]:
    return _path("--state-dir", "DIR", "Directory of the database (default: /var/lib/vgpud/cluster).")


def _file(name: str, text: str) -> Callable[[F], F]:
    return _path(name, "FILE", text)


@cluster.command("run", short_help="Decide for the jobs that Slurm holds in a partition.")
@click.option("--partition", required=True, metavar="NAME", help="The partition whose jobs vgpu_cluster.lua holds.")
@_file("--queues", "Queues as `vgpu quota get -o json` shows them (default: one queue, fifo).")
@_state_dir()
@_run_dir()
@click.option(
    "--poll", type=Number(0.1, 60), default=2.0, metavar="SECONDS", help="How often Slurm is asked (default: 2)."
)
@click.option(
    "--start-wait",
    type=Span(),
    default=30 * _SECOND_NS,
    metavar="TIME",
    help="A released job that has not started by then waits again (default: 30s).",
)
@_file("--topology", "Slurm's topology.conf, for gangs over several nodes.")
@click.option(
    "--rates",
    multiple=True,
    type=click.Path(),
    metavar="gavel|FILE",
    help="Speeds for the placement `throughput`: Gavel's, or CSV model,gpu,rate; may be repeated.",
)
@_file("--record", "Record events and decisions here, for replays.")
def run(
    partition: str,
    queues: Path | None,
    state_dir: Path | None,
    run_dir: Path | None,
    poll: float,
    start_wait: int,
    topology: Path | None,
    rates: tuple[str, ...],
    record: Path | None,
) -> None:
    """Decide for the jobs that Slurm holds in a partition, until SIGTERM. One controller for a partition.

    \b
    vgpu cluster run --partition gpu --queues queues.json --topology /etc/slurm/topology.conf

    Run it on slurmctld's host as SlurmUser or root; vgpu_cluster.lua of integrations/slurm holds the jobs. When this
    process is away for a minute, Slurm's own order continues.
    """
    import logging

    from vgpud.cluster import service
    from vgpud.cluster.core.model import Settings as ClusterSettings
    from vgpud.cluster.shell import topology as switches
    from vgpud.core.jobs.model import QueueSpec
    from vgpud.simulate import quotas
    from vgpud.userfiles import rates as speeds

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    options = service.Options(
        partition,
        _state(state_dir),
        _run(run_dir),
        quotas.read(queues) if queues else (QueueSpec("default"),),
        poll,
        str(record or ""),
        ClusterSettings(
            start_wait,
            rates=speeds.read_all(rates),
            switches=switches.read(topology) if topology else {},
        ),
    )
    service.serve(options)


@cluster.command("submit", short_help="Submit a job to the partition by sbatch.")
@click.option("--gpus", type=Gpus(), default="1", metavar="N", help="GPUs of each node: 0.5, 1, 8 (default: 1).")
@click.option("--gpu-model", default="", metavar="NAME", help="On this model only, as slurm.conf calls it.")
@click.option("--nodes", type=click.IntRange(1, 1024), default=1, metavar="N", help="Nodes, all or none (default: 1).")
@click.option("--queue", default="", metavar="NAME", help="Queue, which is the Slurm account.")
@click.option("--name", default="", metavar="NAME", help="Name of the job.")
@click.option("--time", "time_limit", default="", metavar="TIME", help="Time limit, as sbatch has it: 1-00:00:00.")
@click.option("--array", default="", metavar="SPEC", help="Array, as sbatch has it: 0-9.")
@click.option("--after", default="", metavar="JOB", help="Starts when this job has completed.")
@click.option("--model", default="", metavar="NAME", help="Model that it trains, for --placement throughput.")
@click.option("--skew", default="", metavar="PART", help="Part of its largest tensor in all traffic, 0 to 1.")
@click.option("--expect", default="", metavar="TIME", help="Expected duration: 2h.")
@click.option("--partition", metavar="NAME", help="Default: that of the controller on this host.")
@click.option("--dry-run", is_flag=True, help="Show the command line and the script instead of running it.")
@_run_dir()
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def submit(
    gpus: int,
    gpu_model: str,
    nodes: int,
    queue: str,
    name: str,
    time_limit: str,
    array: str,
    after: str,
    model: str,
    skew: str,
    expect: str,
    partition: str | None,
    dry_run: bool,
    run_dir: Path | None,
    command: tuple[str, ...],
) -> None:
    """Submit a job to the partition: sbatch with --gres and the comment that the queue reads. COMMAND runs on each
    node.

    \b
    vgpu cluster submit --gpus 0.5 -- python train.py
    vgpu cluster submit --gpus 8 --nodes 4 --model resnet50 --expect 2h -- ./train
    """
    import shlex
    import subprocess

    from vgpud.cluster.shell import sbatch

    said = (("model", model), ("skew", skew), ("duration", expect))
    for option, value in said:
        if any(letter.isspace() for letter in value):
            raise click.UsageError(f"{option} {value!r} has a space: write one word")
    job = sbatch.Submission(command, gpus, gpu_model, nodes, queue, name, time_limit, array, after, said)
    try:
        words = sbatch.command_line(partition or _status(run_dir)["partition"], job)
    except sbatch.NoGresError as error:
        raise click.UsageError(f"--gpus: {error}") from error
    if dry_run:
        click.echo(f"{shlex.join(words)} <<'END'\n{sbatch.script(job)}END")
        return
    try:
        done = subprocess.run(words, input=sbatch.script(job), text=True, check=False)
    except FileNotFoundError as error:
        raise CliError("sbatch was not found: install Slurm's client programs", ExitCode.UNREACHABLE) from error
    if done.returncode:
        raise CliError(f"sbatch refused it (exit code {done.returncode})")


@cluster.command("ls", short_help="List the jobs of the queue: where they run, why they wait.")
@_run_dir()
@pass_settings
def ls(settings: Settings, run_dir: Path | None) -> None:
    """List the jobs of the queue as the controller saw them last: where they run, why they wait.

    \b
    vgpu cluster ls
    vgpu cluster ls -o json
    """
    from vgpud.cli.common.output import emit, say

    status = _status(run_dir)
    emit(settings, status, [job["slurm_id"] for job in status["jobs"]], lambda: _grid(status["jobs"]))
    if settings.output == "table":
        for line in _remarks(status):
            say(line)


@cluster.command("explain", short_help="Say why a job waits, or where it runs.")
@click.argument("job", metavar="JOB")
@_run_dir()
@pass_settings
def explain(settings: Settings, job: str, run_dir: Path | None) -> None:
    """Say why a job waits, or where it runs. JOB is Slurm's id: 12, or 12_3 of an array.

    \b
    vgpu cluster explain 12_3
    """
    from vgpud.cli.common.output import dump, print_lines

    status = _status(run_dir)
    found = next((one for one in [*status["jobs"], *status["refused"]] if one["slurm_id"] == job), None)
    if found is None:
        text = f"the queue has no job {job} of partition {status['partition']}"
        raise CliError(f"{text}: squeue shows those of other partitions, sacct ended ones", ExitCode.NOT_FOUND)
    if settings.output != "table":
        dump(settings, found)
    else:
        print_lines(_sentences(found))


@cluster.command("quota", short_help="Show the queues: guarantees, limits, what their jobs have.")
@_run_dir()
@pass_settings
def quota(settings: Settings, run_dir: Path | None) -> None:
    """Show the queues of the controller: guarantees, limits, what their jobs have. `--queues` of `run` sets them.

    \b
    vgpu cluster quota
    """
    from vgpud.cli.common.output import emit

    queues = _status(run_dir)["queues"]
    emit(settings, {"queues": queues}, [one["name"] for one in queues], lambda: _queues_grid(queues))


@cluster.command("usage", short_help="Show what ended jobs used, as a trace for `vgpu simulate`.")
@click.option("--since", type=When(), metavar="TIME", help="Jobs that ended since: 30d, 2026-11-01 (default: all).")
@_state_dir()
@click.option("-o", "--output", "format_", type=click.Choice(FORMATS), help="Output format; csv is a trace.")
@pass_settings
def usage(settings: Settings, since: int | None, state_dir: Path | None, format_: str | None) -> None:
    """Show what ended jobs used. Needs to read the controller's database.

    \b
    vgpu cluster usage --since 30d -o csv > month.csv
    vgpu simulate --trace month.csv --cluster 20x8 --policy fifo --compare '2d-las(3250,7200)'
    """
    import csv

    from vgpud.cli.common.output import emit
    from vgpud.store import cluster as store

    rows = store.usage(_state(state_dir), since or 0)
    if (format_ or settings.output) == "csv":
        headers = [store.USAGE_COLUMNS] if settings.headers else []
        csv.writer(sys.stdout, lineterminator="\n").writerows([*headers, *rows])
        return
    settings.output = format_ or settings.output
    items = [dict(zip(store.USAGE_COLUMNS, row, strict=True)) for row in rows]
    emit(settings, {"jobs": items}, [item["slurm_id"] for item in items], lambda: _usage_grid(items))


def _state(given: Path | None) -> Path:
    from vgpud import paths

    return (given or paths.state_dir() / "cluster").absolute()


def _run(given: Path | None) -> Path:
    from vgpud import paths

    return (given or paths.runtime_dir(uid=0) / "cluster").absolute()


def _status(run_dir: Path | None) -> dict[str, Any]:
    from vgpud.cluster.shell import published

    directory = _run(run_dir)
    status = published.read(directory)
    status["fresh"] = published.fresh(directory, published.now_s())
    return status


def _grid(jobs: Sequence[dict[str, Any]]) -> Grid:
    from vgpud.cli.common.fit import Grid

    titles = ("JOB", "QUEUE", ">UID", ">GPUS", ">NODES", "STATE", "WHERE OR WHY")
    return Grid(titles, [_row(job) for job in jobs], first_to_go=("UID", "NODES"), below=("WHERE OR WHY",))


def _row(job: dict[str, Any]) -> Sequence[str]:
    where = ",".join(job["nodes"]) if job["state"] == "running" else job["why"]
    size = f"{job['gpus_milli'] / 1000:g}", str(job["members"])
    return (job["slurm_id"], job["queue"], str(job["uid"]), *size, job["state"], where)


def _queues_grid(queues: Sequence[dict[str, Any]]) -> Grid:
    from vgpud.cli.common.fit import Grid

    titles = ("QUEUE", "PARENT", ">GUARANTEE", ">LIMIT", ">USED", ">RUNNING", ">WAITING", "POLICY", "PLACEMENT")
    amounts = ("guarantee_milli", "limit_milli", "used_milli")

    def row(one: dict[str, Any]) -> list[str]:
        gpus = ["-" if one[name] is None else f"{one[name] / 1000:g}" for name in amounts]
        counts = [str(one["running"]), str(one["waiting"])]
        return [one["name"], one["parent"], *gpus, *counts, one["policy"], one["placement"]]

    return Grid(titles, [row(one) for one in queues], first_to_go=("PARENT", "PLACEMENT", "POLICY"))


def _usage_grid(items: Sequence[dict[str, Any]]) -> Grid:
    from vgpud.cli.common.fit import Grid

    titles = ("JOB", "QUEUE", ">UID", ">GPUS", ">NODES", ">RAN (s)", "STATE")
    names = ("slurm_id", "queue", "uid", "gpus_milli", "members", "duration_s", "state")
    shown = [{**item, "gpus_milli": f"{item['gpus_milli'] / 1000:g}"} for item in items]
    return Grid(titles, [[str(item[name]) for name in names] for item in shown])


def _remarks(status: dict[str, Any]) -> list[str]:
    found = [f"{job['slurm_id']} is not queued: {job['why']}" for job in status["refused"]]
    found += list(status["unusable_nodes"].values())
    if status["jobs_left_out"]:
        found.append(f"{status['jobs_left_out']} more jobs wait behind these")
    if status["foreign_jobs"]:
        found.append(f"{status['foreign_jobs']} jobs run that Slurm started by itself: squeue shows them")
    if not status["fresh"]:
        found.append("no controller has looked for a minute: Slurm's own order holds (start `vgpu cluster run`)")
    return found


def _sentences(job: dict[str, Any]) -> list[str]:
    if "state" not in job:
        return [f"job {job['slurm_id']} is not queued: {job['why']}"]
    head = f"job {job['slurm_id']} ({job['job_id']} in the queue) is {job['state']} in queue {job['queue']}"
    lines = [f"{head}, {job['gpus_milli'] / 1000:g} GPU on each of {job['members']} nodes"]
    if job["nodes"]:
        lines.append(f"on {', '.join(job['nodes'])}")
    if job["position"]:
        lines.append(f"position {job['position']}")
    if job["why"]:
        lines.append(job["why"])
    return lines
