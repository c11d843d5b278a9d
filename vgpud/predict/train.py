"""Learning a target from measured jobs, and judging that by jobs that were not seen.

Settings are tuned by folds of the training rows alone. Intervals are conformal (Vovk et al., "Algorithmic learning in a
random world", 2005): from how far measured values were from what boosters predicted that had not seen them. A model
that is asked about is like none that was measured, so where there are groups (architectures, models with an
ingredient), the boosters had seen no row of the group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vgpud.predict.boosting import Booster, Setting, matrix, short
from vgpud.predict.dataset import Row

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from vgpud.predict.boosting import Numbers, Points

#: fewer say nothing about a model that was not measured
ROWS_MIN = 50
FOLDS = 5
INNER_FOLDS = 3
#: fewer say nothing about a group that was not measured
GROUPS_MIN = 3
#: as often a measured value is to lie in its interval, in percent
COVERAGE = 90
#: parts by size of the prediction, each with an interval of its own: small utilisations are predicted less exactly
PARTS = 4
#: of which the best for the training rows is taken
SETTINGS = (
    Setting(trees=100, depth=6, rate=0.08, leaf=3, columns=0.3),
    Setting(trees=150, depth=8, rate=0.06, leaf=5, columns=0.3),
)

Spread = list[tuple[float, float, float]]  # as model.Target has it


@dataclass(frozen=True, slots=True)
class Kind:
    """How a target is learnt: as log(offset + scale * measured), with what is estimated of it beforehand."""

    offset: float
    scale: float
    maximum: float
    estimate: str = ""

    def logs(self, values: Numbers) -> Numbers:
        import numpy as np

        return np.log(self.offset + self.scale * values)

    def values(self, logs: Numbers) -> Numbers:
        import numpy as np

        return np.clip((np.exp(logs) - self.offset) / self.scale, 0.0, self.maximum)


TARGET_KINDS = {
    "utilisation": Kind(1.0, 100.0, 1.0),
    "sm_activity": Kind(1.0, 100.0, 1.0),
    "memory_bytes": Kind(1.0, 1.0, float(1 << 50), "reserved_bytes"),
}


@dataclass(frozen=True)
class Table:
    """Rows of which a target was measured, as arrays."""

    kind: Kind
    points: Points
    values: Numbers
    estimates: Numbers

    def part(self, mask: NDArray[np.bool_]) -> Table:
        return Table(self.kind, self.points[mask], self.values[mask], self.estimates[mask])

    @property
    def logs(self) -> Numbers:
        return self.kind.logs(self.values)

    def compute_baseline(self, base: float) -> Numbers:
        """The part of a prediction that no booster has to learn."""
        return self.kind.logs(base + self.estimates) if self.kind.estimate else 0 * self.estimates


def table(rows: Sequence[Row], target: str, names: Sequence[str]) -> Table:
    """Of rows that all have it."""
    import numpy as np

    kind = TARGET_KINDS[target]
    values = np.array([getattr(row, target) for row in rows], dtype=np.float64)
    estimates = np.array([row.features[kind.estimate] if kind.estimate else 0.0 for row in rows])
    return Table(kind, matrix(rows, names), values, estimates)


@dataclass(frozen=True)
class Learnt:
    """A booster of one target, and what is always there besides the estimate that it corrects."""

    base: float
    booster: Booster

    def logs(self, rows: Table) -> Numbers:
        return self.booster.predict(rows.points) + rows.compute_baseline(self.base)


def learn(rows: Table, setting: Setting, seed: int) -> Learnt:
    """A booster for all of a table."""
    import numpy as np

    base = max(0.0, float(np.median(rows.values - rows.estimates))) if rows.kind.estimate else 0.0
    return Learnt(base, Booster(setting, rows.points, rows.logs - rows.compute_baseline(base), seed))


def list_groups(rows: Sequence[Row]) -> list[NDArray[np.bool_]]:
    """Which rows are of each architecture, and which have each ingredient that some have and some have not."""
    import numpy as np

    architectures = sorted({row.architecture for row in rows})
    groups = [np.array([row.architecture == name for row in rows]) for name in architectures]
    ingredients = sorted({name for row in rows for name in row.ingredients})
    groups += [np.array([name in row.ingredients for row in rows]) for name in ingredients]
    return [group for group in groups if group.any() and not group.all()]


@dataclass(frozen=True)
class Tuned:
    """The setting that did best, and how far it was from rows that it had not seen."""

    setting: Setting
    spread: Spread


def tune_setting(rows: Table, folds: NDArray[np.int64], seed: int, groups: Sequence[NDArray[np.bool_]] = ()) -> Tuned:
    """The best setting by folds of these rows alone; its spread by leaving out each of the groups, where there are any
    that leave enough to learn from."""
    import numpy as np

    best: tuple[float, Tuned] | None = None
    for setting in SETTINGS:
        found = np.empty(len(folds))
        for fold in np.unique(folds):
            inside = folds == fold
            found[inside] = learn(rows.part(~inside), setting, seed).logs(rows.part(inside))
        error = rmsle(found, rows.logs)
        if best is None or error < best[0]:
            best = error, Tuned(setting, spread(found, rows.logs))
    assert best is not None
    usable = [group for group in groups if min(group.sum(), (~group).sum()) >= ROWS_MIN]
    if len(usable) < GROUPS_MIN:
        return best[1]
    unseen = [learn(rows.part(~group), best[1].setting, seed).logs(rows.part(group)) for group in usable]
    measured = [rows.logs[group] for group in usable]
    return Tuned(best[1].setting, spread(np.concatenate(unseen), np.concatenate(measured)))


@dataclass(frozen=True)
class Judged:
    """Each row as boosters predict it that saw no row of its group, in logarithms, with its interval."""

    logs: Numbers
    low: Numbers
    high: Numbers
    settings: list[Setting]


def cross_validate(
    rows: Table,
    groups: NDArray[Any],
    inner: NDArray[np.int64],
    seed: int,
    query_rows: Table | None = None,
    kinds: Sequence[NDArray[np.bool_]] = (),
) -> Judged:
    """Leaves out each group in turn; tuned, grown and given intervals without it.

    `query_rows`: the same rows as the asking user knows them, if that is less. `kinds`: the groups of list_groups, by
    which intervals are made.
    """
    import numpy as np

    found = np.empty((3, len(groups)))
    settings = []
    for group in np.unique(groups):
        inside = groups == group
        judged = leave_out(rows, inside, inner, seed, query_rows, kinds)
        settings += judged.settings
        found[:, inside] = judged.logs, judged.low, judged.high
    return Judged(found[0], found[1], found[2], settings)


def leave_out(
    rows: Table,
    mask: NDArray[np.bool_],
    inner: NDArray[np.int64],
    seed: int,
    query_rows: Table | None = None,
    kinds: Sequence[NDArray[np.bool_]] = (),
) -> Judged:
    """The rows of the mask, as predicted from the others: see cross_validate."""
    import numpy as np

    chosen = tune_setting(rows.part(~mask), inner[~mask], seed, [kind[~mask] for kind in kinds])
    logs = learn(rows.part(~mask), chosen.setting, seed).logs((query_rows or rows).part(mask))
    below, above = np.array([at(chosen.spread, x) for x in logs]).T
    return Judged(logs, logs - below, logs + above, [chosen.setting])


def folds(rows: Sequence[Row], count: int, seed: int) -> NDArray[np.int64]:
    """By hash of the configuration: what was measured twice is in one fold."""
    import numpy as np

    return np.array([row.fold(count, seed) for row in rows], dtype=np.int64)


def inner_folds(rows: Sequence[Row], seed: int) -> NDArray[np.int64]:
    """For tuning: other folds than those that are left out."""
    return folds(rows, INNER_FOLDS, seed + 1_000_003)


def spread(predictions: Numbers, measurements: Numbers) -> Spread:
    """Conformal: by size of the prediction, how far below and above it COVERAGE percent of what was measured lie."""
    import numpy as np

    parts: Spread = []
    order = np.argsort(predictions, kind="stable")
    for part in np.array_split(order, PARTS if len(predictions) >= PARTS * ROWS_MIN else 1):
        below, above = (_quantile(sign * (measurements[part] - predictions[part])) for sign in (-1, 1))
        parts.append((short(float(predictions[part[-1]])), short(below), short(above)))
    return [*parts[:-1], (1e9, *parts[-1][1:])]


def _quantile(errors: Numbers) -> float:
    """What half of those outside COVERAGE are above, counted so that it holds for the next row (n + 1)."""
    ranked = sorted(errors)
    rank = math.ceil((len(ranked) + 1) * (1 + COVERAGE / 100) / 2)
    return max(0.0, float(ranked[min(rank, len(ranked)) - 1]))


def at(parts: Spread, total: float) -> tuple[float, float]:
    """How far below and above a prediction its interval goes."""
    return next(((below, above) for most, below, above in parts if total <= most), parts[-1][1:])


def rmsle(predictions: Numbers, measurements: Numbers) -> float:
    """Root mean squared difference of logarithms."""
    return math.sqrt(float(((predictions - measurements) ** 2).mean()))


def mape(predictions: Numbers, measurements: Numbers) -> float:
    """Mean absolute difference, in percent of what was measured."""
    return 100 * float((abs(predictions - measurements) / measurements).mean())
