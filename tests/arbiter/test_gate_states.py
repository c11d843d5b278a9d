"""The table of gate states says what the model does: no transition more, and none less."""

from __future__ import annotations

import random

import pytest

from models.arbiter.gate_states import GATE_TRANSITIONS, GATE_WORDS
from models.arbiter.model import STATE_MASK, Params, Slice, State
from models.arbiter.policy import Arbiter
from tests.arbiter.test_equality import Page, any_params, any_time

SEEDS_MIN, SEEDS_MAX, STEPS = 10, 200, 300


def test_the_table_has_the_transitions_and_words_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {(state, after) for (state, _), after in GATE_TRANSITIONS.items()}
    moves: set[tuple[State, State]] = set()
    words: dict[State, set[int]] = {state: set() for state in State}

    def note(s: Slice, value: State) -> None:
        before = vars(s).setdefault("_state", value)
        if before != value:
            moves.add((before, value))
        vars(s)["_state"] = value

    monkeypatch.setattr(Slice, "state", property(lambda s: vars(s)["_state"], note))
    for seed in range(SEEDS_MAX):
        if seed >= SEEDS_MIN and (moves, words) == (known, GATE_WORDS):
            break  # the random worlds have shown all that the tables have
        draw = random.Random(seed)
        arbiter = Arbiter(Params())
        pages = {arbiter.set(ident, any_params(draw)).ident: Page(draw) for ident in range(1, 5)}
        now_ns = 0
        for _ in range(STEPS):
            passed_ns = any_time(draw)
            now_ns += passed_ns
            if draw.random() < 0.02:
                arbiter.set(draw.randrange(1, 5), any_params(draw))
            for s in arbiter.slices:
                pages[s.ident].fill(s, passed_ns, now_ns)
            arbiter.step(now_ns)
            for s in arbiter.slices:
                words[s.state].add(s.word & STATE_MASK)
    assert moves == known
    assert words == GATE_WORDS
