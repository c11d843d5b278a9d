"""Slowdown of jobs on one device, from tables of measured pairs. Speeds are in millionths of that alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from vgpud.core.devices.rates import model_key
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.simulate.trace import TraceError, TraceJob
from vgpud.userfiles.bounded import FileError, read_text

FILE_BYTES_MAX = 64 << 20

#: speed of a job that is alone
FULL = 1_000_000
#: of 1,388 measured pairs of 14 model families: up to which sum of their utilisations alone (milli of a device) the
#: worse of the two is how many times slower, on average (thousandths)
SUMMED = (
    (500, 1040),
    (800, 1060),
    (1000, 1080),
    (1200, 1130),
    (1400, 1250),
    (1600, 1390),
    (1800, 1570),
    (2000, 1700),
)


class Interference(Protocol):
    """How fast a job is beside others on one device."""

    def speed(self, job: TraceJob, neighbours: Sequence[TraceJob]) -> int:
        """In millionths of its speed alone there; at least 1."""
        ...


@dataclass(frozen=True, slots=True)
class Summed:
    """By the sum of the utilisations. Beyond the table: as its last pairs, in proportion to the sum."""

    def speed(self, job: TraceJob, neighbours: Sequence[TraceJob]) -> int:
        if not neighbours:
            return FULL
        total = sum(utilisation_milli(one) for one in (job, *neighbours))
        slower = next((slower for most, slower in SUMMED if total <= most), 0)
        last_most, last_slower = SUMMED[-1]
        return FULL * 1000 // (slower or last_slower * total // last_most)


@dataclass(frozen=True, slots=True)
class Pairs:
    """By the models of each pair of jobs, as Gavel's table has them; of several neighbours, their product.

    A model is called as in the table, or by its family: resnet50 is the mean of all sizes of ResNet-50. A job without a
    model in the table costs others what the summed utilisations say.
    """

    #: (model, neighbour's model) -> speed; families as well
    speeds: dict[tuple[str, str], int]
    otherwise: Interference = field(default_factory=Summed)

    def speed(self, job: TraceJob, neighbours: Sequence[TraceJob]) -> int:
        found = FULL
        for other in neighbours:
            found = (
                found * (self._pair(job.spec.model, other.spec.model) or self.otherwise.speed(job, (other,))) // FULL
            )
        return max(found, 1)

    def by_demand(self) -> tuple[str, ...]:
        """The models of the table (not their families), from the one beside which others are slowed down least."""
        beside: dict[str, list[int]] = {}
        for (model, other), speed in self.speeds.items():
            if family(model) != model and family(other) != other:
                beside.setdefault(other, []).append(speed)
        return tuple(sorted(beside, key=lambda model: (-sum(beside[model]) // len(beside[model]), model)))

    def _pair(self, model: str, other: str) -> int:
        """0 = neither they nor their families are in the table."""
        return self.speeds.get((model, other)) or self.speeds.get((family(model), family(other)), 0)


def utilisation_milli(job: TraceJob) -> int:
    """Of each of its devices: as measured, else the share that it asked for."""
    if job.utilisation_milli >= 0:
        return job.utilisation_milli
    return min(MILLI_PER_DEVICE, job.spec.ask.width_milli)


def gavel(path: Path, device: str) -> Pairs:
    """The pairs of one kind of device in Gavel's simulation_throughputs.json. Raises TraceError."""
    try:
        data = json.loads(read_text(path, FILE_BYTES_MAX))
    except FileError as error:
        raise TraceError(f"throughputs: {error}") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"cannot read the throughputs in {path}: {error}") from error
    if not isinstance(data, dict) or device not in data:
        known = ", ".join(sorted(data)) if isinstance(data, dict) else "none"
        raise TraceError(f"{path} has no device {device!r}: choose one of {known}")
    speeds: dict[tuple[str, str], int] = {}
    try:
        for kind, row in data[device].items():
            alone = row["null"]
            if kind.endswith(", 1)") and alone > 0:
                pairs = {other: got for other, got in row.items() if other != "null" and other.endswith(", 1)")}
                speeds |= {(_model(kind), _model(other)): _speed(got[0], alone) for other, got in pairs.items()}
    except (AttributeError, KeyError, TypeError, IndexError, ValueError, OverflowError) as error:
        raise TraceError(f"{path} is not a table of throughputs in Gavel's format: {error!r}") from error
    return Pairs(speeds | _families(speeds))


def _families(speeds: dict[tuple[str, str], int]) -> dict[tuple[str, str], int]:
    """The means over the batch sizes of both."""
    found: dict[tuple[str, str], list[int]] = {}
    for (model, other), speed in speeds.items():
        found.setdefault((family(model), family(other)), []).append(speed)
    return {pair: sum(each) // len(each) for pair, each in found.items()}


def family(model: str) -> str:
    """ "ResNet-50 (batch size 16)" and "resnet50" are "resnet50"."""
    return model_key(model.partition(" (")[0])


def _speed(rate_together: float, rate_alone: float) -> int:
    return min(FULL, max(1, round(FULL * rate_together / rate_alone)))


def _model(kind: str) -> str:
    """ "ResNet-18 (batch size 16)" out of "('ResNet-18 (batch size 16)', 1)": the 1 is its GPUs."""
    return kind.partition("', ")[0].removeprefix("('")
