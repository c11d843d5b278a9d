"""Reads what an arbiter has recorded (shim/arbiter/record.h) and plays it to the model and the core once more."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from models.arbiter.model import Params, Slice, SliceParams
from tests.arbiter.pair import Pair, fill

MAGIC, VERSION = 0x4345525550475600, 1
PARAMS, SET, REMOVE, INPUT, STEP, OUTPUT = range(1, 7)
HEADER = struct.Struct("=QIIQ")
RECORD = struct.Struct("=IIQQ11Q")
PARAM_NAMES = (
    *("quantum_ns", "quantum_min_ns", "bound_ns", "open_bound_ns", "overrun_ns", "latency_bound_ns", "lookahead_ns"),
    *("guarantee_depth_ns", "cap_depth_ns"),
)
FLAGS = (
    "attached",
    "wants",
    "outstanding",
    "quiet",
    "gave_up_while_waiting",
    "noticed",
    "gang_go",
    "gang_turns",
    "gang_stop",
    "gang_busy",
    "counted_ahead",
)
INPUTS = ("running", "drained_ns", "drain_expected_ns", "busy_total_ns", "active_total_ns", "done_total_ns")
OUTPUTS = (
    *("word", "state", "lease_end_ns", "bound_ns", "neighbour_waits", "watch", "entitlement_ppm", "saturating"),
    *("throttled", "virtual_ns", "charged_ns"),
)


class Record(NamedTuple):
    kind: int
    time_ns: int
    slice_id: int
    values: tuple[int, ...]


def read(path: Path) -> tuple[int, Iterator[Record]]:
    """(when it begins, the records); one that is cut off at the end is left out. Raises ValueError for other files."""
    raw = path.read_bytes()
    magic, version, size, begin_ns = HEADER.unpack_from(raw)
    if (magic, version, size) != (MAGIC, VERSION, RECORD.size):
        raise ValueError(f"{path} is no recording of version {VERSION}")
    whole = (len(raw) - HEADER.size) // RECORD.size * RECORD.size
    rows = RECORD.iter_unpack(raw[HEADER.size : HEADER.size + whole])
    return begin_ns, (Record(kind, time_ns, slice_id, tuple(values)) for kind, _, time_ns, slice_id, *values in rows)


class Replay:
    """Plays records to a pair of model and core, and compares what they decide with what was decided (or only, with
    checks_decisions=False, with each other: what was decided then need not be what is decided now)."""

    def __init__(self, begin_ns: int, checks_decisions: bool = True) -> None:
        self.checks_decisions = checks_decisions
        self.pair = Pair()
        self.pair.last_ns = self.pair.core.last_ns = begin_ns
        self.outputs: dict[int, tuple[int, ...]] = {}
        self.steps = 0
        self.regimes: set[int] = set()

    def play(self, record: Record) -> None:
        """One record; the outputs of a step are compared when the next record that is no output comes."""
        if record.kind == PARAMS:
            self.pair.params = Params(**dict(zip(PARAM_NAMES, record.values, strict=False)))
            self.pair.core.params = fill(self.pair.ffi, "vg_arbiter_params", self.pair.params)[0]
        elif record.kind == SET:
            low, high, weight, priority, latency, gang, paused, rotates = record.values[:8]
            params = SliceParams(low, high, weight, priority, bool(latency), gang, bool(paused), bool(rotates))
            self.pair.set(record.slice_id, params)
        elif record.kind == REMOVE:
            self.pair.remove(record.slice_id)
        elif record.kind == INPUT:
            self._tell(record)
        elif record.kind == STEP:
            self._step(record)
        elif record.kind == OUTPUT:
            self.outputs[record.slice_id] = record.values

    def _slice(self, ident: int) -> Slice:
        return next(s for s in self.pair.slices if s.ident == ident)

    def _tell(self, record: Record) -> None:
        slice_ = self._slice(record.slice_id)
        bits, *values = record.values
        for bit, name in enumerate(FLAGS):
            setattr(slice_, name, bool(bits >> bit & 1))
        for name, value in zip(INPUTS, values, strict=False):
            setattr(slice_, name, value)

    def _step(self, record: Record) -> None:
        deadline_ns = self.pair.step(record.time_ns)
        if self.checks_decisions:
            assert (deadline_ns, self.pair.regime) == record.values[:2], f"step {self.steps}"
        self.steps += 1
        self.regimes.add(self.pair.regime)

    def compare(self) -> None:
        """After all outputs of a step."""
        for s in self.pair.slices:
            ours = {name: int(getattr(s, name)) % 2**64 for name in OUTPUTS}
            then = dict(zip(OUTPUTS, self.outputs[s.ident], strict=True))
            assert ours == then, f"step {self.steps}, slice {s.ident}"


def replay(path: Path, checks_decisions: bool = True) -> Replay:
    """Plays a whole recording. Raises AssertionError where model or core decide otherwise than was recorded."""
    begin_ns, records = read(path)
    made = Replay(begin_ns, checks_decisions)
    after_step = False
    for record in records:
        if checks_decisions and after_step and record.kind != OUTPUT:
            made.compare()
        after_step = record.kind in (STEP, OUTPUT)
        made.play(record)
    return made
