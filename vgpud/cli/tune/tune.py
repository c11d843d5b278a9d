"""`vgpu tune`: finds how a command is run best, by short runs of it."""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.tune.options import (
    SECTIONS,
    check_options,
    find_candidates,
    find_times,
    find_work,
    tune_options,
)
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from vgpud.cli.tune.race import Plan, Race
    from vgpud.core.tune.halving import Halving
    from vgpud.core.tune.model import Candidate, Work
    from vgpud.core.tune.record import Record

_NS = 10**9
#: words that name a subcommand in the place of a command
_SUBCOMMANDS = ("ls", "show", "rm")


class TuneCommand(VgpuCommand):
    """Handles `vgpu tune ls`, `show` and `rm` as commands of their own."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        if args[:1] and args[0] in _SUBCOMMANDS:
            from vgpud.cli.tune import listing

            command: click.Command = getattr(listing, args[0])
            return command.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


@click.command(
    "tune",
    cls=TuneCommand,
    sections=SECTIONS,
    short_help="Find size, batch and workers of a command by short runs.",
    context_settings={"allow_interspersed_args": False},
)
@tune_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@pass_settings
def tune(settings: Settings, /, name: str | None, command: tuple[str, ...], **option_values: Any) -> int:
    """Find the part of a GPU, the batch and the workers with which COMMAND gets most done per GPU, or the cheapest that
    meets a deadline, by short runs of it as jobs of the queue.

    \b
    vgpu tune -- vgpu sim load trainer                    a test load, to try it
    vgpu tune -- python train.py                          the part of a GPU
    vgpu tune --batch 32..512 -- python train.py --batch {batch}
    vgpu tune --workers 0,2,4 -- python train.py --loaders {workers}
    vgpu tune --samples 5000000 --deadline 2h -- python train.py
    vgpu tune --rate-pattern '([0-9.,]+) img/s' -- ./train the rate as it prints it
    vgpu tune ls                                          also show NAME, rm NAME
    vgpu submit --gpus auto -- python train.py            as it was found

    COMMAND has to make progress that can be read: by vgpud.client.report(samples=n) after each step, or by lines of its
    output and --rate-pattern; otherwise the launches of its kernels are counted. It is ended when its rate is known,
    and may train for ever. A run that is out of memory rules its candidate out. `vgpu docs tune` has more.
    """
    if not command:
        raise click.UsageError("specify a command: for example vgpu tune -- python train.py")
    candidates = find_candidates(option_values, command, option_values["env"])
    work = find_work(option_values)
    check_options(option_values)
    from vgpud.cli.common import kept_tunes
    from vgpud.cli.common.target import check_local
    from vgpud.cli.predict.run import find_device_name
    from vgpud.core.jobs.program_name import program_name

    check_local(settings, "vgpu tune", "log in there and run it")
    name = kept_tunes.check_name(name or _name_of(program_name(command)))
    device = find_device_name(settings, option_values["devices"])
    with kept_tunes.open_log_folder(name) as folder:
        plan, left_out = _make_plan(settings, folder, f"tune-{name}", command, option_values, candidates, device)
        halving, race = _race(settings, plan, candidates, left_out, work)
        record = _make_record(name, device, plan, halving, race, work)
        path = kept_tunes.save(record)
    return _show(settings, record, str(path), plan)


def _name_of(program: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", program).strip("-._")[:63] or "tune"


def _make_plan(
    settings: Settings,
    folder: Path,
    job_name: str,
    command: Sequence[str],
    option_values: dict[str, Any],
    candidates: Sequence[Candidate],
    device: str,
) -> tuple[Plan, dict[Candidate, str]]:
    """How they are run, and why some are not. Raises CliError."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.jobs.submit import find_device_uuids, submit
    from vgpud.cli.tune.race import Plan
    from vgpud.core.tune.halving import make_milestones

    run_ns, limit_ns = find_times(option_values)
    usual = submit.make_context("submit", [], resilient_parsing=True).params
    options = {**usual, "prediction": None, "mem": option_values["mem"], "queue": option_values["queue"]}
    options |= {"time_limit": limit_ns, "no_preempt": True, "name": job_name[:63]}
    with Client(settings) as client:
        uuids = find_device_uuids(client, option_values["devices"])
    plan = Plan(
        tuple(command),
        tuple(option_values["env"]),
        options,
        tuple(uuids),
        folder,
        option_values["rate_pattern"],
        make_milestones(run_ns / _NS),
        option_values["at_once"] or 1,
        (option_values["budget"] or 0) / _NS,
    )
    if not option_values["predict_run"]:
        return plan, {}
    from vgpud.cli.tune.memory import find_memory

    memory, left_out = find_memory(plan, candidates, device, run_ns / _NS)
    return replace(plan, mem_bytes=memory), left_out


def _race(
    settings: Settings, plan: Plan, candidates: Sequence[Candidate], left_out: dict[Candidate, str], work: Work
) -> tuple[Halving, Race]:
    """Runs all. Raises CliError if no candidate has a rate."""
    from vgpud.cli.common.output import say
    from vgpud.cli.tune.race import Interrupt, Race
    from vgpud.core.tune.halving import Halving

    memory_by_gpus = not (plan.options["mem"] or plan.mem_bytes)
    halving = Halving(candidates, work, memory_by_gpus=memory_by_gpus)
    for candidate, why in left_out.items():
        halving.drop(candidate, why)
    say(f"{len(candidates)} candidates, each for {plan.milestones[0]:g} s of progress at first, {plan.at_once} at once")
    race, interrupt = Race(settings, plan, halving, work, say), Interrupt()
    try:
        with interrupt.listening():
            race.run(interrupt)
    except KeyboardInterrupt:
        say("stopped: its jobs were cancelled, and nothing is kept")
        raise
    if halving.find_best() is None:
        raise _explain_nothing(halving)
    return halving, race


def _explain_nothing(halving: Halving) -> CliError:
    """Why no candidate has a rate: the reason of all, or of the first."""
    reasons = [trial.why_out for trial in halving.trials.values()]
    if all(_is_memory(why) for why in reasons):
        text = f"every candidate is out of memory: give a smaller --batch, more --gpus or --mem; {reasons[0]}"
        return CliError(text, ExitCode.NO_CAPACITY)
    first = next(why for why in reasons if not _is_memory(why))
    if len(reasons) == 1:
        return CliError(f"the only candidate failed: {first}", ExitCode.OTHER)
    return CliError(f"all {len(reasons)} candidates failed, the first: {first}", ExitCode.OTHER)


def _is_memory(why: str) -> bool:
    return why.startswith("out of memory") or why.endswith("has too little memory")


def _make_record(name: str, device: str, plan: Plan, halving: Halving, race: Race, work: Work) -> Record:
    from vgpud.core.tune.choice import choose
    from vgpud.core.tune.placeholders import find_names
    from vgpud.core.tune.record import Record, Row

    rows = tuple(
        Row(
            trial.candidate,
            trial.rate or 0.0,
            race.progress_s.get(trial.candidate, 0.0),
            plan.mem_bytes.get(trial.candidate) or plan.options["mem"] or 0,
            race.peaks_bytes.get(trial.candidate, 0),
            trial.why_out,
        )
        for trial in halving.trials.values()
    )
    found = choose([(row.candidate, row.rate) for row in rows if row.rate and not row.why_out], work)
    choice = next((index for index, row in enumerate(rows) if found and row.candidate == found[0]), -1)
    return Record(
        name,
        plan.command,
        tuple((variable, text) for variable, text in plan.variables if find_names([text])),
        os.getcwd(),
        device,
        int(datetime.datetime.now(datetime.timezone.utc).timestamp()),
        race.unit,
        plan.milestones[-1],
        work,
        rows,
        choice,
        round(race.spent.gpu_seconds_used, 3),
        round(race.spent.gpu_seconds_granted, 3),
    )


def _show(settings: Settings, record: Record, path: str, plan: Plan) -> int:
    """The table, or the document. Raises CliError if no candidate meets the deadline."""
    from vgpud.cli.common.output import say
    from vgpud.cli.tune.listing import describe_choice, describe_fastest, show_record

    show_record(settings, record)
    if record.chosen_row is None:
        text = f"no candidate meets the deadline: {describe_fastest(record)}; all are in {path}"
        raise CliError(text, ExitCode.OTHER)
    if settings.output == "table":
        say(f"{describe_choice(record)}; kept as {record.name}, for `vgpu submit --gpus auto`")
        say(f"the runs took {record.gpu_seconds_used:.1f} GPU-seconds; their output is in {plan.folder}")
    return 0
