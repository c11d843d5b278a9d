"""Numbers as text graphics: a line of shares, a bar, a span of time, a quantile of waits. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from vgpud.core.observed import wait_ends_ns

_BLOCKS = "▁▂▃▄▅▆▇█"
_ASCII = "_.-:=+*#"
_PARTS = " ▏▎▍▌▋▊▉"


def sparkline(ratios: Sequence[float | None], ascii_only: bool = False) -> str:
    """A character per ratio 0..1, low to high; a blank for None."""
    levels = _ASCII if ascii_only else _BLOCKS
    return "".join(" " if r is None else levels[min(len(levels) - 1, max(0, int(r * len(levels))))] for r in ratios)


def bar(ratio: float, cells: int, ascii_only: bool = False) -> str:
    """A bar for 0..1 of at most this many cells; anything above 0 is visible."""
    if ascii_only:
        return "#" * max(round(ratio * cells), ratio > 0)
    eighths = max(round(ratio * cells * 8), ratio > 0)
    return "█" * (eighths // 8) + _PARTS[eighths % 8].strip()


def short_time(span_ns: float) -> str:
    """At most six characters: 16us, 8.2ms, -131ms, 1.5s, 420s; nothing finer than a microsecond."""
    sign, rest_ns = ("-" if span_ns < 0 else ""), abs(span_ns)
    for unit_ns, unit in ((1e3, "us"), (1e6, "ms"), (1e9, "s")):
        value = rest_ns / unit_ns
        if value < 999.5 or unit == "s":
            break
    shown = f"{value:.1f}" if 0 < value < 9.95 and unit != "us" else f"{value:.0f}"
    return "0" if shown == "0" else f"{sign}{shown}{unit}"


def wait_quantile(counts: Sequence[int], quantile: float) -> str:
    """The quantile of the waits, as an upper bound from the histogram's buckets; "-" without waits."""
    wanted, seen = quantile * sum(counts), 0
    if not wanted:
        return "-"
    ends_ns = wait_ends_ns()
    for end_ns, count in zip(ends_ns, counts, strict=False):
        seen += count
        if seen >= wanted:
            return short_time(end_ns)
    return f">{short_time(ends_ns[-1])}"


def wait_bars(counts: Sequence[int], cells: int, ascii_only: bool = False) -> list[tuple[str, str, int]]:
    """(range, bar, count) of the buckets from the first to the last with waits; the longest bar has most."""
    filled = [i for i, count in enumerate(counts) if count]
    if not filled:
        return []
    ends_ns, most = wait_ends_ns(), max(counts)
    labels = [f"< {short_time(end_ns)}" for end_ns in ends_ns] + [f">= {short_time(ends_ns[-1])}"]
    return [(labels[i], bar(counts[i] / most, cells, ascii_only), counts[i]) for i in range(filled[0], filled[-1] + 1)]
