"""The runs of a tuning: jobs that are started, looked at, continued and ended as the core decides."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from signal import SIGINT, SIGTERM, signal
from types import FrameType
from typing import Any

from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.common.output import say
from vgpud.cli.tune.runs import Run
from vgpud.core.tune.halving import Halving
from vgpud.core.tune.model import Candidate, Work
from vgpud.core.tune.placeholders import fill
from vgpud.core.tune.progress import RatePattern
from vgpud.core.tune.record import LAUNCHES, SAMPLES
from vgpud.errors import CliError, ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.rates import format_rate

POLL_S = 0.1
#: how long the last cancellations may take when this command is ended
_FAREWELL_S = 10.0
#: refusals of one size, which another may not have
_OF_SIZE = (ExitCode.NO_CAPACITY, ExitCode.USAGE)


@dataclass(frozen=True)
class Plan:
    """How candidates are run. options: of `vgpu submit`, the same for all; variables: with placeholders in them."""

    command: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]
    options: Mapping[str, Any]
    device_uuids: tuple[str, ...]
    folder: Path
    pattern: RatePattern | None
    milestones: tuple[float, ...]
    at_once: int
    budget_s: float  # 0: none
    mem_bytes: Mapping[Candidate, int] = field(default_factory=dict)  # by the dry run


@dataclass
class Spent:
    """What the runs have cost."""

    gpu_seconds_used: float = 0.0
    gpu_seconds_granted: float = 0.0
    runs: int = 0


class Interrupt:
    """Ctrl-C, or SIGTERM: noted, and acted upon between two calls of the daemon. A second one ends at once."""

    def __init__(self) -> None:
        self.number = 0

    def _note(self, number: int, _frame: FrameType | None) -> None:
        if self.number:
            say("ended at once: jobs that were not cancelled end at their time limit")
            os._exit(128 + number)
        self.number = number

    @contextmanager
    def listening(self) -> Iterator[None]:
        before = [(number, signal(number, self._note)) for number in (SIGINT, SIGTERM)]
        try:
            yield
        finally:
            for number, handler in before:
                signal(number, handler)


class Race:
    """All runs of a tuning."""

    def __init__(
        self, settings: Settings, plan: Plan, halving: Halving, work: Work, say_line: Callable[[str], object]
    ) -> None:
        self._settings = settings
        self._plan = plan
        self._halving = halving
        self._work = work
        self._say = say_line
        self._running: list[Run] = []
        self._client: Client | None = None
        self._is_away = False
        self._waits_for: set[int] = set()
        self.unit = ""  # of the rates; "": none is known yet
        self.peaks_bytes: dict[Candidate, int] = {}
        self.progress_s: dict[Candidate, float] = {}
        self.spent = Spent()

    def run(self, interrupt: Interrupt) -> None:
        """Until all is known, or the budget is spent. Raises KeyboardInterrupt, after all jobs were cancelled; CliError
        if the daemon refuses."""
        until_s = time.monotonic() + self._plan.budget_s if self._plan.budget_s else float("inf")
        try:
            while True:
                is_over = time.monotonic() >= until_s
                while not is_over and len(self._running) < self._plan.at_once and self._start():
                    pass
                if not self._running:
                    break
                for run in list(self._running):
                    self._attend(run, is_over)
                if interrupt.number:
                    raise KeyboardInterrupt
                time.sleep(POLL_S)
            self._halving.stop()
        finally:
            self._cancel_all()

    # ---- starting ----

    def _start(self) -> bool:
        chosen = self._halving.take_next()
        if chosen is None:
            return False
        candidate, milestone = chosen
        self.spent.runs += 1
        report_path = self._plan.folder / f"{self.spent.runs}.reports"
        spec = self._build_spec(candidate, report_path)
        self._running.append(Run(candidate, milestone, spec, report_path, str(uuid.uuid4()), self._plan.pattern))
        return True

    def _build_spec(self, candidate: Candidate, report_path: Path) -> pb.JobSpec:
        from vgpud.cli.jobs.submit import build_job_spec, inherit_variables

        plan, values = self._plan, dict(candidate.values)
        own = {name: fill(text, values) for name, text in plan.variables}
        options = {**plan.options, "gpus": candidate.gpus_milli, "service_class": candidate.service_class}
        options["mem"] = plan.mem_bytes.get(candidate) or plan.options["mem"]
        options["log"] = str(plan.folder).replace("%", "%%") + "/%j.log"
        variables = inherit_variables(False, None) | own
        variables["VGPU_PROGRESS_FILE"] = str(report_path)
        variables.setdefault("PYTHONUNBUFFERED", "1")  # lines of progress arrive when they are printed
        spec = build_job_spec(options, [fill(word, values) for word in plan.command], variables)
        spec.slice.device_uuids.extend(plan.device_uuids)
        return spec

    # ---- while they run ----

    def _attend(self, run: Run, is_over: bool) -> None:
        if not self._look(run):
            if is_over and not run.is_submitted and run in self._running:
                self._close(run)
            return
        self.peaks_bytes[run.candidate] = max(run.mem_peak_bytes, self.peaks_bytes.get(run.candidate, 0))
        if run.has_ended:
            self._close(run)
            if not run.is_stopping:
                self._conclude(run)
            return
        self._tell_waiting(run)
        if not run.is_stopping:
            run.is_stopping = self._is_done(run) or is_over
        if run.is_stopping and not run.is_cancelled:
            run.is_cancelled = self._try(run.cancel)

    def _is_done(self, run: Run) -> bool:
        """Whether it has run for long enough, as far as is known."""
        milestones = self._plan.milestones
        while run.measure.elapsed_s >= milestones[run.milestone] and (rate := run.measure.rate()):
            if not self._is_comparable(run):
                return True
            continues = self._halving.reach(run.candidate, run.milestone, rate)
            self.progress_s[run.candidate] = run.measure.elapsed_s
            if not continues:
                self._tell(run.candidate, rate, "")
                return True
            self._tell(run.candidate, rate, ", continues")
            run.milestone += 1
        return False

    def _is_comparable(self, run: Run) -> bool:
        """Launches of one candidate say nothing beside samples of another."""
        self.unit = self.unit or run.measure.unit
        if run.measure.unit == self.unit:
            return True
        instead = "did not report its samples, as others have" if self.unit == SAMPLES else "alone reports its samples"
        self._drop(run.candidate, f"it {instead}")
        return False

    def _conclude(self, run: Run) -> None:
        """It has ended by itself."""
        assert run.job
        rate = run.measure.rate()
        if run.job.state == pb.JOB_STATE_CANCELLED:
            self._drop(run.candidate, f"its job {run.job.job_id} was cancelled")
        elif run.job.state == pb.JOB_STATE_FAILED:
            if run.is_out_of_memory():
                why = f"out of memory: {run.describe_failure()}"
                self._halving.drop_out_of_memory(run.candidate, why)
                self._say(f"{run.candidate.describe()}: {why}")
            else:
                self._drop(run.candidate, run.describe_failure())
        elif not rate:
            self._drop(run.candidate, self._why_no_rate(run))
        elif self._is_comparable(run):
            self._halving.end(run.candidate, rate)
            self.progress_s[run.candidate] = run.measure.elapsed_s
            self._tell(run.candidate, rate, ", ended")

    def _why_no_rate(self, run: Run) -> str:
        assert run.job
        when = "until its time limit" if run.job.state == pb.JOB_STATE_TIMED_OUT else "until its end"
        if self._plan.pattern:
            line = f"; its last line: {run.last_line[:200]!a}" if run.last_line else "; it has printed nothing"
            return f"two lines of its output have to match --rate-pattern, and did not {when}{line}"
        return f"no rate was known {when}: it has not called vgpud.client.report, and hardly launched anything"

    def _drop(self, candidate: Candidate, why: str) -> None:
        self._halving.drop(candidate, why)
        self._say(f"{candidate.describe()}: {why}")

    def _tell(self, candidate: Candidate, rate: float, end: str) -> None:
        unit = self.unit if self.unit != LAUNCHES or candidate.value("batch") is None else "launches x batch"
        per_gpu = format_rate(rate / candidate.gpus)
        self._say(f"{candidate.describe()}: {format_rate(rate)} {unit}/s, {per_gpu} per GPU{end}")

    def _tell_waiting(self, run: Run) -> None:
        """Once, that and why a job waits."""
        job = run.job
        if job and job.state == pb.JOB_STATE_PENDING and job.reason and job.job_id not in self._waits_for:
            self._waits_for.add(job.job_id)
            self._say(f"{run.candidate.describe()}: job {job.job_id} waits: {job.reason}")

    # ---- the daemon ----

    def _look(self, run: Run) -> bool:
        """Whether the daemon has answered."""
        try:
            return self._try(run.look)
        except CliError as error:
            expected = (ExitCode.NOT_FOUND,) if run.is_submitted else _OF_SIZE
            if error.exit_code not in expected:
                raise
            message = error.message
        self._close(run)
        self._drop(run.candidate, message)
        return False

    def _try(self, action: Callable[[Client], None]) -> bool:
        """Whether the daemon has answered; jobs continue while it is away. Raises CliError."""
        try:
            self._client = self._client or Client(self._settings).__enter__()
            action(self._client)
        except CliError as error:
            if error.exit_code not in (ExitCode.UNREACHABLE, ExitCode.TIMED_OUT):
                raise
            self._disconnect()
            if not self._is_away:
                self._say(f"{error.message}; the run continues, and so does the tuning when the daemon is back")
            self._is_away = True
            return False
        self._is_away = False
        return True

    def _cancel_all(self) -> None:
        """Ends the runs that there still are when this command ends early."""
        until_s = time.monotonic() + _FAREWELL_S
        for run in list(self._running):
            while not (is_cancelled := self._cancel(run)) and time.monotonic() < until_s:
                time.sleep(POLL_S)
            if not is_cancelled and run.job:
                say(f"job {run.job.job_id} was not cancelled: `vgpu job cancel {run.job.job_id}` ends it")
            self._close(run)
        self._disconnect()

    def _cancel(self, run: Run) -> bool:
        try:
            return self._try(run.cancel)
        except CliError:
            return False

    def _disconnect(self) -> None:
        if self._client:
            self._client.__exit__(None, None, None)
            self._client = None

    def _close(self, run: Run) -> None:
        self._running.remove(run)
        run.close()
        if run.job:
            self.spent.gpu_seconds_used += run.job.gpu_seconds_used
            self.spent.gpu_seconds_granted += run.job.gpu_seconds_granted
