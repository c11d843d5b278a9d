"""The rate of a run, from what its program says: sums of samples with times, or rates. Pure.

The first half is left out where there is more: first steps are slower.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

#: longer lines are no line of progress
LINE_CHARS_MAX = 1 << 14
#: entries that are kept of a run: of more, every other one
ENTRIES_MAX = 4096
#: a slower run makes no progress
RATE_MIN = 1e-9
#: a group of thousands after its separator: what follows a digit, or has more behind one
_THOUSANDS_BEFORE, _THOUSANDS_AFTER = re.compile(r"[0-9][,_]$"), re.compile(r"[,_][0-9]{3}(?![0-9])")
_THREE_DIGITS = re.compile(r"[0-9]{3}(?![0-9])")
_NUMBER = re.compile(r"[-+]?[0-9][0-9,_]*(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?|\.[0-9]+")


@dataclass(slots=True)
class Progress:
    """Of one run. Each entry is a time in seconds, on any clock, and a sum of samples or a rate at it."""

    sums: list[tuple[float, float]] = field(default_factory=list)
    rates: list[tuple[float, float]] = field(default_factory=list)

    def add_sum(self, at_s: float, samples: float) -> None:
        """Samples since the begin. A sum or a time that is less than before begins the count again."""
        if self.sums and (at_s < self.sums[-1][0] or samples < self.sums[-1][1]):
            self.sums.clear()
        if self.sums and at_s == self.sums[-1][0]:
            self.sums.pop()
        self.sums.append((at_s, samples))
        _thin_out(self.sums)

    def add_rate(self, at_s: float, rate: float) -> None:
        """Samples a second, as the program says it."""
        self.rates.append((at_s, rate))
        _thin_out(self.rates)

    @property
    def elapsed_s(self) -> float:
        """From the first entry to the last."""
        entries = self.sums or self.rates
        return entries[-1][0] - entries[0][0] if entries else 0.0

    @property
    def is_empty(self) -> bool:
        return not (self.sums or self.rates)

    def rate(self) -> float:
        """Samples a second; 0: not known yet, or less than RATE_MIN."""
        rate = self._compute_rate()
        return rate if RATE_MIN <= rate < math.inf else 0.0

    def _compute_rate(self) -> float:
        entries = self.sums or self.rates
        if not entries:
            return 0.0
        middle_s = (entries[0][0] + entries[-1][0]) / 2
        if self.sums:
            begin = [entry for entry in entries if entry[0] <= middle_s][-1]
            end = entries[-1]
            return (end[1] - begin[1]) / (end[0] - begin[0]) if end[0] > begin[0] else 0.0
        late = sorted(rate for at_s, rate in entries if at_s >= middle_s)
        return late[len(late) // 2]


def _thin_out(entries: list[tuple[float, float]]) -> None:
    if len(entries) > ENTRIES_MAX:
        del entries[1:-1:2]


class PatternError(ValueError):
    """A pattern that names no rate, in one sentence."""


class RatePattern:
    """A regular expression for a line of progress: its group `rate`, or its only group, is samples a second; its groups
    `samples` and `seconds` are both so far. Raises PatternError."""

    def __init__(self, text: str) -> None:
        try:
            self._pattern = re.compile(text)
        except (re.error, OverflowError) as error:
            raise PatternError(f"{text!r} is not a regular expression: {error}") from error
        names = set(self._pattern.groupindex)
        self._is_sum = names >= {"samples", "seconds"}
        self._rate: str | int = "rate" if "rate" in names else 1
        if not self._is_sum and not (self._rate == "rate" or (self._pattern.groups == 1 and not names)):
            raise PatternError(
                f"{text!r} has to have one group, the samples a second, or the groups (?P<samples>...) and "
                "(?P<seconds>...), both so far: for example '([0-9.,]+) samples/s'"
            )

    def read(self, line: str, at_s: float, progress: Progress) -> bool:
        """Adds what the line says; at_s: when it was written. Returns whether it matches. Raises PatternError where a
        group takes only a part of a number."""
        found = self._pattern.search(line[:LINE_CHARS_MAX])
        if found is None:
            return False
        for group in ("samples", "seconds") if self._is_sum else (self._rate,):
            self._refuse_part(found, group)
        if self._is_sum:
            samples, seconds = _number(found["samples"]), _number(found["seconds"])
            if samples is not None and seconds is not None:
                progress.add_sum(seconds, samples)
            return samples is not None and seconds is not None
        rate = _number(found[self._rate])
        if rate:
            progress.add_rate(at_s, rate)
        return bool(rate)

    def _refuse_part(self, match: re.Match[str], group: str | int) -> None:
        """A comma or underscore that the pattern itself has beside a group separates columns."""
        begin, end = match.span(group)
        if begin < 0:
            return
        line, text = match.string, self._pattern.pattern
        is_tail = _THOUSANDS_BEFORE.search(line[max(0, begin - 2) : begin]) and _THREE_DIGITS.match(match[group])
        is_head = match[group].isdigit() and _THOUSANDS_AFTER.match(line, end)
        if (is_tail and not re.search(r"[,_]\(", text)) or (is_head and not re.search(r"\)[,_]", text)):
            raise PatternError(
                f"--rate-pattern {text!r} takes only {match[group]!r} of a number with separators: write [0-9.,_]+ in "
                f"its group; the line: {line[:200]!a}"
            )


def _number(text: str | None) -> float | None:
    """A number that is not negative, also with thousands separated by commas."""
    found = _NUMBER.search(text or "")
    if found is None:
        return None
    number = float(found[0].replace(",", "").replace("_", ""))
    return number if math.isfinite(number) and number >= 0 else None
