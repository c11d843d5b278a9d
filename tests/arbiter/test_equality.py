"""The reference model and the C core decide the same for any input that the arbiter's thread may give them: senseless
flags and answers, times from nothing to far beyond a step, slices that come, go and change at any moment."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from models.arbiter.model import MILLI, MS, NEVER, Slice, SliceParams, State
from tests.arbiter.pair import Pair
from tests.examples import examples

STEPS = 300
SLICES = 6
GANG = ("gang_turns", "gang_go", "gang_stop", "gang_busy")
FORECAST_MAX_NS = 100_000 * MS  # arbiter/pages.c believes no more of each process


def any_params(draw: random.Random) -> SliceParams:
    highest = draw.choice((1, 100, 500, 999, MILLI, MILLI, MILLI))
    return SliceParams(
        min_milli=draw.choice((0, 1, highest // 4, highest // 2, highest)),
        max_milli=highest,
        weight=draw.choice((0, 0, 1, 10_000)),
        priority=draw.choice((0, 0, 0, 1, 100)),
        latency=draw.random() < 0.2,
        gang=draw.choice((0, 0, 0, 0, 1, 2, 3)),
        paused=draw.random() < 0.1,
        rotates=draw.random() < 0.2,
    )


def any_time(draw: random.Random) -> int:
    """Until the next step: mostly the arbiter's own pace, now and then a pause or none at all."""
    return draw.choice((0, 1, draw.randrange(100_000), *[draw.randrange(3 * MS)] * 9, draw.randrange(200 * MS)))


class Page:
    """What a slice's processes say: for a while it works, pauses or reports nonsense."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.steps_left = 0
        self.mood = ""

    def fill(self, s: Slice, passed_ns: int, now_ns: int) -> None:
        draw = self.draw
        if self.steps_left == 0:
            self.steps_left = draw.choice((3, 30, 100))
            self.mood = draw.choice(("works", "works", "works", "bursts", "pauses", "nonsense", "stopped", "gone"))
        self.steps_left -= 1
        s.attached = self.mood != "gone"
        if self.mood == "nonsense":
            self._nonsense(s, now_ns)
            return
        runs = {"works": s.is_open or draw.random() < 0.3, "bursts": s.is_open and draw.random() < 0.5}.get(
            self.mood, False
        )
        busy_ns = passed_ns if s.outstanding else 0
        s.busy_total_ns += busy_ns
        s.active_total_ns += passed_ns if s.outstanding or s.wants else 0
        s.done_total_ns += busy_ns * draw.choice((0, 1, 1, 2)) // 2
        s.outstanding = runs
        s.running = draw.choice((1, 1, 1, 4)) * runs
        s.wants = self.mood in ("works", "bursts", "stopped") and not s.is_open
        s.noticed = self.mood != "stopped" and draw.random() < 0.8
        s.quiet = not runs and self.mood != "stopped" and (not s.is_open or draw.random() < 0.2)
        s.gave_up_while_waiting = s.is_open and draw.random() < 0.05
        for name in ("counted_ahead", *GANG):
            setattr(s, name, draw.random() < 0.5)
        s.drained_ns = max(s.close_ns, now_ns - draw.randrange(passed_ns + 1))
        s.drain_expected_ns = now_ns + draw.randrange(3 * MS) if s.noticed and runs else 0

    def _nonsense(self, s: Slice, now_ns: int) -> None:
        draw = self.draw
        for name in ("wants", "outstanding", "quiet", "gave_up_while_waiting", "noticed", "counted_ahead", *GANG):
            setattr(s, name, draw.random() < 0.5)
        s.running = draw.choice((0, 1, 7, 1000))
        s.drained_ns = draw.randrange(now_ns + 1)
        s.drain_expected_ns = draw.choice((0, draw.randrange(now_ns + 1), now_ns + draw.randrange(FORECAST_MAX_NS)))
        for name in ("busy_total_ns", "active_total_ns", "done_total_ns"):
            more_ns = draw.choice((0, 0, 1, draw.randrange(10 * MS), draw.randrange(FORECAST_MAX_NS)))
            setattr(s, name, getattr(s, name) + more_ns)


def play(pair: Pair, draw: random.Random) -> set[str]:
    """Makes many steps; returns what was seen, so that the test knows that it has tried something."""
    seen: set[str] = set()
    pages = {ident: Page(draw) for ident in range(1, SLICES + 1)}
    now_ns = MS
    for _ in range(STEPS):
        present = {s.ident: s for s in pair.slices}
        for ident in pages:
            luck = draw.random()
            if luck < (0.005 if ident in present else 0.2):
                pair.set(ident, any_params(draw))
            elif luck > 0.997 and ident in present:
                pair.remove(ident)
        passed_ns = any_time(draw)
        now_ns += passed_ns
        for s in pair.slices:
            pages[s.ident].fill(s, passed_ns, now_ns)
        clock_ns = now_ns if draw.random() < 0.98 else now_ns - draw.randrange(now_ns)  # a clock that runs back
        deadline_ns = pair.step(clock_ns)
        assert pair.last_ns < deadline_ns <= NEVER, "the arbiter would spin"
        seen.update(s.state.name for s in pair.slices)
        seen.update("saturating" for s in pair.slices if s.saturating)
        seen.update("throttled" for s in pair.slices if s.throttled)
        seen.add(pair.regime.name)
    return seen


@settings(max_examples=examples(20), deadline=None)
@given(st.integers(0, 2**32))
def test_model_and_core_decide_the_same_for_any_input(seed: int) -> None:
    play(Pair(), random.Random(seed))


def test_any_input_leads_everywhere() -> None:
    """The inputs of the test above cover every state and regime."""
    seen: set[str] = set()
    for seed in range(6):
        seen |= play(Pair(), random.Random(seed))
    assert seen >= {state.name for state in State} | {
        "saturating",
        "throttled",
        "SOLO",
        "OPEN",
        "ARBITRATED",
        "THROTTLED",
    }
