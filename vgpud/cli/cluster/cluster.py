"""`vgpu cluster`: the queue over the nodes of a Slurm cluster."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from vgpud.cli.common.cluster_option import run_dir_option, state_dir_option
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.quantities import Gpus, Number
from vgpud.cli.common.rates_option import rates_option
from vgpud.cli.common.times import Span, When
from vgpud.cli.common.watching import ListCommand

F = TypeVar("F", bound=Callable[..., Any])
FORMATS = ("table", "json", "yaml", "name", "csv")
_SECOND_NS = 1_000_000_000


@click.group(
    "cluster",
    cls=LazyGroup,
    old_names={"quota": ("vgpud.cli.cluster.cluster:cluster.queues", "vgpu cluster queues")},
    short_help="Run and show the queue over the nodes of a Slurm cluster.",
)
def cluster() -> None:
    """The queue over many nodes: it decides which job starts when and where; Slurm starts, kills and accounts jobs.

    \b
    vgpu cluster run --partition gpu --queues queues.json    beside slurmctld, as SlurmUser or root
    sbatch --partition=gpu --gres=shard:500 train.sh         as always
    vgpu cluster ls                                          which jobs wait and why, which run where

    Jobs are cancelled, held and released by Slurm's own commands (`vgpu docs cluster`). The commands of one node know
    this queue, too: vgpu submit --cluster, job ls --cluster, queue ls --cluster, explain --cluster, usage --cluster.
    """


def _file(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, type=click.Path(path_type=Path), metavar="FILE", help=text)


@cluster.command("run", short_help="Decide when and where held Slurm jobs start.")
@click.option("--partition", required=True, metavar="NAME", help="The partition whose jobs vgpu_cluster.lua holds.")
@_file("--queues", "Queues as `vgpu queue ls -o json` shows them; reread when it changes (default: one queue, fifo).")
@state_dir_option()
@run_dir_option()
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
@rates_option("Speeds for the placement `throughput`")
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
    """Decide when and where to start jobs that Slurm holds in a partition; runs until SIGTERM. One controller for a
    partition.

    \b
    vgpu cluster run --partition gpu --queues queues.json --topology /etc/slurm/topology.conf

    Run it on slurmctld's host as SlurmUser or root; vgpu_cluster.lua of integrations/slurm holds the jobs. When this
    process is away for a minute, Slurm's own order continues.
    """
    import logging

    from vgpud.cli.cluster import places
    from vgpud.cluster import service
    from vgpud.cluster.core.model import Settings as ClusterSettings
    from vgpud.cluster.shell import topology as switches
    from vgpud.core.jobs.model import QueueSpec
    from vgpud.simulate import quotas
    from vgpud.userfiles import rates as speeds

    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stderr)
    options = service.Options(
        partition,
        places.state_dir(state_dir),
        places.run_dir(run_dir),
        quotas.read(queues) if queues else (QueueSpec("default"),),
        poll,
        str(record or ""),
        queues.absolute() if queues and queues.is_file() else None,
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
@click.option("--skew", default="", metavar="PART", help="Fraction of a gang's traffic that its largest tensor has.")
@click.option("--expect", default="", metavar="TIME", help="Expected duration: 2h.")
@click.option("--partition", metavar="NAME", help="Default: that of the controller on this host.")
@click.option("--dry-run", is_flag=True, help="Show the command line and the script instead of running it.")
@run_dir_option()
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@pass_settings
def submit(
    settings: Settings,
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
    from vgpud.cli.cluster import sbatch
    from vgpud.cluster.shell.sbatch import Submission

    said = (("model", model), ("skew", skew), ("duration", expect))
    options = (
        ("account", queue),
        ("job-name", name),
        ("time", time_limit),
        ("array", array),
        ("dependency", f"afterok:{after}" if after else ""),
    )
    job = Submission(command, gpus, gpu_model, nodes, options, said)
    sbatch.submit(settings, job, sbatch.Run(partition, run_dir, dry_run=dry_run))


@cluster.command("ls", cls=ListCommand, short_help="List the jobs of the queue: where they run, why they wait.")
@run_dir_option()
@pass_settings
def ls(settings: Settings, run_dir: Path | None) -> None:
    """List the jobs of the queue as the controller saw them last: where they run, why they wait.

    \b
    vgpu cluster ls
    vgpu cluster ls -o json
    """
    from vgpud.cli.cluster import listing

    listing.ls(settings, run_dir)


@cluster.command("explain", short_help="Say why a job waits, or where it runs.")
@click.argument("job", metavar="JOB")
@run_dir_option()
@pass_settings
def explain(settings: Settings, job: str, run_dir: Path | None) -> None:
    """Say why a job waits, or where it runs. JOB is Slurm's id: 12, or 12_3 of an array.

    \b
    vgpu cluster explain 12_3
    """
    from vgpud.cli.cluster import listing

    listing.explain(settings, run_dir, job)


@cluster.command("queues", cls=ListCommand, short_help="Show the queues: guarantees, limits, what their jobs use.")
@run_dir_option()
@pass_settings
def queues(settings: Settings, run_dir: Path | None) -> None:
    """Show the queues of the controller: guarantees, limits, what their jobs use. `--queues` of `run` sets them.

    \b
    vgpu cluster queues
    """
    from vgpud.cli.cluster import listing

    listing.quota(settings, run_dir)


@cluster.command("usage", short_help="Show what ended jobs used, as a trace for `vgpu whatif`.")
@click.option("--since", type=When(), metavar="TIME", help="Jobs that ended since: 30d, 2026-11-01 (default: all).")
@state_dir_option()
@click.option("-o", "--output", "format_", type=click.Choice(FORMATS), help="Output format; csv is a trace.")
@pass_settings
def usage(settings: Settings, since: int | None, state_dir: Path | None, format_: str | None) -> None:
    """Show what ended jobs used. Needs to read the controller's database.

    \b
    vgpu cluster usage --since 30d -o csv > month.csv
    vgpu whatif --trace month.csv --cluster 20x8 --policy fifo --compare '2d-las(3250,7200)'
    """
    from vgpud.cli.cluster import usage as ended

    settings.output = format_ or settings.output
    ended.show(settings, state_dir, ended.Asked(since))
