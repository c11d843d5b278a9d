"""How a job of `vgpu submit` is ended: a signal ahead of its time limit, and the time from SIGTERM to SIGKILL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.quantities import AnyParam
from vgpud.cli.common.times import Span
from vgpud.core.jobs.signals import SIGNALS

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

    from vgpud.v1alpha1 import vgpud_pb2 as pb

F = TypeVar("F", bound=Callable[..., Any])
NAMES = ("signal", "grace")
_NS = 1_000_000_000


class SignalAhead(AnyParam):
    """USR1@300 or SIGUSR1@5m: a signal, and how long before the time limit it is sent, in ns."""

    name = "signal"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        name, at, span = str(value).partition("@")
        name = name.strip().upper().removeprefix("SIG")
        if name not in SIGNALS:
            self.fail(f"{str(value)!r} names no signal: choose from {', '.join(SIGNALS)}", param, ctx)
        if not at:
            self.fail(f"{str(value)!r} says no time: write for example {name}@300, or {name}@5m", param, ctx)
        return name, Span().convert(span, param, ctx)


def ending_options(function: F) -> F:
    """--signal and --grace."""
    signal = click.option(
        "--signal",
        type=SignalAhead(),
        metavar="NAME@TIME",
        help="Send its processes this signal so long before --time-limit, once: USR1@300, or USR1@5m.",
    )
    grace = click.option(
        "--grace",
        type=Span(),
        metavar="TIME",
        help="Time from SIGTERM to SIGKILL when it is ended (default: the site's). At most its job_grace_max_s.",
    )
    return signal(grace(function))


def fill_ending(spec: pb.JobSpec, option_values: Mapping[str, Any]) -> None:
    """Raises UsageError for a signal without a time limit."""
    if option_values["signal"]:
        name, lead_ns = option_values["signal"]
        if not option_values["time_limit"]:
            raise click.UsageError("--signal is sent before the time limit: add --time-limit")
        spec.signal = name
        spec.signal_lead.CopyFrom(_duration(lead_ns))
    if option_values["grace"]:
        spec.grace.CopyFrom(_duration(option_values["grace"]))


def _duration(span_ns: int) -> Duration:
    from google.protobuf.duration_pb2 import Duration

    return Duration(seconds=span_ns // _NS, nanos=span_ns % _NS)


def sbatch_signal(option_values: Mapping[str, Any]) -> str:
    """As sbatch takes it, "" for none."""
    if not option_values["signal"]:
        return ""
    name, lead_ns = option_values["signal"]
    return f"{name}@{-(-lead_ns // _NS)}"
