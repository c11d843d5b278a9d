"""`vgpu top`: shares and memory, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vgpud.cli.common.exits import CliError
from vgpud.cli.common.interrupts import ended_by_interrupt
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Number
from vgpud.errors import ExitCode

#: time before the first view
_BEFORE_S = 1.0

if TYPE_CHECKING:
    from vgpud.cli.common.views import View

    Sample = dict[str, list[View]]


@click.command("top", cls=VgpuCommand, short_help="Watch shares and memory live.")
@click.option("-d", "--interval", type=Number(0.1, 60), default=1.0, help="Seconds between updates.")
@click.option("-n", "--count", type=click.IntRange(min=1), default=None, help="End after this many updates.")
@pass_settings
def top(settings: Settings, interval: float, count: int | None) -> None:
    """Watch shares and memory live; end with Ctrl-C.

    A line per slice; a wide terminal shows more columns. Into a pipe, or with -o json, each update is printed below
    the last. `vgpu top -n 1` measures for a second and leaves its view on the screen.

    \b
    USER     owner of the slice; FOR: its job, claim or container
    DUE%     entitlement now, by the limits, weights and demands of all slices
    GOT%     share in the last second (10s%, 60s%: in the last 10 and 60)
    WAIT%    time its threads waited at the closed gate, summed over threads
    p50 p99  half, and 99 %, of the last minute's waits were shorter
    BALANCE  positive: device time owed to it; negative: overdrawn
    BORR%    share beyond its guarantee in the last second
    DRAIN    mean time from closing its gate to the completion of its work
    GATE     now: solo (alone, no limits), count (open), closed
    MEM%     of its memory limit
    """
    samples = _samples(settings, interval, count)
    with ended_by_interrupt():
        if settings.output != "table":
            _stream(settings, samples)
        elif sys.stdout.isatty():
            _live(settings, samples, interval, count)
        else:
            _tables(settings, samples, interval)


def _samples(settings: Settings, interval_s: float, count: int | None) -> Iterator[Sample | str]:
    """A view per sample; while the daemon is away (it may be restarting) the problem, as a message."""
    from vgpud.cli.common import views
    from vgpud.cli.common.client import Client

    number, problem = 0, ""
    while True:
        try:
            with Client(settings) as client:
                for answer in client.watch_slices(int(interval_s * 1000)):
                    simulated = views.simulated_uuids(list(answer.devices))
                    devices = [views.device_view(d) for d in answer.devices]
                    yield {"devices": devices, "slices": [views.slice_view(s, simulated) for s in answer.slices]}
                    number, problem = number + 1, ""
                    if number == count:
                        return
        except CliError as error:
            if not number or error.exit_code != ExitCode.UNREACHABLE:
                raise
            if error.message != problem:  # print it once
                yield error.message
            problem = error.message
        time.sleep(interval_s)


def _stream(settings: Settings, samples: Iterator[Sample | str]) -> None:
    from vgpud.cli.common.output import dump, say

    for sample in samples:
        if isinstance(sample, str):
            say(sample)
        elif settings.output == "name":
            print("\n".join(item["name"] for item in sample["slices"]), flush=True)
        else:
            dump(settings, {"at": _now(), **sample}, line=True)


def _tables(settings: Settings, samples: Iterator[Sample | str], interval_s: float) -> None:
    from vgpud.cli.common.history import History
    from vgpud.cli.common.output import print_grid, say
    from vgpud.cli.slices.top_frame import grid

    history = History(interval_s)
    history.add(time.monotonic(), _before(settings)["slices"])
    time.sleep(min(interval_s, _BEFORE_S))
    for sample in samples:
        if isinstance(sample, str):
            say(sample)
            continue
        history.add(time.monotonic(), sample["slices"])
        print_grid(settings, grid(sample, history))
        sys.stdout.flush()


def _before(settings: Settings) -> Sample:
    """The initial state, which the first view is compared with: rates need two samples."""
    (sample,) = _samples(settings, 1.0, 1)
    assert not isinstance(sample, str)  # a daemon that is away at the start ends the command
    return sample


def _now() -> str:
    from vgpud.cli.common import tables

    return tables.now_utc().isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _live(settings: Settings, samples: Iterator[Sample | str], interval_s: float, count: int | None) -> None:
    from rich.live import Live

    from vgpud.cli.common.history import History
    from vgpud.cli.common.output import console
    from vgpud.cli.slices.top_frame import frame

    out, history, at = console(settings), History(interval_s), time.strftime("%H:%M:%S")
    shown = _before(settings)
    history.add(time.monotonic(), shown["slices"])
    view = frame(out, shown, history, at)
    with Live(view, console=out, screen=True, auto_refresh=False) as live:
        live.refresh()
        time.sleep(min(interval_s, _BEFORE_S))
        for sample in samples:
            problem = sample if isinstance(sample, str) else ""
            if not isinstance(sample, str):
                shown, at = sample, time.strftime("%H:%M:%S")
                history.add(time.monotonic(), shown["slices"])
            view = frame(out, shown, history, at, problem)
            live.update(view, refresh=True)
    if count:
        out.print(view)  # the screen that it was drawn on is gone
