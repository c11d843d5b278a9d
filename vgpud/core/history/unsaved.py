"""What has been recorded since the last save, at every level. Pure: the time is an argument."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vgpud.core.history.levels import LEVELS
from vgpud.core.history.points import Measured, Point, join

#: (index of the level, number of the step since 1970)
Slot = tuple[int, int]


@dataclass(slots=True)
class Series:
    """Unsaved points of one subject."""

    name: str
    owner_uid: int
    points: dict[Slot, Point] = field(default_factory=dict)


class Unsaved:
    """`series` by subject. Samples of one slot are joined: a clock that is set back only adds to what is there."""

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], Series] = {}

    def add(self, at_s: int, samples: Iterable[Measured]) -> None:
        """Samples of one moment, in seconds since 1970."""
        slots = [(n, at_s // level.step_s) for n, level in enumerate(LEVELS)]
        for found in samples:
            series = self.series.get(found.subject)
            if series is None:
                series = self.series[found.subject] = Series(found.name, found.owner_uid)
            series.name, series.owner_uid = found.name, found.owner_uid
            for slot in slots:
                series.points[slot] = join(series.points.get(slot), found.point)

    def take(self) -> Mapping[tuple[str, str], Series]:
        """All of it; nothing is unsaved then."""
        found, self.series = self.series, {}
        return found
