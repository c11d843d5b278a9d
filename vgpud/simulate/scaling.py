"""How much faster a job is with more workers (or a larger slice): a curve through measured points. Integers only."""

from __future__ import annotations

from dataclasses import dataclass

#: rates are kept in thousandths
_PARTS = 1000


@dataclass(frozen=True, slots=True)
class Curve:
    """Straight between its points (size, rate), through nothing at size 0, and flat beyond the last: what was never

    measured is not hoped for. Sizes rise, rates do not fall.
    """

    points: tuple[tuple[int, int], ...]

    def rate(self, size: int) -> int:
        """Thousandths of the unit that the points have."""
        before_size, before = 0, 0
        for at, rate in self.points:
            if size <= at:
                return (before * _PARTS) + (rate - before) * _PARTS * (size - before_size) // (at - before_size)
            before_size, before = at, rate
        return before * _PARTS

    def speed(self, size: int, reference: int, full: int) -> int:
        """Where it is `full` at the size `reference`; at least 1."""
        return max(1, full * self.rate(size) // max(1, self.rate(reference)))

    def rescale_sizes(self, size: int, to: int) -> Curve:
        """The same curve where what was measured at one size holds at another."""
        return Curve(tuple((at * to // size, rate) for at, rate in self.points))


def parse(text: str) -> Curve:
    """SIZE:RATE,... as people write it. Raises ValueError, one line."""
    try:
        pairs = [(int(size), int(rate)) for size, rate in (part.split(":") for part in text.split(","))]
    except ValueError:
        raise ValueError(f"{text!r} is not a curve: {EXAMPLE}") from None
    before = (0, 0)
    for size, rate in pairs:
        if size <= before[0] or rate < before[1] or not rate or max(size, rate) > _MOST:
            raise ValueError(f"{size}:{rate} after {before[0]}:{before[1]}: sizes rise, rates do not fall: {EXAMPLE}")
        before = size, rate
    return Curve(tuple(pairs))


EXAMPLE = "write WORKERS:RATE,..., for example 16:2200,32:4000,64:5000"
_MOST = 10**9
#: as fast as there are workers
LINEAR = Curve(((_MOST, _MOST),))
#: img/s by workers, as the founding slides show it of ResNet-50
SLIDES = Curve(((16, 2200), (32, 4000), (64, 5000)))
