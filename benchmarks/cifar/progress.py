"""What the three trainers share: their options and the JSON lines that they print, one per event.

Time stamps are CLOCK_MONOTONIC nanoseconds, so that a line can be laid beside the simulated device's busy log.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from pathlib import Path
from types import FrameType

TIMING_ONLY = "timing only, numbers are not computed"


def arguments(description: str) -> argparse.Namespace:
    """The options of every trainer."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="train for so long (0 = as many steps as --steps says)"
    )
    parser.add_argument("--steps", type=int, default=0, help="train for so many steps (0 = as long as --seconds says)")
    parser.add_argument("--batch", type=int, default=256, help="pictures in a step")
    parser.add_argument("--data", type=Path, help="CIFAR-10 binary file or folder (default: a synthetic sample)")
    parser.add_argument("--report-every", type=int, default=5, help="steps between two lines of progress")
    parser.add_argument(
        "--device", choices=("gpu", "cpu"), default="gpu", help="cpu: a smoke test of the program itself"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the initial weights")
    args = parser.parse_args()
    if args.batch < 1 or args.report_every < 1:
        parser.error("--batch and --report-every must be at least 1")
    if args.seconds <= 0 and args.steps <= 0:
        args.steps = 20
    return args


class Progress:
    """Prints the lines and says when to stop: after seconds, after steps, or at SIGTERM or SIGINT."""

    def __init__(
        self, args: argparse.Namespace, framework: str, device: str, data_note: str, is_simulated: bool
    ) -> None:
        self.args = args
        self.begin_ns = time.monotonic_ns()
        self.steps = 0
        self.is_stopped = False
        self.losses: list[float] = []
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        note = TIMING_ONLY if is_simulated else "loss is computed"
        self.line("start", framework=framework, device=device, simulated=is_simulated, note=note, data=data_note)

    def _stop(self, _signal: int, _frame: FrameType | None) -> None:
        self.is_stopped = True

    def line(self, event: str, **values: object) -> None:
        """Prints one JSON line; a reader that went away ends the training."""
        record = {"event": event, "pid": os.getpid(), "time_ns": time.monotonic_ns(), **values}
        try:
            sys.stdout.write(json.dumps(record) + "\n")  # at once: trainers may share one standard output
            sys.stdout.flush()
        except BrokenPipeError:
            self.is_stopped = True
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), sys.stdout.fileno())

    def training_begins(self) -> None:
        """The set-up (compilation, first steps) is over: from here on time counts."""
        self.begin_ns = time.monotonic_ns()
        self.line("training")

    def report_due(self) -> bool:
        """Whether the step that has just been queued ends with a line (and so with a wait for the device)."""
        return bool((self.steps + 1) % self.args.report_every == 0)

    def step_done(self, is_complete: bool, loss: float | None) -> None:
        """Counts a step; is_complete says that the device has completed it."""
        self.steps += 1
        if not is_complete:
            return
        seconds = (time.monotonic_ns() - self.begin_ns) / 1e9
        values: dict[str, object] = {
            "step": self.steps,
            "samples": self.steps * self.args.batch,
            "seconds": round(seconds, 4),
        }
        if loss is not None:
            self.losses.append(loss)
            values["loss"] = loss
        self.line("progress", **values)

    def wants_more(self, queued_steps: int = 0) -> bool:
        """Whether another step is wanted. queued_steps: steps begun, where some are not counted as done yet."""
        seconds = (time.monotonic_ns() - self.begin_ns) / 1e9
        if self.is_stopped or (self.args.seconds > 0 and seconds >= self.args.seconds):
            return False
        return bool(self.args.steps <= 0 or max(queued_steps, self.steps) < self.args.steps)

    def end(self, **values: object) -> None:
        """The last line: everything that was queued has completed."""
        seconds = (time.monotonic_ns() - self.begin_ns) / 1e9
        samples = self.steps * self.args.batch
        rate = round(samples / seconds, 2) if seconds > 0 else 0.0
        self.line("end", step=self.steps, samples=samples, seconds=round(seconds, 4), samples_per_second=rate, **values)
