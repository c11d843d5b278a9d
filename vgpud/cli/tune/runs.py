"""A run of a candidate: its job, and what is read of it while it runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from vgpud.cli.common.client import Client
from vgpud.client import calls
from vgpud.core.tune.model import BATCH, Candidate
from vgpud.core.tune.progress import LINE_CHARS_MAX, PatternError, Progress, RatePattern
from vgpud.core.tune.record import LAUNCHES, SAMPLES
from vgpud.errors import CliError, ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb

if TYPE_CHECKING:
    from typing import BinaryIO

#: read of a file at once, and in one look: more is left for the next one
_CHUNK_BYTES, _CHUNKS_MAX = 1 << 20, 16
#: launches are counted for at least so long before they decide: the first report comes after a second
LAUNCHES_S = 2.0
#: what programs and libraries say where memory is not enough
_MEMORY_WORDS = ("out of memory", "outofmemory", "out_of_memory", "alloc_failed", "resource_exhausted", "memoryerror")
#: of a job's last output, to find these words
_END_BYTES = 1 << 16


@dataclass
class Tail:
    """Lines that are added to a file, which need not exist yet."""

    path: Path
    _file: BinaryIO | None = None
    _rest: bytes = b""

    def read_lines(self) -> Iterator[str]:
        if self._file is None:
            try:
                self._file = open(self.path, "rb")  # noqa: SIM115 - kept until close()
            except OSError:
                return
        for _ in range(_CHUNKS_MAX):
            chunk = self._file.read(_CHUNK_BYTES)
            if not chunk:
                return
            *lines, self._rest = (self._rest + chunk).replace(b"\r", b"\n").split(b"\n")
            self._rest = self._rest[-LINE_CHARS_MAX:]
            yield from (line.decode(errors="replace") for line in lines)

    def close(self) -> None:
        if self._file:
            self._file.close()


@dataclass
class Measure:
    """What is known of a run's rate, from the first of these that says anything: lines of its output by a pattern,
    reports of its processes, launches as the hook counts them."""

    pattern: RatePattern | None
    batch: int | None
    lines: Progress = field(default_factory=Progress)
    reports: dict[str, Progress] = field(default_factory=dict)  # by pid
    launches: Progress = field(default_factory=Progress)

    def add_line(self, line: str, at_s: float) -> None:
        if self.pattern:
            self.pattern.read(line, at_s, self.lines)

    def add_report(self, line: str) -> None:
        """As vgpud.client.report writes it: pid, samples, seconds."""
        try:
            pid, samples, seconds = line.split()
            entry = float(seconds), float(samples)
        except ValueError:
            return
        self.reports.setdefault(pid, Progress()).add_sum(*entry)

    def add_launches(self, count: int, at_s: float) -> None:
        """A step has about as many launches with each batch: with a batch, launches count its samples."""
        if count:
            self.launches.add_sum(at_s, count * (self.batch or 1))

    @property
    def unit(self) -> str:
        return SAMPLES if self.pattern or self.reports else LAUNCHES

    @property
    def elapsed_s(self) -> float:
        if self.pattern:
            return self.lines.elapsed_s
        if self.reports:
            return max(one.elapsed_s for one in self.reports.values())
        return self.launches.elapsed_s if self.launches.elapsed_s >= LAUNCHES_S else 0.0

    def rate(self) -> float:
        """Per second; 0: not known."""
        if self.pattern:
            return self.lines.rate()
        if self.reports:
            return sum(one.rate() for one in self.reports.values())
        return self.launches.rate()


class Run:
    """milestone: at which it is looked at next. `request_id`: of its submission, which may be repeated. is_stopping: it
    is to be cancelled; is_cancelled: the daemon knows."""

    def __init__(
        self,
        candidate: Candidate,
        milestone: int,
        spec: pb.JobSpec,
        report_path: Path,
        request_id: str,
        pattern: RatePattern | None,
    ) -> None:
        self.candidate = candidate
        self.milestone = milestone
        self.measure = Measure(pattern, candidate.value(BATCH))
        self.job: pb.Job | None = None
        self.is_stopping = self.is_cancelled = False
        self.mem_peak_bytes = 0
        self.last_line = ""
        self._spec = spec
        self._request_id = request_id
        self._job_id: int | None = None  # None: it is not known to be submitted
        self._mem_denied = 0
        self._reports = Tail(report_path)
        self._log: Tail | None = None

    @property
    def is_submitted(self) -> bool:
        return self._job_id is not None

    @property
    def has_ended(self) -> bool:
        return self.job is not None and self.job.state in calls.ENDED

    def look(self, client: Client) -> None:
        """Submits the job, or reads what it has done. Raises CliError."""
        if self._job_id is None:
            (self._job_id,) = client.send(calls.submit(self._spec, self._request_id))
        self.job = client.send(calls.job(self._job_id))
        self._log = self._log or Tail(Path(self.job.log))
        if self.job.state == pb.JOB_STATE_RUNNING:
            self._count(client)
        now_s = time.monotonic()
        for line in self._log.read_lines():
            self.last_line = line.strip() or self.last_line
            self._add_line(line, now_s)
        for line in self._reports.read_lines():
            self.measure.add_report(line)

    def _add_line(self, line: str, at_s: float) -> None:
        try:
            self.measure.add_line(line, at_s)
        except PatternError as error:
            raise CliError(str(error), ExitCode.USAGE) from error

    def _count(self, client: Client) -> None:
        """What its slices have done."""
        assert self.job
        try:
            devices = [each for name in self.job.slices for each in client.send(calls.get_slice(name)).devices]
        except CliError as error:
            if error.exit_code != ExitCode.NOT_FOUND:  # it has just ended
                raise
            return
        self.measure.add_launches(sum(each.launches for each in devices), time.monotonic())
        self.mem_peak_bytes = max(self.mem_peak_bytes, sum(each.mem_peak_bytes for each in devices))
        self._mem_denied = sum(each.mem_denied for each in devices)

    def cancel(self, client: Client) -> None:
        """Raises CliError."""
        if self._job_id is None or self.has_ended:
            return
        try:
            client.send(calls.cancel(self._job_id))
        except CliError as error:
            if error.exit_code not in (ExitCode.CONFLICT, ExitCode.NOT_FOUND):  # it has ended meanwhile
                raise

    def close(self) -> None:
        self._reports.close()
        if self._log:
            self._log.close()

    def is_out_of_memory(self) -> bool:
        """Whether a run that failed says so, or was refused memory."""
        return bool(self._mem_denied) or any(word in self._read_end() for word in _MEMORY_WORDS)

    def _read_end(self) -> str:
        assert self.job
        try:
            with open(self.job.log, "rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - _END_BYTES))
                return file.read().decode(errors="replace").lower()
        except OSError:
            return ""

    def describe_failure(self) -> str:
        """How it ended, and what it said last."""
        assert self.job
        ended = f"its job {self.job.job_id} ended with {self.job.exit_code}" if self.job.exit_code else self.job.reason
        line = json.dumps(self.last_line[:200], ensure_ascii=False) if self.last_line else "no output"
        return f"{ended or 'it failed'}: {line}"
