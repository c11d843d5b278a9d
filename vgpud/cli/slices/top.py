"""`vgpu top`: shares and memory, live."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from vgpud.cli.common.interrupts import ended_by_interrupt
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Number
from vgpud.errors import CliError, ExitCode

#: time before the first view
_BEFORE_S = 1.0

if TYPE_CHECKING:
    from vgpud.view.slices import View

    Sample = dict[str, list[View]]


@click.command("top", cls=VgpuCommand, short_help="Watch shares and memory live.")
@click.option(
    "-d", "--interval", type=Number(0.1, 60), default=1.0, help="Seconds between updates; a change shows at once."
)
@click.option("-n", "--count", type=click.IntRange(min=1), default=None, help="End after this many updates.")
@pass_settings
def top(settings: Settings, interval: float, count: int | None) -> None:
    """Watch shares and memory live; q ends, h lists the keys: order, filter, processes, pause.

    Two lines per device, the second with its memory, temperature, power and faults (XIDs); then a line per slice. A
    wide terminal shows more columns. Into a pipe, or with -o json, each update is printed below
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
    GATE     now: solo (alone: launches pass uncounted), count (open), closed
    MEM%     of its memory limit
    """
    with ended_by_interrupt():
        if settings.output != "table":
            _stream(settings, _samples(settings, interval, count))
        elif sys.stdout.isatty():
            _live(settings, interval, count)
        else:
            _tables(settings, _samples(settings, interval, count), interval)


def _samples(
    settings: Settings, interval_s: float, count: int | None, with_processes: Callable[[], bool] = lambda: False
) -> Iterator[Sample | str]:
    """A view per sample; while the daemon is away (it may be restarting) the problem, as a message."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.view import slices

    number, problem = 0, ""
    while True:
        try:
            with Client(settings) as client:
                for answer in client.watch(calls.watch_slices(int(interval_s * 1000))):
                    simulated = slices.simulated_uuids(list(answer.devices))
                    devices = [slices.device_view(d) for d in answer.devices]
                    sample = {"devices": devices, "slices": [slices.slice_view(s, simulated) for s in answer.slices]}
                    if with_processes():
                        sample["processes"] = [slices.process_view(p, simulated) for p in client.all(calls.processes())]
                    yield sample
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
            dump(settings, {"sample_time": _now(), **sample}, line=True)


def _tables(settings: Settings, samples: Iterator[Sample | str], interval_s: float) -> None:
    from vgpud.cli.common.history import History
    from vgpud.cli.common.output import print_grid, say
    from vgpud.cli.slices.top_frame import grid

    history = History(interval_s)
    history.add(time.monotonic(), _read_first_sample(settings)["slices"])
    time.sleep(min(interval_s, _BEFORE_S))
    for sample in samples:
        if isinstance(sample, str):
            say(sample)
            continue
        history.add(time.monotonic(), sample["slices"])
        print_grid(settings, grid(sample, history))
        sys.stdout.flush()


def _read_first_sample(settings: Settings) -> Sample:
    """The initial state, which the first view is compared with: rates need two samples."""
    (sample,) = _samples(settings, 1.0, 1)
    assert not isinstance(sample, str)  # a daemon that is away at the start ends the command
    return sample


def _now() -> str:
    from vgpud.view import slice_tables

    return slice_tables.now_utc().isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _live(settings: Settings, interval_s: float, count: int | None) -> None:
    from rich.live import Live

    from vgpud.cli.common.history import History
    from vgpud.cli.common.output import console
    from vgpud.cli.slices.top_frame import frame
    from vgpud.cli.slices.top_keys import Screen, reading

    out, history, screen, drawing = console(settings), History(interval_s), Screen(), threading.Lock()
    shown, at, problem = _read_first_sample(settings), time.strftime("%H:%M:%S"), ""
    history.add(time.monotonic(), shown["slices"])
    with Live(console=out, screen=True, auto_refresh=False) as live:

        def draw() -> None:
            with drawing:
                live.update(frame(out, shown, history, at, problem, screen), refresh=True)
            if screen.has_ended:
                os.kill(os.getpid(), signal.SIGINT)  # as Ctrl-C does: the stream of views waits for its next one

        with reading(screen, draw):
            draw()
            time.sleep(min(interval_s, _BEFORE_S))
            for sample in _samples(settings, interval_s, count, lambda: screen.processes):
                problem = sample if isinstance(sample, str) else ""
                if not isinstance(sample, str) and not screen.is_paused:
                    shown, at = sample, time.strftime("%H:%M:%S")
                    history.add(time.monotonic(), shown["slices"])
                draw()
    if count:
        out.print(frame(out, shown, history, at, problem, screen))  # the screen that it was drawn on is gone
