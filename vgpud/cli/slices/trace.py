"""`vgpu trace SLICE`: records the arbiter's decisions about a slice, as a file for Perfetto."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, TextIO

import click

from vgpud.cli.common.completions import complete_slice
from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Number
from vgpud.cli.common.slice_names import with_slice
from vgpud.errors import CliError

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: some 300 MB of memory here, and 20 MB of a file
EVENTS_MAX = 300_000


@click.command("trace", cls=VgpuCommand, short_help="Record leases, drains and launches for Perfetto.")
@click.argument("name", metavar="SLICE", shell_complete=complete_slice)
@click.option("-s", "--seconds", type=Number(0.1, 3600), default=None, help="End after this time.")
@click.option(
    "--out",
    "path",
    type=click.Path(dir_okay=False, writable=True, allow_dash=True),
    default=None,
    metavar="FILE",
    help="Output file (default: SLICE.trace.json; - is stdout).",
)
@pass_settings
def trace(settings: Settings, name: str, seconds: float | None, path: str | None) -> None:
    """Record the gates, drains and launches of SLICE and of its neighbours on its devices, until Ctrl-C.

    The file is a Chrome trace: open it at https://ui.perfetto.dev or chrome://tracing. Each device appears as a
    process; its tracks are the regime (how the device is shared) and the slices. Bars show when a slice's gate was
    open, its drains, and other slices' work during a drain (overlap); counters show launches, outstanding work,
    waiting threads and device time.
    """
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import say
    from vgpud.cli.slices.perfetto import chrome_trace
    from vgpud.client import calls
    from vgpud.view import slice_tables

    with Client(settings) as client:
        name = with_slice(
            client, name, lambda each: client.send(calls.get_slice(each))
        ).name  # before the file is created
        devices = {
            d.index: f"device {d.index} {slice_tables.full_name(d.name, d.simulated)}"
            for d in client.all(calls.devices())
        }
        path = path or f"{name}.trace.json"
        with _report_write_errors(path), _open_output(path) as file:
            begin_s = time.monotonic()
            got = _record(client, name, seconds)
            if got.problem and not got.events:
                raise got.problem
            spent = f"{len(got.events)} events in {time.monotonic() - begin_s:.1f} s"
            json.dump(chrome_trace(got.events, name, devices, got.end_ns), file, separators=(",", ":"))
            file.write("\n")
            file.flush()
        say(f"{'<stdout>' if path == '-' else path}: {spent}{got.why}; open it at https://ui.perfetto.dev")
    if got.problem:
        raise got.problem


@contextlib.contextmanager
def _open_output(path: str) -> Iterator[TextIO]:
    """A temporary file, opened before anything is recorded, which replaces `path` when it is complete.

    If `path` is not a regular file, it is written directly.
    """
    if path == "-":
        yield sys.stdout
        return
    where = Path(path)
    if where.exists() and not where.is_file():
        with where.open("w", encoding="utf-8") as file:
            yield file
        return
    where = where.resolve()  # a link stays one
    temporary = where.with_name(f".{where.name}.{os.getpid()}")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            yield file
        temporary.replace(where)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _report_write_errors(path: str) -> Iterator[None]:
    """Raises CliError if the file cannot be opened, or its disk is full."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror}; name another file with --out") from error


@dataclass
class _Recording:
    """The recorded events; why the recording ended by itself, and the error if there was one."""

    events: list[pb.TraceEvent] = field(default_factory=list)
    end_ns: int = 0  # of the node's monotonic clock
    why: str = ""
    problem: CliError | None = None


def _record(client: Client, name: str, seconds: float | None) -> _Recording:
    """Records until Ctrl-C, the end of the time or of the slice, or the limit of events."""
    from vgpud.client import calls

    got = _Recording()
    begin_s = time.monotonic()
    progress = _Progress(name, seconds)
    with _catch_interrupts() as interrupts:
        try:
            for answer in client.watch(calls.watch_trace(name)):
                got.events.extend(answer.events)
                got.end_ns = answer.now_ns
                spent_s = time.monotonic() - begin_s
                progress.show(spent_s, len(got.events))
                if interrupts or (seconds and spent_s >= seconds):
                    return got
                if len(got.events) >= EVENTS_MAX:
                    got.why = ", which is the limit"
                    return got
            got.why = ", until the slice was removed"
        except CliError as error:
            got.problem = error
        finally:
            progress.end()
    return got


@contextlib.contextmanager
def _catch_interrupts() -> Iterator[list[int]]:
    """Not empty after Ctrl-C or SIGTERM. An exception could get lost in one of grpc's callbacks."""
    numbers: list[int] = []

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    def note(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)
        restore()  # a second one ends the command at once

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # nohup
            signal.signal(number, note)
    try:
        yield numbers
    finally:
        restore()


class _Progress:
    """A progress line on the terminal; elsewhere one line that says that recording has begun."""

    def __init__(self, name: str, seconds: float | None) -> None:
        from vgpud.cli.common.output import say

        self._name, self._until = name, f" of {seconds:g}" if seconds else ""
        self._live = sys.stderr.isatty()
        if not self._live:
            say(f"recording {name}{self._until and f' for {seconds:g} s'}; Ctrl-C ends")

    def show(self, spent_s: float, count: int) -> None:
        if self._live:
            text = f"vgpu: recording {self._name}: {spent_s:.1f}{self._until} s, {count} events; Ctrl-C ends"
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        if self._live:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
