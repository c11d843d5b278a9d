"""What a tuning keeps, as JSON: every candidate with its rate, and the choice. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from vgpud.core.tune.model import PLACEHOLDERS, Candidate, Work
from vgpud.core.tune.progress import RATE_MIN

VERSION = 1
CANDIDATES_MAX = 256
#: what a rate counts: what the program reports, or launches as the hook counts them
SAMPLES, LAUNCHES = "samples", "launches"


class RecordError(ValueError):
    """Text that is no record, in one sentence."""


@dataclass(frozen=True, slots=True)
class Row:
    """A candidate. rate: per second; 0: not known. mem_bytes: the memory that its slice had; 0: by its fraction."""

    candidate: Candidate
    rate: float = 0.0
    progress_s: float = 0.0  # for so long it was measured
    mem_bytes: int = 0
    mem_peak_bytes: int = 0
    why_out: str = ""  # why it cannot be used

    def view(self, work: Work, is_choice: bool, is_frontier: bool) -> dict[str, Any]:
        """The fields of `-o json`, whose names are stable."""
        one, rate = self.candidate, self.rate
        is_known = bool(rate and work.samples_of(one))
        return {
            "gpus_milli": one.gpus_milli,
            "class": one.service_class,
            "values": dict(one.values),
            "rate": rate or None,
            "rate_per_gpu": rate / one.gpus if rate else None,
            "progress_s": round(self.progress_s, 3),
            "work_s": work.duration_s(one, rate) if is_known else None,
            "work_gpu_seconds": work.gpu_seconds(one, rate) if is_known else None,
            "mem_bytes": self.mem_bytes or None,
            "mem_peak_bytes": self.mem_peak_bytes or None,
            "why_out": self.why_out or None,
            "frontier": is_frontier,
            "choice": is_choice,
        }


@dataclass(frozen=True, slots=True)
class Record:
    """command, variables: with placeholders. choice: index of a row; -1: none can be used."""

    name: str
    command: tuple[str, ...]
    variables: tuple[tuple[str, str], ...]  # only those with placeholders
    directory: str
    device: str  # its model
    unix_s: int
    unit: str
    run_s: float  # of a full measurement
    work: Work
    rows: tuple[Row, ...]
    choice: int
    gpu_seconds_used: float
    gpu_seconds_granted: float

    @property
    def chosen_row(self) -> Row | None:
        return self.rows[self.choice] if self.choice >= 0 else None

    def to_json(self) -> str:
        rows = [asdict(row) | {"candidate": asdict(row.candidate)} for row in self.rows]
        fields = {name: getattr(self, name) for name in self.__slots__ if name not in ("work", "rows")}
        return json.dumps({"version": VERSION, **fields, "work": asdict(self.work), "rows": rows}, indent=1)


def read_record(text: str) -> Record:
    """Raises RecordError."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.pop("version", None) != VERSION:
            raise RecordError("it is of another version of vgpu")
        rows = tuple(_read_row(row) for row in data.pop("rows"))
        work = Work(**_check_fields(data.pop("work"), Work()))
        command = tuple(map(_read_text, data.pop("command")))
        variables = tuple((_read_text(name), _read_text(value)) for name, value in data.pop("variables"))
        empty = Record("", (), (), "", "", 0, "", 0.0, work, rows, -1, 0.0, 0.0)
        record = replace(empty, **_check_fields(data, empty), command=command, variables=variables)
    except RecordError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise RecordError(f"it is not a record of a tuning ({type(error).__name__})") from error
    if not (command and 0 < len(rows) <= CANDIDATES_MAX and -1 <= record.choice < len(rows)):
        raise RecordError("it has no command, no candidate, or a choice that is none of them")
    if record.chosen_row and not record.chosen_row.rate:
        raise RecordError("its choice has no rate")
    return record


def _read_row(data: dict[str, Any]) -> Row:
    given = dict(data)
    one = dict(given.pop("candidate"))
    values = tuple((_read_text(name), _read_whole(value)) for name, value in one.pop("values"))
    if not {name for name, _ in values} <= set(PLACEHOLDERS):
        raise RecordError("it has a placeholder that is not known")
    candidate = replace(Candidate(0), **_check_fields(one, Candidate(0)), values=values)
    if candidate.gpus_milli <= 0:
        raise RecordError("a candidate has no size")
    empty = Row(candidate)
    row = replace(empty, **_check_fields(given, empty))
    if 0 < row.rate < RATE_MIN:
        raise RecordError("a candidate has an impossible rate")
    return row


def _check_fields(data: Mapping[str, Any], like: Any) -> dict[str, Any]:
    """The fields, each of the type that it has in `like`; numbers are not negative, but a choice may be -1."""
    for name, value in data.items():
        default = getattr(like, name)
        if isinstance(default, str):
            _read_text(value)
        elif isinstance(default, int):
            _read_whole(value, minimum=-1 if name == "choice" else 0)
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise RecordError(f"its field {name} is not a number")
    return dict(data)


def _read_text(value: object) -> str:
    if not isinstance(value, str):
        raise RecordError("one of its texts is none")
    return value


def _read_whole(value: object, minimum: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise RecordError("one of its numbers is not whole, or negative")
    return value
