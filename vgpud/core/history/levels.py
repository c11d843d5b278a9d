"""How fine the history is and how long it is kept: three levels, each a round robin of chunks. Pure.

A level keeps a number of chunks of time in which anything was recorded, not an age, and forgets those first that were
written first: a clock that jumps ahead and back costs the oldest chunk or two, and nothing else that is older.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Level(NamedTuple):
    """Points every `step_s`, stored in chunks of `chunk_points`, of which the last `chunks_max` are kept."""

    step_s: int
    chunk_points: int
    chunks_max: int

    @property
    def chunk_s(self) -> int:
        return self.step_s * self.chunk_points

    @property
    def kept_s(self) -> int:
        """How far back it reaches at least: the newest chunk has just begun."""
        return self.chunk_s * (self.chunks_max - 1)


#: 10 s for an hour, 1 min for a week, 15 min for a year
LEVELS = (Level(10, 30, 13), Level(60, 60, 7 * 24 + 1), Level(900, 96, 366))
SAMPLE_S = LEVELS[0].step_s
#: a save rewrites some chunks of each series: more often would wear the disk, less often lose more in a crash
SAVE_S = 300
#: of one answer
POINTS_MAX = 2000
#: latest time that can be recorded, in seconds since 1970: chunks of the finest level are numbered with 28 bits
TIME_MAX_S = LEVELS[0].chunk_s << 28
#: an hour ago was asked for so long ago at most
_ASKED_S = 120


def is_recordable(at_s: int) -> bool:
    """Whether a clock shows a time that has a place."""
    return 0 <= at_s < TIME_MAX_S


def find_old(chunks: Iterable[tuple[int, int]], level: Level) -> list[int]:
    """Of all chunks of a level, the numbers of those that are kept no longer. `chunks`: when each was written last, in
    turns of saving, and its number."""
    return [number for _, number in sorted(chunks)[: -level.chunks_max]]


def choose(since_s: float, until_s: float, step_s: float, now_s: float) -> tuple[int, int]:
    """(index of the level, step in seconds) of an answer about this range; `step_s` 0: as short as possible.

    The level is the finest that reaches back to `since_s`, the step a multiple of its own.
    """
    reaching = (n for n, level in enumerate(LEVELS) if since_s >= now_s - level.kept_s - _ASKED_S)
    index = next(reaching, len(LEVELS) - 1)
    least_s = max(step_s, (until_s - since_s) / POINTS_MAX, 1)
    own_s = LEVELS[index].step_s
    return index, own_s * max(1, -int(-least_s // own_s))
