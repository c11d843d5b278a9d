"""Which candidates run, and for how long: asynchronous successive halving (Li et al., "A System for Massively Parallel
Hyperparameter Tuning", MLSys 2020). Pure.

A run is looked at when it has made progress for as long as each milestone says. It continues if its rate is among the
best 1/REDUCTION of all that have reached that milestone, and ends otherwise, so that most candidates cost only the
first milestone. Unlike the published rule a run that continues is not started again: what a start costs (imports,
compilation) is paid once. To the last milestone runs only what is best of all when no other runs or waits. Without
that, an order in which each candidate is better than those before would cost as much as running all in full.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from vgpud.core.tune.model import BATCH, Candidate, Work

#: of so many candidates at a milestone one continues
REDUCTION = 4
#: milestones are this many, each REDUCTION times as far as the one before
MILESTONES = 3


def make_milestones(run_s: float) -> tuple[float, ...]:
    """Seconds of progress; the last one is a full measurement."""
    return tuple(run_s / REDUCTION**power for power in range(MILESTONES - 1, -1, -1))


class Phase(Enum):
    """What a candidate is doing."""

    WAITING = "waiting"
    RUNNING = "running"
    MEASURED = "measured"  # not necessarily to the last milestone
    OUT = "out"


@dataclass(slots=True)
class Trial:
    """One candidate. rates: samples a second by milestone."""

    candidate: Candidate
    phase: Phase = Phase.WAITING
    rates: dict[int, float] = field(default_factory=dict)
    is_complete: bool = False  # measured for as long as it can be
    why_out: str = ""

    @property
    def rate(self) -> float | None:
        """The latest; None: it has reached no milestone."""
        return self.rates[max(self.rates)] if self.rates else None


class Halving:
    """memory_by_gpus: a smaller fraction has less memory. It has not where the memory is set."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        work: Work,
        *,
        milestones: int = MILESTONES,
        memory_by_gpus: bool = True,
    ) -> None:
        self.trials = {candidate: Trial(candidate) for candidate in candidates}
        self._work = work
        self._last = milestones - 1
        self._memory_by_gpus = memory_by_gpus

    # ---- what is to be done ----

    def take_next(self) -> tuple[Candidate, int] | None:
        """A candidate to start, and the milestone at which it is looked at first. None: nothing more to start, or not
        until a run has ended."""
        for trial in self.trials.values():
            if trial.phase is Phase.WAITING:
                trial.phase = Phase.RUNNING
                return trial.candidate, 0
        if any(trial.phase is Phase.RUNNING for trial in self.trials.values()):
            return None
        best = self.find_best()
        if best is None or best.is_complete:
            return None
        best.phase = Phase.RUNNING
        return best.candidate, self._last

    def find_best(self) -> Trial | None:
        """By the latest rates."""
        measured = [(trial, trial.rate) for trial in self.trials.values() if trial.phase is not Phase.OUT]
        known = [(self._work.rank(trial.candidate, rate), trial) for trial, rate in measured if rate]
        return min(known, key=lambda pair: pair[0])[1] if known else None

    # ---- what has been seen ----

    def reach(self, candidate: Candidate, milestone: int, rate: float) -> bool:
        """It has run to this milestone with so many samples a second. Returns whether the run continues."""
        trial = self.trials[candidate]
        trial.rates[milestone] = rate
        if milestone >= self._last:
            self._finish(trial)
            return False
        is_continued = (
            self._is_best_of_all(trial) if milestone + 1 == self._last else self._is_among_best(trial, milestone)
        )
        if is_continued:
            return True
        trial.phase = Phase.MEASURED
        return False

    def end(self, candidate: Candidate, rate: float) -> None:
        """Its run has ended by itself, before the next milestone: there is no more to measure."""
        trial = self.trials[candidate]
        trial.rates[self._last] = rate
        self._finish(trial)

    def drop(self, candidate: Candidate, why: str) -> None:
        """It cannot be used."""
        trial = self.trials[candidate]
        trial.phase, trial.why_out = Phase.OUT, why

    def drop_out_of_memory(self, candidate: Candidate, why: str) -> None:
        """Neither it nor those that need as much and have no more are used; these are not started."""
        self.drop(candidate, why)
        for trial in self.trials.values():
            if trial.phase is Phase.WAITING and self._needs_more(trial.candidate, candidate):
                self.drop(trial.candidate, f"not run: {candidate.describe()} has too little memory")

    def stop(self) -> None:
        """No more is started; what runs has the rate of its last milestone, if any."""
        for trial in self.trials.values():
            if trial.phase is Phase.WAITING:
                self.drop(trial.candidate, "not run: the time was over")
            elif trial.phase is Phase.RUNNING and trial.rate:
                trial.phase = Phase.MEASURED
            elif trial.phase is Phase.RUNNING:
                self.drop(trial.candidate, "not measured: the time was over")

    # ---- rules ----

    def _finish(self, trial: Trial) -> None:
        trial.phase, trial.is_complete = Phase.MEASURED, True

    def _is_among_best(self, trial: Trial, milestone: int) -> bool:
        there = [one for one in self.trials.values() if one.phase is not Phase.OUT and milestone in one.rates]
        ranks = [self._work.rank(one.candidate, one.rates[milestone]) for one in there]
        own = self._work.rank(trial.candidate, trial.rates[milestone])
        return sum(other < own for other in ranks) < max(1, len(ranks) // REDUCTION)

    def _is_best_of_all(self, trial: Trial) -> bool:
        """And the only one whose rate can still change."""
        others = [one for one in self.trials.values() if one is not trial]
        return self.find_best() is trial and not any(one.phase in (Phase.WAITING, Phase.RUNNING) for one in others)

    def _needs_more(self, candidate: Candidate, other: Candidate) -> bool:
        """Whether it needs no less memory than the other, and has no more."""
        if self._memory_by_gpus and candidate.gpus_milli > other.gpus_milli:
            return False
        same = all(candidate.value(name) == value for name, value in other.values if name != BATCH)
        return same and (candidate.value(BATCH) or 0) >= (other.value(BATCH) or 0)
