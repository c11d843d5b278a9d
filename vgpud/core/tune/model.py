"""What is tried: candidates, and the whole work that the program is to do. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from vgpud.core.units import MILLI_PER_DEVICE, format_gpus

#: names of the placeholders in a command
BATCH, WORKERS = "batch", "workers"
PLACEHOLDERS = (BATCH, WORKERS)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to run the program. values: of its placeholders, in the order of PLACEHOLDERS."""

    gpus_milli: int
    service_class: str = "batch"
    values: tuple[tuple[str, int], ...] = ()

    def value(self, name: str) -> int | None:
        """None: the command has no such placeholder."""
        return dict(self.values).get(name)

    @property
    def gpus(self) -> float:
        return self.gpus_milli / MILLI_PER_DEVICE

    def describe(self) -> str:
        """As in "--gpus 0.5 --class latency, batch 64"."""
        shown = f" --class {self.service_class}" if self.service_class != "batch" else ""
        values = "".join(f", {name} {value}" for name, value in self.values)
        return f"--gpus {format_gpus(self.gpus_milli)}{shown}{values}"


def make_candidates(
    gpus_milli: Sequence[int], classes: Sequence[str], values: Mapping[str, Sequence[int]]
) -> tuple[Candidate, ...]:
    """All combinations, in the order in which they run. Small fractions and large values come first: these are often
    the best per GPU, and the others then end at their first milestone."""

    def combine() -> Iterator[Candidate]:
        names = [name for name in PLACEHOLDERS if name in values]
        axes = [sorted(set(values[name]), reverse=True) for name in names]
        for milli, service_class, chosen in product(
            sorted(set(gpus_milli)), dict.fromkeys(classes), list(product(*axes))
        ):
            yield Candidate(milli, service_class, tuple(zip(names, chosen, strict=True)))

    return tuple(combine())


@dataclass(frozen=True, slots=True)
class Work:
    """The whole work, in samples or in steps of a batch each, and how long it may take. 0: not known."""

    samples: int = 0
    steps: int = 0
    deadline_s: float = 0.0

    def samples_of(self, candidate: Candidate) -> int:
        """0: not known."""
        return self.samples or self.steps * (candidate.value(BATCH) or 0)

    def duration_s(self, candidate: Candidate, rate: float) -> float:
        """Of the whole work at so many samples a second, without the program's start; 0: the work is not known."""
        return self.samples_of(candidate) / rate

    def gpu_seconds(self, candidate: Candidate, rate: float) -> float:
        """What the whole work costs, or one sample of it if the work is not known."""
        return candidate.gpus * (self.samples_of(candidate) or 1) / rate

    def is_met(self, candidate: Candidate, rate: float) -> bool:
        """Whether the work is done by the deadline, if there is one."""
        return not self.deadline_s or self.duration_s(candidate, rate) <= self.deadline_s

    def rank(self, candidate: Candidate, rate: float) -> tuple[float, float, float]:
        """The smallest is the best: the cheapest that meets the deadline; if none does, the one that is least late; of
        several the fastest."""
        late_s = max(0.0, self.duration_s(candidate, rate) - self.deadline_s) if self.deadline_s else 0.0
        return late_s, self.gpu_seconds(candidate, rate), -rate
