"""The options of `vgpu tune`: what is tried, how it is measured, and what is wanted of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import click

from vgpud.cli.common.completions import complete_queue
from vgpud.cli.common.quantities import AnyParam, Bytes, Gpus, Whole
from vgpud.cli.common.suggestions import hint, resemble
from vgpud.cli.common.times import Span
from vgpud.cli.jobs.quantities import Variable
from vgpud.core.model import CLASSES
from vgpud.core.tune.model import BATCH, PLACEHOLDERS, WORKERS, Candidate, Work, make_candidates
from vgpud.core.tune.placeholders import find_names
from vgpud.core.tune.progress import PatternError, RatePattern
from vgpud.core.tune.record import CANDIDATES_MAX

F = TypeVar("F", bound=Callable[..., Any])
_BATCH_MAX, _WORKERS_MAX, _COUNT_MAX = 1 << 30, 1024, 1 << 53
_AT_ONCE_MAX = 64
_SECOND_NS = 10**9
_RUN_NS, _LIMIT_NS = 60 * _SECOND_NS, 300 * _SECOND_NS
_GPUS_MILLI = (250, 500, 1000)


class Values(AnyParam):
    """Values between commas, each of another type; A..B: from A to B, each twice the one before."""

    def __init__(self, inner: AnyParam) -> None:
        self._inner = inner
        self.name = inner.name

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        read = partial(self._inner.convert, param=param, ctx=ctx)
        found: list[int] = []
        for part in str(value).split(","):
            first, dots, last = part.partition("..")
            number = read(first.strip())
            found.append(number)
            if not dots:
                continue
            most = read(last.strip())
            if number < 1 or most < number:
                self.fail(f"{part.strip()!r} is not a range: write the smaller value, above 0, first", param, ctx)
            while 2 * found[-1] <= most:
                found.append(2 * found[-1])
        if len(set(found)) > CANDIDATES_MAX:
            self.fail(f"{len(set(found))} values are too many: at most {CANDIDATES_MAX}", param, ctx)
        return tuple(dict.fromkeys(found))


class Classes(AnyParam):
    """Service classes between commas."""

    name = "classes"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        words = tuple(dict.fromkeys(word.strip() for word in str(value).split(",")))
        for word in words:
            if word not in CLASSES:
                self.fail(f"{word!r} is not a class: choose from {', '.join(CLASSES)}", param, ctx)
        return words


class Pattern(AnyParam):
    """A regular expression that finds the rate in a line."""

    name = "pattern"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> RatePattern:
        if isinstance(value, RatePattern):
            return value
        try:
            return RatePattern(str(value))
        except PatternError as error:
            self.fail(str(error), param, ctx)


#: title in `vgpu tune --help` -> names of its options' parameters
SECTIONS: Mapping[str, tuple[str, ...]] = {
    "What is tried": ("gpus", "batch", "workers", "classes", "mem", "predict_run"),
    "How it is measured": ("rate_pattern", "run_time", "run_limit", "at_once", "budget"),
    "What is wanted": ("samples", "steps", "deadline"),
    "What runs, and where": ("name", "env", "queue", "devices"),
}

_OPTIONS: tuple[tuple[tuple[str, ...], Any, str, str], ...] = (
    (("--gpus",), Values(Gpus()), "F,F..F", "SM time to try: 0.25,0.5 or 0.1..1, doubled (default: 0.25,0.5,1)."),
    (("--batch",), Values(Whole(1, _BATCH_MAX)), "N,N..N", "Values of {batch}: 64,96 or 32..512, doubled."),
    (
        ("--workers",),
        Values(Whole(0, _WORKERS_MAX)),
        "N,N..N",
        "Values of {workers}, such as loaders of data.",
    ),
    (("--class", "classes"), Classes(), "CLASS,...", "Classes to try: batch, latency (default: batch)."),
    (("--mem",), Bytes(), "SIZE", "Memory of each run (default: the same part as of SM time)."),
    (
        ("--rate-pattern",),
        Pattern(),
        "REGEX",
        "Finds the rate in the output: its group is samples/s, or its groups samples and seconds are both so far.",
    ),
    (("--run-time",), Span(), "TIME", "Length of a full measurement; most are a sixteenth of it (default: 1m)."),
    (("--run-limit",), Span(), "TIME", "Time limit of each run, with its start (default: 5m and --run-time)."),
    (("--at-once",), Whole(1, _AT_ONCE_MAX), "N", "Runs at once (default: 1, so that none slows another)."),
    (("--budget",), Span(), "TIME", "Start and continue no run after this time (default: none)."),
    (("--samples",), Whole(1, _COUNT_MAX), "N", "The whole work in samples, or whatever the rate counts."),
    (("--steps",), Whole(1, _COUNT_MAX), "N", "The whole work in steps of one {batch} each."),
    (("--deadline",), Span(), "TIME", "Choose the cheapest with which the whole work takes no longer."),
    (("--name",), None, "NAME", "Name under which the result is kept (default: the program's)."),
    (("--queue",), None, "NAME", "Queue (default: yours)."),
)


def tune_options(function: F) -> F:
    """All of the command's options."""
    env = click.option(
        "--env",
        type=Variable(),
        multiple=True,
        metavar="NAME[=VALUE]",
        help="Set a variable; placeholders are filled in.",
    )
    device = click.option(
        "--device", "devices", multiple=True, metavar="GPU", help="Only on this device, by index or UUID; repeatable."
    )
    predict = click.option(
        "--predict-run", is_flag=True, help="Find the memory on a SIMULATED device first; each run has as much."
    )
    function = predict(env(device(function)))
    for names, kind, metavar, text in reversed(_OPTIONS):
        completion = complete_queue if names == ("--queue",) else None
        option = click.option(*names, type=kind, default=None, metavar=metavar, help=text, shell_complete=completion)
        function = option(function)
    return function


def find_candidates(
    option_values: Mapping[str, Any], command: Sequence[str], variables: Sequence[tuple[str, str]]
) -> tuple[Candidate, ...]:
    """Raises UsageError: a placeholder without values, values without a placeholder, too many candidates."""
    names = find_names([*command, *(text for _, text in variables)])
    for name in names:
        if name not in PLACEHOLDERS:
            similar = hint([f"{{{one}}}" for one in resemble(name, PLACEHOLDERS)])
            text = f"{{{name}}} is not a placeholder{similar or ': there are {batch} and {workers}.'}"
            raise click.UsageError(f"{text} Write {{{{{name}}}}} for the text itself")
    values = {name: option_values[name] for name in (BATCH, WORKERS) if option_values[name]}
    for name in names:
        if name not in values:
            example = "2,4" if name == WORKERS else "32..256"
            raise click.UsageError(f"{{{name}}} needs values: for example --{name} {example}")
    for name in values:
        if name not in names:
            text = f"--{name} is never used: write {{{name}}} where COMMAND takes it"
            raise click.UsageError(f"{text}, as in -- python train.py --{name} {{{name}}}, or --env NAME={{{name}}}")
    gpus, classes = option_values["gpus"] or _GPUS_MILLI, option_values["classes"] or (CLASSES[0],)
    count = len(gpus) * len(classes) * len(values.get(BATCH, "1")) * len(values.get(WORKERS, "1"))
    if count > CANDIDATES_MAX:
        raise click.UsageError(f"{count} candidates are too many, at most {CANDIDATES_MAX} are tried: give fewer")
    return make_candidates(gpus, classes, values)


def find_work(option_values: Mapping[str, Any]) -> Work:
    """Raises UsageError."""
    samples, steps, deadline_ns = (option_values[name] for name in ("samples", "steps", "deadline"))
    if samples and steps:
        raise click.UsageError("--samples and --steps both say how much the whole work is: give one of them")
    if steps and not option_values["batch"]:
        raise click.UsageError("--steps counts steps of one {batch} each: give --batch, or the work as --samples")
    if deadline_ns and not (samples or steps):
        raise click.UsageError("--deadline needs the whole work: give --samples, or --steps with --batch")
    return Work(samples or 0, steps or 0, (deadline_ns or 0) / _SECOND_NS)


def find_times(option_values: Mapping[str, Any]) -> tuple[int, int]:
    """ns of a full measurement, and the time limit of each run."""
    run_ns = int(option_values["run_time"] or _RUN_NS)
    return run_ns, int(option_values["run_limit"] or _LIMIT_NS + run_ns)


def check_options(option_values: Mapping[str, Any]) -> None:
    """Raises UsageError if two of the options contradict each other."""
    run_ns, limit_ns = find_times(option_values)
    if limit_ns <= run_ns:
        raise click.UsageError("--run-limit has to be longer than --run-time: a run also starts")
    if option_values["mem"] and option_values["predict_run"]:
        raise click.UsageError("--mem sets the memory and --predict-run finds it: give one of them")
