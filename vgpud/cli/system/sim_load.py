"""`vgpu sim load`: a program to try slices with, in the shape of a trainer, an inference service and so on."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Bytes, Number
from vgpud.errors import CliError, DriverError, ExitCode
from vgpud.simdevice.load import SHAPES, Program, Step

#: between two lines
_REPORT_S = 1.0
_NS_PER_S = 1_000_000_000


@click.command("load", cls=VgpuCommand, short_help="Use a device as a trainer or an inference service does.")
@click.argument("shape", type=click.Choice(list(SHAPES)), default="trainer", metavar="[SHAPE]")
@click.option("--seconds", type=Number(0.1, 31_536_000), default=None, help="End after this time (default: Ctrl-C).")
@click.option("--memory", type=Bytes(), default=None, metavar="SIZE", help="Device memory (default: by the shape).")
@click.option("--report", type=Number(0.05, 3600), default=_REPORT_S, metavar="SECONDS", help="Time between lines.")
@pass_settings
def load(settings: Settings, shape: str, seconds: float | None, memory: int | None, report: float) -> None:
    """Put a test load on the device that `vgpu run` or `vgpu sim run` gave to this command. Its kernels occupy the
    device but compute nothing.

    \b
    trainer     steps of 20 ms of device time without a gap, a copy before each, 1 GiB (the default)
    saturating  the same without copies, in steps of 5 ms, 256 MiB
    bursty      saturating for 0.3 s, then idle for 0.7 s
    inference   a request of 2 ms every 20 ms, 512 MiB; the lines have its latencies

    \b
    vgpu sim start && vgpud serve --device sim &
    vgpu run --gpus 0.25 -- vgpu sim load trainer &
    vgpu run --gpus 0.75 -- vgpu sim load saturating

    A line per second says what the device has completed; with -o json an object per line.
    """
    from dataclasses import replace

    wanted = SHAPES[shape] if memory is None else replace(SHAPES[shape], memory_bytes=memory)
    stopped = _signals()
    try:
        program = Program(wanted)
    except DriverError as error:
        text = f"{error}: run it in a slice, `vgpu run --gpus 0.5 -- vgpu sim load`, or by `vgpu sim run`"
        raise CliError(text, ExitCode.UNREACHABLE) from error
    _Report(settings, shape, program, report).run(stopped, seconds)


def _signals() -> list[int]:
    """Not empty after SIGINT or SIGTERM: the steps on the device are then waited for."""
    numbers: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        numbers.append(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, note)
    return numbers


class _Report:
    """The lines: what was completed since the last one, and in all."""

    def __init__(self, settings: Settings, name: str, program: Program, every_s: float) -> None:
        self._settings, self._name, self._program, self._every_s = settings, name, program, every_s
        self._steps: list[Step] = []  # since the last line
        self._done = 0
        self._begin_ns = self._last_report_ns = time.monotonic_ns()

    def run(self, signal_numbers: Sequence[int], seconds: float | None) -> None:
        simulated = "SIMULATED" in self._program.device_name
        self._line("start", device=self._program.device_name, simulated=simulated)
        end_ns = self._begin_ns + int((seconds or 0) * _NS_PER_S)
        self._begin_ns = self._last_report_ns = time.monotonic_ns()
        self._line("training")
        more = lambda: not signal_numbers and (seconds is None or time.monotonic_ns() < end_ns)  # noqa: E731
        for step in self._program.steps(more):
            self._steps.append(step)
            self._done += 1
            if step.end_ns - self._last_report_ns >= self._every_s * _NS_PER_S:
                self._progress("progress", step.end_ns)
        self._progress("end", time.monotonic_ns())

    def _progress(self, event: str, now_ns: int) -> None:
        shape, steps = self._program.shape, self._steps
        span_s = max(now_ns - self._last_report_ns, 1) / _NS_PER_S
        latencies_ms = sorted((step.end_ns - step.begin_ns) / 1e6 for step in steps) if shape.period_ns else []
        values: dict[str, Any] = {
            "step": self._done,
            "samples": self._done * shape.samples,
            "seconds": round((now_ns - self._begin_ns) / _NS_PER_S, 3),
            "samples_per_second": round(len(steps) * shape.samples / span_s, 1),
            "device_time_ratio": round(len(steps) * shape.step_ns / _NS_PER_S / span_s, 4),
        }
        if latencies_ms:
            values["latency_p50_ms"] = round(latencies_ms[len(latencies_ms) // 2], 2)
            values["latency_p99_ms"] = round(latencies_ms[min(len(latencies_ms) - 1, len(latencies_ms) * 99 // 100)], 2)
        self._line(event, **values)
        self._steps, self._last_report_ns = [], now_ns

    def _line(self, event: str, **values: Any) -> None:
        from vgpud.cli.common.output import dump

        if self._settings.output in ("json", "yaml"):
            record = {"event": event, "pid": os.getpid(), "time_ns": time.monotonic_ns(), "shape": self._name, **values}
            dump(self._settings, record, line=True)
        elif event == "start":
            print(f"{self._name} on {values['device']}, pid {os.getpid()}; Ctrl-C ends", flush=True)
        elif event == "progress" and self._settings.output == "table":
            print(self._words(values), flush=True)

    def _words(self, values: dict[str, Any]) -> str:
        what = "requests" if self._program.shape.period_ns else "samples" if self._name == "trainer" else "steps"
        text = f"{values['seconds']:7.1f} s  {values['samples_per_second']:10,.1f} {what}/s"
        text += f"  {values['device_time_ratio']:6.1%} of the device's time"
        if "latency_p50_ms" in values:
            text += f"  latency p50 {values['latency_p50_ms']:.1f} ms, p99 {values['latency_p99_ms']:.1f} ms"
        return text
