"""The matrix of frameworks: each row is a program that runs without a slice and in one, and must say the same.

The last line of a program is {"result": ..., "total_bytes": ...} (programs/common.py). The results must be equal, and
the memory that the framework sees that of the device, and of the slice.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.qualify.checks import unhooked_env
from vgpud.cli.demo.private_system import OwnSystem, PartError, wait_for
from vgpud.client import calls

PROGRAMS = Path(__file__).resolve().parent / "programs"
SLICE = "clients"
SLICE_OF = 0.5
MIB = 1 << 20
#: what a program ends with when its framework is not there
MISSING = 3
PROGRAM_SECONDS = 120.0
#: cuBLAS gives the same sums each time only with a workspace of a known size
SAME_EACH_TIME = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "PYTHONHASHSEED": "0", "TOKENIZERS_PARALLELISM": "false"}


@dataclass(frozen=True)
class Row:
    """A program of programs/, with its environment. within_bytes: how exactly it measures the memory that it sees."""

    name: str
    program: str
    env: Mapping[str, str] = field(default_factory=dict)
    within_bytes: int = 0

    def path(self) -> Path:
        return PROGRAMS / f"{self.program}.py"


ROWS = (
    Row("torch", "torch_allocator"),
    Row("torch expandable", "torch_allocator", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    Row("torch async", "torch_allocator", {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    Row("torch graph", "torch_graph"),
    Row("torch compile", "torch_compile"),
    Row("torch loader", "torch_loader"),
    Row("torch ddp", "torch_ddp"),
    Row("cupy pool", "cupy_pool"),
    Row("cupy managed", "cupy_managed"),
    Row("cupy kernel", "cupy_kernel"),
    Row("cupy graph", "cupy_graph"),
    Row("jax", "jax_memory", within_bytes=4 * MIB),
    Row("triton", "triton_kernel"),
)


@dataclass
class Outcome:
    """What became of a row. problems: what is not as without a slice, in words; skip_reason: why it could not run."""

    name: str
    problems: list[str] = field(default_factory=list)
    skip_reason: str = ""
    seconds: float = 0.0
    seen_bytes: int = 0
    peak_bytes: int = 0
    launches: int = 0

    @property
    def state(self) -> str:
        return "skipped" if self.skip_reason else "FAILED" if self.problems else "same"

    def as_json(self) -> dict[str, Any]:
        """The row for a result file."""
        return {**asdict(self), "state": self.state}


class ProgramError(Exception):
    """A program did not reach its end."""


def last_words(text: str) -> str:
    """The last line that is not empty."""
    return ([line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"])[-1]


def parse_output(name: str, code: int, stdout: str, stderr: str) -> dict[str, Any]:
    """What a program printed last. Raises ProgramError when it failed."""
    if code:
        raise ProgramError(f"{name} ended with code {code}: {last_words(stderr or stdout)}")
    try:
        line = json.loads(last_words(stdout))
    except json.JSONDecodeError as error:
        raise ProgramError(f"{name} ended without a line of JSON") from error
    if not isinstance(line, dict) or {"result", "total_bytes"} - line.keys():
        raise ProgramError(f"{name} said no result and total_bytes")
    return line


def different_names(plain: Mapping[str, Any], in_slice: Mapping[str, Any]) -> str:
    """The names of results that are not equal."""
    names = [*plain, *(name for name in in_slice if name not in plain)]
    pairs = ((name, plain.get(name), in_slice.get(name)) for name in names)
    return ", ".join(f"{name} {one} and {other}" for name, one, other in pairs if one != other)


class Matrix:
    """Runs rows on one system; all share a slice of half a device."""

    def __init__(self, own: OwnSystem, python: str, env: Mapping[str, str] | None = None) -> None:
        self.own, self.python = own, python
        self.env = {**SAME_EACH_TIME, **(env or {})}
        with own.client() as client:
            if SLICE not in {item.name for item in client.all(calls.slices())}:
                own.vgpu("slice", "create", SLICE, "--gpus", str(SLICE_OF))
            self.device_bytes = client.all(calls.devices())[0].mem_total_bytes
        self.slice_bytes = int(self._slice().mem_max_bytes)

    def _slice(self) -> Any:
        with self.own.client() as client:
            return client.send(calls.get_slice(SLICE)).devices[0]

    def run(self, row: Row) -> Outcome:
        """Runs a row both ways. A program that cannot run here makes it skipped, whatever fails a failed one."""
        outcome, begin = Outcome(row.name), time.monotonic()
        try:
            self._run(row, outcome)
        except (ProgramError, PartError, subprocess.TimeoutExpired) as error:
            outcome.problems.append(str(error))
        outcome.seconds = round(time.monotonic() - begin, 1)
        return outcome

    def _run(self, row: Row, outcome: Outcome) -> None:
        command = [self.python, str(row.path())]
        extra = {**self.env, **row.env}
        plain = subprocess.run(
            command,
            env={**unhooked_env(self.own), **extra},
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
        if plain.returncode == MISSING:
            outcome.skip_reason = last_words(plain.stdout)
            return
        before = parse_output("without a slice it", plain.returncode, plain.stdout, plain.stderr)
        launches = self._slice().launches
        part = self.own.run(SLICE, (), command, extra)
        try:
            wait_for("the program in a slice", lambda: not part.running, PROGRAM_SECONDS)
        finally:
            part.stop()
        after = parse_output(
            "in a slice it", part.process.returncode, part.output_file.read_text(), part.error_file.read_text()
        )
        now = self._slice()
        outcome.seen_bytes, outcome.peak_bytes = after["total_bytes"], now.mem_peak_bytes
        outcome.launches = now.launches - launches
        if different := different_names(before["result"], after["result"]):
            outcome.problems.append(f"without a slice and in one: {different}")
        for who, total, wanted in (
            ("without a slice it", before["total_bytes"], self.device_bytes),
            ("in a slice it", after["total_bytes"], self.slice_bytes),
        ):
            if abs(total - wanted) > row.within_bytes:
                outcome.problems.append(f"{who} sees {total} bytes of memory and not {wanted}")
        if not outcome.launches:
            outcome.problems.append("its launches do not pass the gate")


def table(outcomes: Sequence[Outcome]) -> str:
    """The rows as text."""
    lines = [f"{'row':<18} {'state':<8} {'s':>6}  {'memory seen':>14}  {'launches':>9}"]
    for one in outcomes:
        seen = f"{one.seen_bytes / MIB:,.0f} MiB" if one.seen_bytes else "-"
        lines.append(f"{one.name:<18} {one.state:<8} {one.seconds:>6.1f}  {seen:>14}  {one.launches or '-':>9}")
        lines += [f"    {why}" for why in (*one.problems, *filter(None, [one.skip_reason]))]
    return "\n".join(lines)
