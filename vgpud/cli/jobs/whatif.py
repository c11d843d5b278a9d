"""`vgpu whatif`: a trace replayed with the queue's own machine, under one policy or several."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Number
from vgpud.cli.common.rates_option import rates_option
from vgpud.cli.common.times import Span, When
from vgpud.cli.jobs import slurm_trace, whatif_notes
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.core.jobs.model import Node
    from vgpud.simulate.engine import Outcome
    from vgpud.simulate.interference import Interference
    from vgpud.simulate.results import Figures
    from vgpud.simulate.scenario import Scenario
    from vgpud.simulate.trace import Trace, TraceJob
    from vgpud.view.fit import Grid

NANOSECONDS = 1_000_000_000
#: name that stands for each queue's own policy
AS_CONFIGURED = "as configured"
#: name that stands for what really happened
AS_IT_WAS = "as it was"
#: ended jobs between two updates of the progress bar
PROGRESS_EVERY_S = 0.1


def _names(registry: str) -> Callable[[click.Context, click.Parameter, bool], None]:
    def show(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
        if value and not ctx.resilient_parsing:
            from vgpud.core.placement import registry as placements
            from vgpud.core.policy import registry as policies

            names = policies.NAMES if registry == "policies" else placements.NAMES
            for name, line in names.items():
                click.echo(f"{name:<11} {line}")
            ctx.exit()

    return show


def _span(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=Span(zero=True), default=0, metavar="TIME", help=text)


@click.command("whatif", cls=VgpuCommand, short_help="Replay a trace of jobs under another policy.")
@click.option("--trace", type=click.Path(path_type=Path), metavar="FILE", help="Trace of jobs.")
@click.option(
    "--from-slurm",
    is_flag=False,
    flag_value=slurm_trace.SACCT,
    metavar="[FILE]",
    help="The trace is Slurm's accounting, from sacct, or from a file with its output (sacct -P).",
)
@click.option("--since", type=When(), metavar="TIME", help="With --from-slurm: jobs submitted since (default: 30d).")
@click.option("--partition", metavar="NAME", help="With --from-slurm: jobs of this partition (default: all).")
@click.option(
    "--trusted-separator",
    is_flag=True,
    help="With --from-slurm FILE: no comment has what looks like a job, so a usual separator (|) will do.",
)
@click.option(
    "--columns",
    metavar="FIELD=COLUMN,...",
    help="With --trace: a CSV file of other columns: num_gpu=GPUs,submit_time=sent,duration=secs,user=owner.",
)
@click.option(
    "--replay",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Instead of a trace: decide again what a recorded queue decided, and name each step that differs.",
)
@click.option("--cluster", metavar="NxG|FILE", help="Nodes x GPUs (8x8, 4x8:V100+2x4:T4), or a file.")
@click.option(
    "--policy",
    metavar="POLICY",
    help="As for a queue (default: that of new queues, 2d-gittins); strict:POLICY: no job overtakes.",
)
@click.option("--compare", multiple=True, metavar="POLICY", help="A policy to compare with; may be repeated.")
@click.option(
    "--placement",
    metavar="RULE",
    help="A placement rule, as for a queue (default: best-fit); `count` only counts GPUs.",
)
@click.option(
    "--policies",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_names("policies"),
    help="List the policies.",
)
@click.option(
    "--placements",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_names("placements"),
    help="List the placements.",
)
@click.option("--spread", is_flag=True, help="Spread jobs over nodes and devices instead of packing.")
@click.option("--backfill", is_flag=True, help="With strict: jobs that end in time may overtake the first one.")
@click.option(
    "--queues",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Quotas, policies and placement from `vgpu queue ls -o json` (default: all jobs are in one queue).",
)
@click.option("--by-queue", is_flag=True, help="A queue of equal weight for each queue in the trace.")
@_span("--start-cost", "Time from the decision to start a job until it makes progress (for example 30s; default: 0).")
@_span("--suspend-cost", "Time to preempt a job, for its checkpoint (default: 0).")
@_span("--resume-cost", "Time until a resumed job makes progress (default: 0).")
@_span("--resize-cost", "Time until a resized elastic job makes progress (for example 30s; default: 0).")
@click.option(
    "--scaling",
    metavar="N:RATE,...",
    help="Throughput of elastic jobs with N workers: 16:2200,32:4000,64:5000 (default: N times that of one).",
)
@_span("--min-run", "No job is preempted earlier (default: 0).")
@click.option(
    "--interference",
    type=click.Choice(("none", "summed", "gavel")),
    default="none",
    help="Slowdown of jobs on one device: none, by their utilisations, or by --throughputs.",
)
@click.option("--throughputs", type=click.Path(path_type=Path), metavar="FILE", help="Gavel's table of pairs.")
@click.option("--throughputs-device", default="v100", metavar="NAME", help="The device in that table (default: v100).")
@rates_option("How fast a trace's models run on the cluster's GPUs")
@click.option(
    "--topology",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Slurm's topology.conf of the nodes n0, n1, ...: switches, for gangs over several nodes.",
)
@click.option("--sort", is_flag=True, help="Sort the trace by time instead of refusing it.")
@click.option(
    "--error", type=Number(0, 10), default=0.0, metavar="SIGMA", help="Error of the durations given to policies."
)
@click.option("--estimates", is_flag=True, help="Give no durations: learn them from similar jobs.")
@click.option("--seed", type=int, default=0, help="Seed of --error: the same seed, the same figures.")
@click.option("--jobs", type=click.Path(path_type=Path), metavar="FILE", help="Also write every job as CSV.")
@click.option("--plots", type=click.Path(path_type=Path), metavar="DIR", help="Plot completion times and utilisation.")
@pass_settings
def whatif(
    settings: Settings, /, trace: Path | None, from_slurm: str | None, replay: Path | None, **options: Any
) -> None:
    """Replay a trace on a cluster with the code of the daemon's queue, and compare policies.

    \b
    vgpu usage --since 30d -o csv > month.csv
    vgpu whatif --trace month.csv --cluster 1x8 --policy fifo --compare '2d-las(3250,7200)'
    vgpu whatif --from-slurm --partition gpu --cluster 20x8 --policy 2d-las
    vgpu whatif --replay queue.jsonl

    Traces are CSV: of vgpu usage, Tiresias and Muri, Philly, openb, Helios or Acme (the header identifies the format),
    or any with --columns; SWF; Philly's log; kubectl get pods -o json. Clusters can also be Tiresias' cluster_spec.csv
    or openb's node list. A trace that says when its jobs ended adds a row with what really happened.
    """
    if replay is not None:
        from vgpud.cli.jobs import replayed

        replayed.show(settings, replay)
        return
    if (trace is None) == (from_slurm is None):
        raise click.UsageError("specify one trace: --trace FILE, or --from-slurm")
    if options["cluster"] is None:
        raise click.UsageError("specify the cluster: for example --cluster 8x8, eight nodes of eight GPUs")
    if from_slurm is None and (options["since"] is not None or options["partition"]):
        raise click.UsageError("--since and --partition select jobs of --from-slurm: leave them out")
    if options["trusted_separator"] and from_slurm in (None, slurm_trace.SACCT):
        raise click.UsageError("--trusted-separator is about a file of sacct: add --from-slurm FILE")
    if options["columns"] and trace is None:
        raise click.UsageError("--columns names those of a CSV file: add --trace FILE")
    if options["plots"] and importlib.util.find_spec("matplotlib") is None:
        raise CliError("--plots needs matplotlib, which is not installed: pip install matplotlib", ExitCode.USAGE)
    if options["estimates"] and options["error"]:
        raise click.UsageError("--error distorts given durations, and with --estimates none are given: use one of them")
    from vgpud.simulate import clusters, scenario
    from vgpud.simulate.trace import Trace

    chosen = _scenarios(options)
    for one in chosen.values():
        scenario.check(one)
    if trace is None:
        name = slurm_trace.name(str(from_slurm))
        queues = tuple(queue.name for one in chosen.values() for queue in one.queues)
        trusts_texts = options["trusted_separator"]
        partition = options["partition"] or ""
        jobs = slurm_trace.read(str(from_slurm), options["since"], partition, queues, trusts_texts=trusts_texts)
        found = Trace(jobs)
    else:
        name = trace.name
        with _show_reading(settings, name):
            found = _read_trace(trace, options)
    nodes = _below_switches(clusters.parse(options["cluster"]), options["topology"])
    whatif_notes.say_trace(name, found, options["cluster"], sum(len(node.devices) for node in nodes))
    _compare(settings, name, found.jobs, nodes, chosen, options)


def _read_trace(path: Path, options: Mapping[str, Any]) -> Trace:
    from vgpud.simulate import fields, readers

    try:
        columns = fields.parse_columns(options["columns"]) if options["columns"] else None
    except ValueError as error:
        raise click.UsageError(f"--columns: {error}") from error
    return readers.read_trace(path, options["sort"], columns)


def _compare(
    settings: Settings,
    name: str,
    jobs: list[TraceJob],
    nodes: Sequence[Node],
    scenarios: dict[str, Scenario],
    options: Mapping[str, Any],
) -> None:
    from vgpud.simulate import as_it_was, results, scenario

    cluster = options["cluster"]
    gpus_milli = MILLI_PER_DEVICE * sum(len(node.devices) for node in nodes)
    was = {AS_IT_WAS: as_it_was.figures_of(jobs, gpus_milli)} if as_it_was.is_known(jobs) else {}
    jobs, scenarios = _apply_options(jobs, nodes, scenarios, options)
    began = time.monotonic()
    outcomes: dict[str, Outcome] = {}
    with _progress(settings, len(jobs) * len(scenarios)) as tell:
        for policy, one in scenarios.items():
            before = len(outcomes) * len(jobs)
            outcomes[policy] = scenario.run(jobs, nodes, one, functools.partial(tell, policy, before))
    found = {policy: results.figures(outcome) for policy, outcome in outcomes.items()}
    empty = [policy for policy, one in found.items() if not one.jobs]
    found = {**was, **found}
    whatif_notes.say_outcomes(outcomes)
    _write(name, cluster, options, outcomes)
    document = {"trace": name, "jobs": len(jobs), "cluster": cluster, **_parameters(options)}
    apart = {
        policy: _report_topology(policy, one, nodes) if options["topology"] else {} for policy, one in outcomes.items()
    }
    document["runs"] = [{"policy": policy, **one.as_json(), **apart.get(policy, {})} for policy, one in found.items()]
    _emit(settings, document, found)
    _say(f"{len(jobs)} jobs under {len(scenarios)} {'policy' if len(scenarios) == 1 else 'policies'}", began)
    if empty:
        text = f"no job of {name} ran on {cluster} under {', '.join(empty)}: there are no figures"
        raise CliError(f"{text}; use a larger --cluster, or a trace whose jobs fit", ExitCode.NO_CAPACITY)


def _apply_options(
    jobs: list[TraceJob], nodes: Sequence[Node], scenarios: dict[str, Scenario], options: Mapping[str, Any]
) -> tuple[list[TraceJob], dict[str, Scenario]]:
    """The jobs, and how they are replayed, as the options have it."""
    from vgpud.simulate import machines, scaling, scenario

    if options["rates"]:
        from vgpud.userfiles import rates

        by_model = machines.ByModel(machines.models_of(nodes))
        jobs = machines.add_rates(jobs, rates.read_all(options["rates"]))
        scenarios = {policy: dataclasses.replace(one, machines=by_model) for policy, one in scenarios.items()}
    if options["scaling"]:
        try:
            jobs = scenario.apply_curve(jobs, scaling.parse(options["scaling"]))
        except ValueError as error:
            raise click.UsageError(f"--scaling: {error}") from error
    if options["estimates"]:
        from vgpud.simulate import learning

        jobs = learning.untold(jobs, learn=True)
    if options["error"]:
        jobs = scenario.misjudge_durations(jobs, options["error"], options["seed"])
    return jobs, scenarios


def _scenarios(options: Mapping[str, Any]) -> dict[str, Scenario]:
    from vgpud.core.policy.registry import NEW_QUEUE
    from vgpud.simulate import quotas
    from vgpud.simulate.engine import Costs
    from vgpud.simulate.scenario import Scenario

    if options["queues"] and options["by_queue"]:
        raise click.UsageError("--queues and --by-queue both define the queues: use one of them")
    rest = {
        "queues": quotas.read(options["queues"]) if options["queues"] else (),
        "placement": options["placement"] or "",
        "backfill": options["backfill"],
        "spread": options["spread"],
        "min_run_ns": options["min_run"],
        "by_queue": options["by_queue"],
        "costs": Costs(*(options[f"{what}_cost"] for what in ("start", "suspend", "resume", "resize"))),
        "interference": _interference(options),
    }
    own = options["policy"] or ("" if options["queues"] else NEW_QUEUE)
    return {policy or AS_CONFIGURED: Scenario(policy, **rest) for policy in (own, *options["compare"])}


def _interference(options: Mapping[str, Any]) -> Interference | None:
    from vgpud.simulate.interference import Summed, gavel

    if options["interference"] == "gavel":
        if options["throughputs"] is None:
            raise click.UsageError("--interference gavel needs --throughputs FILE, Gavel's simulation_throughputs.json")
        return gavel(options["throughputs"], options["throughputs_device"])
    return Summed() if options["interference"] == "summed" else None


def _parameters(options: Mapping[str, Any]) -> dict[str, Any]:
    """Other settings that the figures depend on, for the document."""
    spans = ("start_cost", "suspend_cost", "resume_cost", "resize_cost", "min_run")
    left_out = {"policy", "compare", "jobs", "plots", "sort", "throughputs", "cluster", "since", "partition", *spans}
    left_out |= {"columns", "trusted_separator"}
    found = {key: value for key, value in options.items() if key not in left_out}
    found |= {f"{key}_s": options[key] / NANOSECONDS for key in spans}
    files = {key: options[key] and options[key].name for key in ("queues", "topology")}
    return found | files | {"rates": list(options["rates"])}


def _below_switches(nodes: Sequence[Node], topology: Path | None) -> Sequence[Node]:
    if topology is None:
        return nodes
    from vgpud.cluster.shell import topology as switches
    from vgpud.simulate import network

    try:
        return network.add_switches(nodes, switches.read(topology))
    except network.NoNodeError as error:
        raise click.UsageError(f"--topology {topology}: {error}") from error


def _report_topology(name: str, outcome: Outcome, nodes: Sequence[Node]) -> dict[str, int]:
    """How often a gang got several nodes, and how often these are not below one switch: said, and for the document."""
    from vgpud.cli.common.output import say
    from vgpud.simulate import network

    several = outcome.starts_on_several_nodes
    above = network.above_one_switch(several, nodes)
    starts = f"{len(several)} starts were" if len(several) != 1 else "1 start was"
    say(f"{name}: {starts} on several nodes, {above} of them not below one switch")
    return {"starts_on_several_nodes": len(several), "starts_above_one_switch": above}


@contextlib.contextmanager
def _show_reading(settings: Settings, name: str) -> Iterator[None]:
    """A line while a trace is read, on a terminal: a million jobs take half a minute."""
    if not sys.stderr.isatty():
        yield
        return
    from vgpud.cli.common.output import console

    with console(settings, stderr=True).status(f"reading {name}"):
        yield


@contextlib.contextmanager
def _progress(settings: Settings, total: int) -> Iterator[Callable[[str, int, int], None]]:
    """A progress bar on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda name, before, done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from vgpud.cli.common.output import console

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console(settings, stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        last_update_s = 0.0

        def tell(name: str, base_count: int, done: int) -> None:
            nonlocal last_update_s
            if time.monotonic() - last_update_s >= PROGRESS_EVERY_S:
                last_update_s = time.monotonic()
                bar.update(task, completed=base_count + done, description=name)

        yield tell


def _write(trace: str, cluster: str, options: Mapping[str, Any], outcomes: Mapping[str, Outcome]) -> None:
    from vgpud.cli.common.output import say
    from vgpud.simulate import report

    try:
        if options["jobs"]:
            report.write_jobs(options["jobs"], outcomes)
            say(f"{options['jobs']} has every job")
        drawn = {name: found for name, found in outcomes.items() if any(job.state.is_final for _, job in found.jobs)}
        if options["plots"] and drawn:
            for path in report.write_plots(options["plots"], Path(trace).stem, f"{trace} on {cluster}", drawn):
                say(f"wrote {path}")
    except OSError as error:
        raise CliError(f"cannot write {error.filename}: {error.strerror}") from error


def _emit(settings: Settings, document: Mapping[str, Any], figures: Mapping[str, Figures]) -> None:
    from vgpud.cli.common.output import emit

    emit(settings, document, figures, lambda: _grid(figures))


TITLES = (
    "POLICY",
    ">AVG-JCT",
    ">P50",
    ">P95",
    ">P99",
    ">QUEUEING",
    ">LONGEST-WAIT",
    ">MAKESPAN",
    ">UTIL",
    ">FRAGMENTED",
    ">PREEMPTIONS",
    ">RHO-P95",
    ">JAIN",
)
#: on a narrow terminal
FIRST_TO_GO = ("FRAGMENTED", "RHO-P95", "PREEMPTIONS", "P50", "JAIN", "MAKESPAN", "LONGEST-WAIT", "P99", "UTIL", "P95")


def _grid(figures: Mapping[str, Figures]) -> Grid:
    from vgpud.view.fit import Grid

    grid = Grid(TITLES, first_to_go=FIRST_TO_GO)
    for name, one in figures.items():
        times = (one.jct_s.mean, one.jct_s.p50, one.jct_s.p95, one.jct_s.p99, one.queueing_s.mean, one.longest_wait_s)
        grid.rows.append(
            (
                name,
                *map(_time, (*times, one.makespan_s)),
                _figure(one.utilisation, ".1%"),
                _figure(one.fragmentation, ".1%"),
                _figure(one.preemptions, ".0f"),
                _figure(one.rho.p95, ".1f"),
                _figure(one.jain, ".3f"),
            )
        )
    return grid


def _figure(value: float, form: str) -> str:
    """A dash for what is no number: nothing ran, or it is not known."""
    return "-" if math.isnan(value) else format(value, form)


def _time(seconds: float) -> str:
    """Seconds below three hours, then hours."""
    if math.isnan(seconds):
        return "-"
    from vgpud.simulate.results import HOURS_FROM_S

    return f"{seconds:.1f}s" if seconds < HOURS_FROM_S else f"{seconds / 3600:.1f}h"


def _say(what: str, began: float) -> None:
    from vgpud.cli.common.output import say

    say(f"{what}: simulated in {time.monotonic() - began:.1f} s")
