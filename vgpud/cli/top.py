"""`vgpu top`: shares and memory, live."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from vgpud.cli.exits import CliError
from vgpud.cli.options import Settings, VgpuCommand, pass_settings
from vgpud.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from vgpud.cli.views import View

    Sample = dict[str, list[View]]

BAR_CELLS = 30


@click.command("top", cls=VgpuCommand, short_help="Watch shares and memory live.")
@click.option("-d", "--interval", type=click.FloatRange(0.1, 60), default=1.0, help="Seconds between views.")
@click.option("-n", "--count", type=click.IntRange(min=1), default=None, help="End after so many views.")
@pass_settings
def top(settings: Settings, interval: float, count: int | None) -> None:
    """Watch shares and memory live; end with Ctrl-C.

    In a share's bar `[` is the guaranteed minimum and `]` the maximum. Not to a terminal, or with -o json, each view is
    printed below the last.
    """
    samples = _samples(settings, interval, count)
    try:
        if settings.output == "table" and sys.stdout.isatty():
            _live(settings, samples)
        else:
            _plain(settings, samples)
    except KeyboardInterrupt:
        pass  # the way to end it


def _samples(settings: Settings, interval_s: float, count: int | None) -> Iterator[Sample | str]:
    """A view per sample; while the daemon is away (it may be restarted) what is wrong, in words."""
    from vgpud.cli import views
    from vgpud.cli.client import Client

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
            if error.message != problem:  # said once
                yield error.message
            problem = error.message
        time.sleep(interval_s)


def _plain(settings: Settings, samples: Iterator[Sample | str]) -> None:
    from vgpud.cli import grids
    from vgpud.cli.output import dump, print_grid, say

    for sample in samples:
        if isinstance(sample, str):
            say(sample)
        elif settings.output in ("json", "yaml"):
            dump(settings, {"at": _now(), **sample}, line=True)
        elif settings.output == "name":
            print(" ".join(item["name"] for item in sample["slices"]), flush=True)
        else:
            print_grid(settings, grids.slices_grid(sample["slices"], grids.now_utc()))
            sys.stdout.flush()


def _now() -> str:
    from vgpud.cli import grids

    return grids.now_utc().isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _live(settings: Settings, samples: Iterator[Sample | str]) -> None:
    from rich.live import Live

    from vgpud.cli.output import console

    out = console(settings)
    first = next(samples)
    assert not isinstance(first, str)  # only after a view
    with Live(frame(out, first), console=out, screen=True, auto_refresh=False) as live:
        shown = first
        for sample in samples:
            if isinstance(sample, str):
                live.update(frame(out, shown, sample), refresh=True)
            else:
                shown = sample
                live.update(frame(out, shown), refresh=True)


def frame(out: Console, sample: Sample, problem: str = "") -> RenderableType:
    """One view: a block per device, a line per slice on it; and why it is an old one."""
    from rich.console import Group
    from rich.text import Text

    from vgpud.cli.text import plain

    parts: list[RenderableType] = []
    for device in sample["devices"]:
        parts.append(_device_line(device))
        rows = [(s, d) for s in sample["slices"] for d in s["devices"] if d["device_uuid"] == device["uuid"]]
        for item, share in sorted(rows, key=lambda row: -row[1]["share_ratio"]):
            parts.append(_slice_line(item, share, wide=out.width >= 110))
        if not rows:
            parts.append(Text("  no slices", style="dim"))
        parts.append(Text(""))
    parts.append(Text(plain(problem), style="bold red") if problem else Text("Ctrl-C ends", style="dim"))
    return Group(*parts)


def _device_line(device: View) -> Text:
    from rich.text import Text

    from vgpud.cli import grids
    from vgpud.cli.text import plain
    from vgpud.core.units import format_bytes, format_gpus

    name = plain(grids.full_name(device["name"], device["simulated"]))
    text = Text(f"{device['node']} device {device['index']}  {name}", style="bold")
    used, total = format_bytes(device["memory_used_bytes"]), format_bytes(device["memory_total_bytes"])
    use = f"busy {grids.percent(device['utilization_ratio'])}  memory {used} of {total}"
    text.append(f"  {use}  reserved {format_gpus(device['reserved_milli'])}", style="not bold")
    return text


def _slice_line(item: View, share: View, wide: bool) -> Text:
    from rich.text import Text

    from vgpud.cli import grids
    from vgpud.cli.text import plain
    from vgpud.core.units import format_bytes

    low, high, _, mem_max = grids.four_numbers(share)
    text = Text(f"  {plain(item['name'])[:20]:<20} ")
    got = share["share_ratio"]
    text.append(bar(got, share["min_milli"] / 1000, share["max_milli"] / 1000), style=_style(share))
    text.append(f" {got * 100:5.1f}%  of {low}..{high}")
    text.append(f"   memory {format_bytes(share['mem_used_bytes'])} of {mem_max}")
    if wide:
        text.append(f"   {item['processes']} processes, gate {share['gate'] or '-'}", style="dim")
    return text


def _style(share: View) -> str:
    over = share["share_ratio"] * 1000 > share["max_milli"] + 30
    return "red" if over else "green"


def bar(got: float, low: float, high: float) -> str:
    """A bar of BAR_CELLS for 0..1: filled up to `got`, `[` at the minimum and `]` at the maximum."""
    cells = ["█" if (i + 0.5) / BAR_CELLS <= got else "·" for i in range(BAR_CELLS)]
    for ratio, mark in ((low, "["), (high, "]")):
        cells[min(BAR_CELLS - 1, max(0, round(ratio * BAR_CELLS) - (mark == "]")))] = mark
    return "".join(cells)
