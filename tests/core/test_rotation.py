"""Rotation on a device with a fake clock: no slice leaves without need, none starves, little time is lost in moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgpud.core.model import AWAY, COMING, LEAVING
from vgpud.core.slices import rotation
from vgpud.core.slices.rotation import Load, Member, Move, Turns, choose_move, compute_quantum_ns, turn_weights

GIB, S = 1 << 30, 1_000_000_000
CAPACITY = 80 * GIB
RATE = 40 * GIB
FAST = 160 * GIB  # of the long runs: turns are shorter
TICK_NS = S // 4


@dataclass
class World:
    """A device whose slices are at work whenever they are resident, but those that `naps` names (work, pause in ns)."""

    members: dict[str, Member]
    naps: dict[str, tuple[int, int]] = field(default_factory=dict)
    capacity_bytes: int = CAPACITY
    rate: int = RATE
    now_ns: int = 100 * S
    turns: Turns = field(default_factory=Turns)
    moves: list[tuple[int, Move]] = field(default_factory=list)
    resident_ns: dict[str, int] = field(default_factory=dict)
    wait_ns: dict[str, int] = field(default_factory=dict)  # the longest
    moving_ns: int = 0
    _waits_since_ns: dict[str, int] = field(default_factory=dict)
    _move: tuple[Move, int] | None = None  # under way, and its end

    def works(self, name: str) -> bool:
        work_ns, pause_ns = self.naps.get(name, (1, 0))
        return self.now_ns % (work_ns + pause_ns) < work_ns

    def run(self, span_ns: int) -> None:
        end_ns = self.now_ns + span_ns
        while self.now_ns < end_ns:
            self.now_ns += TICK_NS
            self._tick()

    def _tick(self) -> None:
        for name, member in self.members.items():
            is_at_work = self.works(name) and not member.is_empty
            if member.is_resident:
                self.resident_ns[name] = self.resident_ns.get(name, 0) + TICK_NS
            if member.is_resident and is_at_work:
                member = replace(member, last_work_ns=self.now_ns)
            waits = member.residency == AWAY and (member.waits or is_at_work)
            self.members[name] = replace(member, waits=waits)
            if waits:
                since_ns = self._waits_since_ns.setdefault(name, self.now_ns)
                self.wait_ns[name] = max(self.wait_ns.get(name, 0), self.now_ns - since_ns)
            elif member.is_resident:
                self._waits_since_ns.pop(name, None)
        now = list(self.members.values())
        self.turns.update(now, self.now_ns)
        if self._move:
            move, until_ns = self._move
            if self.now_ns < until_ns:
                return
            self._move = None
            self._arrive(move)
            now = list(self.members.values())
        now = [replace(m, bytes_per_s=self.rate) for m in now]
        move_next = choose_move(now, self.capacity_bytes, self.turns, self.now_ns)
        if move_next:
            self._begin(move_next)
        assert sum(m.claim_bytes for m in self.members.values() if m.on_device) <= self.capacity_bytes

    def _begin(self, move: Move) -> None:
        member = self.members[move.name]
        assert member.residency == ("" if move.to == LEAVING else AWAY)
        self.moves.append((self.now_ns, move))
        self.members[move.name] = replace(member, residency=move.to)
        move_ns = member.used_bytes * S // self.rate
        self.moving_ns += move_ns
        self._move = move, self.now_ns + move_ns

    def _arrive(self, move: Move) -> None:
        to = AWAY if move.to == LEAVING else ""
        self.members[move.name] = replace(self.members[move.name], residency=to, resident_since_ns=self.now_ns)
        self.turns.end_move(move, self.now_ns)

    def names(self) -> list[str]:
        return [f"{move.name} {move.to}" for _, move in self.moves]


def member(name: str, gib: int, residency: str = "", **options: object) -> Member:
    return Member(name, gib * GIB, gib * GIB, gib * GIB, residency=residency, **options)  # type: ignore[arg-type]


def world(*members: Member, **options: object) -> World:
    return World({m.name: m for m in members}, **options)  # type: ignore[arg-type]


# ---- who leaves ----


def test_none_leaves_while_all_fit() -> None:
    made = world(*(member(name, 20) for name in "abcd"))
    made.run(600 * S)
    assert made.moves == []


def test_who_finds_room_comes_at_once() -> None:
    made = world(member("a", 40), member("b", 40, AWAY))
    made.run(3 * S)
    assert made.names() == ["b coming"]


def test_two_that_fill_the_device_take_turns_of_twenty_moves() -> None:
    made = world(member("a", 80), member("b", 80, AWAY))
    made.run(1000 * S)
    assert made.moving_ns / (1000 * S) <= 0.05
    quantum_ns = compute_quantum_ns(160 * GIB * S // RATE)
    assert quantum_ns == 80 * S and quantum_ns <= made.wait_ns["a"] <= quantum_ns + 5 * S


def test_who_is_idle_leaves_before_the_others_and_at_once() -> None:
    """Those at work stay: they need not even end their turn."""
    made = world(member("a", 40), member("b", 40), member("c", 40, AWAY), naps={"b": (0, S)})
    made.run(10 * S)
    assert made.names()[:2] == ["b leaving", "c coming"]
    made.run(600 * S)
    assert "a leaving" not in made.names()


def test_none_is_moved_for_a_pause_that_is_shorter_than_moving() -> None:
    pause_ns = 3 * S  # two times 80 GiB take 4 s
    made = world(member("a", 80, resident_since_ns=100 * S), member("b", 80, AWAY), naps={"a": (S, pause_ns)})
    made.run(70 * S)
    assert made.moves == []


def test_those_that_may_not_leave_do_not() -> None:
    made = world(member("a", 60, is_movable=False), member("b", 20, mem_swap=False), member("c", 60, AWAY))
    made.run(600 * S)
    assert made.moves == [] and made.wait_ns["c"] >= 599 * S


def test_a_large_one_leaves_alone_where_it_makes_room_enough() -> None:
    made = world(
        member("a", 10, last_work_ns=S),
        member("b", 70, last_work_ns=2 * S),
        member("c", 70, AWAY, waits=True),
        naps={"a": (0, S), "b": (0, S)},
    )
    made.run(10 * S)
    assert made.names() == ["b leaving", "c coming"]


def test_the_first_in_order_is_not_overtaken_by_one_that_takes_its_room() -> None:
    """10 GiB are free, which the small one would fit into; then the large one's turn would not free enough."""
    made = world(member("a", 70), member("b", 80, AWAY), member("c", 10, AWAY, resident_since_ns=1))
    made.turns.update([replace(m, waits=m.residency == AWAY) for m in made.members.values()], made.now_ns)
    made.turns._spent["c"] = made.turns._spent["a"] = 1
    made.run(100 * S)
    assert made.names()[:2] == ["a leaving", "b coming"]


def test_one_that_does_not_delay_the_first_comes_meanwhile() -> None:
    made = world(member("a", 70, resident_since_ns=100 * S), member("b", 70, AWAY), member("c", 10, AWAY))
    made.run(10 * S)
    assert made.names() == ["c coming"]


def test_what_was_given_away_meanwhile_makes_one_leave_at_once() -> None:
    made = world(member("a", 40), member("b", 40))
    made.run(S)
    found = choose_move(list(made.members.values()), 60 * GIB, made.turns, made.now_ns)
    assert found is not None and found.to == LEAVING and not found.waiter


def test_an_empty_one_comes_where_there_is_room_and_makes_room_at_no_cost() -> None:
    made = world(
        member("a", 80),
        Member("b", 80 * GIB, residency=AWAY, is_empty=True),
        Member("c", 0, residency=AWAY, is_empty=True),
    )
    made.run(200 * S)
    assert made.names() == ["c coming"]
    made = world(Member("a", 80 * GIB, is_empty=True), member("b", 80, AWAY))
    made.run(S)
    assert made.names() == ["a leaving", "b coming"]


# ---- sleep ----


def test_who_is_idle_for_long_gives_back_though_none_asks() -> None:
    made = world(member("a", 40, mem_swap=False, idle_after_ns=60 * S), naps={"a": (S, 199 * S)})
    made.run(90 * S)
    assert [move.is_asleep for _, move in made.moves] == [True] and made.members["a"].residency == AWAY
    made.run(60 * S)
    assert made.names() == ["a leaving", "a coming"] and made.wait_ns["a"] <= S


def test_who_cannot_be_moved_stays() -> None:
    made = world(member("a", 40, idle_after_ns=60 * S, is_movable=False), naps={"a": (0, S)})
    made.run(150 * S)
    assert made.moves == []


def test_a_sleepers_minimum_is_not_given_to_others_but_its_own_coming_makes_none_leave() -> None:
    made = world(member("a", 60, AWAY, mem_swap=False), member("b", 40, AWAY), naps={"a": (0, S)})
    made.run(20 * S)
    assert made.moves == []
    made.naps["a"] = (1, 0)
    made.run(20 * S)
    assert made.names() == ["a coming"]


def test_two_sleepers_that_borrowed_come_one_after_the_other() -> None:
    a, b = (Member(n, 10 * GIB, 60 * GIB, 60 * GIB, AWAY, mem_swap=False, idle_after_ns=9 * S) for n in "ab")
    made = world(a, b, naps={"a": (50 * S, 50 * S), "b": (50 * S, 50 * S)})
    made.run(20 * S)
    assert made.names() == ["a coming"]


# ---- memory that others have borrowed ----


def shortage_of(*members: Member, capacity: int = 80, lent_gib: int = 80) -> tuple[int, dict[str, int]]:
    found = rotation.find_shortage(members, capacity * GIB, lent_gib * GIB)
    return found.space_bytes // GIB, {name: size // GIB for name, size in found.missing_bytes.items()}


def sleeper(name: str, gib: int, held: int = 0, residency: str = AWAY, waits: bool = True) -> Member:
    held_bytes = (held or gib) * GIB
    return Member(name, gib * GIB, held_bytes, held_bytes, residency, waits, mem_swap=False, idle_after_ns=9 * S)


def test_nothing_is_asked_for_one_that_sleeps_or_has_room() -> None:
    assert shortage_of(sleeper("a", 40, waits=False), capacity=10) == (0, {})
    assert shortage_of(sleeper("a", 40), capacity=40) == (0, {})


def test_a_sleeper_is_owed_its_memory_and_no_more_of_that_of_other_sleepers() -> None:
    assert shortage_of(sleeper("a", 40), capacity=10) == (40, {"a": 30})
    other = sleeper("b", 30, waits=False)
    assert shortage_of(sleeper("a", 40), other, capacity=40) == (0, {})
    assert shortage_of(sleeper("a", 40, held=50), other, capacity=60) == (80, {"a": 20})


def test_a_sleeper_is_not_kept_waiting_by_memory_that_another_one_is_owed() -> None:
    """Both are within their minima, of which a third slice has borrowed a part."""
    made = world(sleeper("a", 40), sleeper("b", 40, waits=False), naps={"b": (0, S)}, capacity_bytes=50 * GIB)
    made.run(2 * S)
    assert made.names() == ["a coming"]


def test_another_sleeper_that_has_borrowed_is_asked() -> None:
    assert shortage_of(sleeper("a", 40), sleeper("b", 10, held=60, residency="")) == (40, {"a": 20})


def test_none_is_asked_for_what_is_its_own() -> None:
    waiter = member("b", 40, AWAY, waits=True)
    assert shortage_of(member("a", 80, is_movable=False), waiter, lent_gib=0) == (0, {})
    assert shortage_of(replace(member("a", 80, is_movable=False), mem_min_bytes=70 * GIB), waiter, lent_gib=0)[1] == {
        "b": 10
    }


def test_what_it_has_on_the_device_is_asked_of_none() -> None:
    """Its context has not left, and counts there by itself."""
    waiter = self_mover("a", 40, 10, residency=AWAY, waits=True)
    assert shortage_of(waiter, capacity=20) == (30, {"a": 20})


def test_none_is_asked_for_one_that_pauses() -> None:
    found = rotation.find_shortage([sleeper("a", 10, held=60), sleeper("b", 10)], 5 * GIB, 80 * GIB, {"a"})
    assert found.space_bytes == 10 * GIB and set(found.missing_bytes) == {"a", "b"}


def test_what_others_are_guaranteed_by_now_is_asked_of_none() -> None:
    """It had borrowed 50 GiB when it fell asleep."""
    waiter, other = sleeper("a", 10, held=60), sleeper("b", 30, residency="")
    found = rotation.find_shortage([waiter, other], 80 * GIB, 0)
    assert (found.space_bytes, found.missing_bytes, found.guaranteed_bytes) == (0, {}, {"a": 10 * GIB})
    found = rotation.find_shortage([waiter, replace(other, residency=AWAY, waits=False)], 80 * GIB, 0)
    assert found.guaranteed_bytes == {"a": 10 * GIB}
    found = rotation.find_shortage([waiter], 40 * GIB, 20 * GIB)
    assert (found.missing_bytes, found.guaranteed_bytes) == ({"a": 20 * GIB}, {})


def test_a_borrower_that_takes_turns_leaves_for_a_sleeper_when_its_turn_ends() -> None:
    """It is asked meanwhile: had it given back, it would have stayed."""
    borrower = Member("b", 10 * GIB, 60 * GIB, 60 * GIB, resident_since_ns=100 * S)
    made = world(borrower, sleeper("a", 40))
    made.run(10 * S)
    assert made.names() == [] and shortage_of(*made.members.values(), lent_gib=0) == (40, {"a": 20})
    made.run(compute_quantum_ns(100 * GIB * S // RATE))
    assert made.names() == ["b leaving", "a coming"]
    made = world(replace(borrower, held_bytes=40 * GIB), sleeper("a", 40))
    made.run(100 * S)
    assert made.names() == ["a coming"]


def test_those_that_take_turns_are_asked_only_for_what_no_turn_yields() -> None:
    resident, waiter = member("a", 30), member("b", 40, AWAY, waits=True)
    assert shortage_of(resident, waiter, capacity=60) == (0, {})
    assert shortage_of(resident, waiter, capacity=30) == (10, {"b": 10})
    assert shortage_of(replace(resident, is_movable=False), waiter, capacity=60) == (40, {"b": 10})
    assert shortage_of(resident, sleeper("c", 40), capacity=60) == (40, {"c": 10}), "a sleeper does not wait for turns"


# ---- proportions ----


def test_turns_go_by_the_minimum_and_where_there_is_none_by_the_weight() -> None:
    assert turn_weights([member("a", 1, min_milli=300), member("b", 1, min_milli=100)]) == {"a": 300, "b": 100}
    assert turn_weights([member("a", 1, weight=3), member("b", 1)]) == {"a": 3, "b": 1}
    assert turn_weights([member("a", 1, min_milli=999), member("b", 1)]) == {"a": 999, "b": 125}
    assert turn_weights([]) == {}


@pytest.mark.parametrize("weights", [(1, 1), (3, 1), (500, 250, 250), (1, 1, 1, 1), (4, 2, 1)])
def test_residency_is_in_proportion_over_a_long_run(weights: Sequence[int]) -> None:
    first = "abcd"[0]
    everyone = [member(n, 80, "" if n == first else AWAY, min_milli=w) for n, w in zip("abcd", weights, strict=False)]
    made = world(*everyone, rate=FAST)
    made.run(1800 * S)
    total = sum(made.resident_ns.values())
    for name, weight in zip("abcd", weights, strict=False):
        assert made.resident_ns[name] / total == pytest.approx(weight / sum(weights), abs=0.06)
    assert made.moving_ns <= 0.05 * 1800 * S + 2 * S


def test_who_moves_slowly_has_its_turn_meanwhile() -> None:
    """No other one has the place while it leaves, or comes."""
    turns, now_ns = Turns(), 100 * S
    a, b = member("a", 40), member("b", 40, AWAY, waits=True)
    turns.update([a, b], now_ns)
    for residency, span_ns in ((LEAVING, 7 * S), (AWAY, 50 * S), (COMING, 9 * S)):
        now_ns += span_ns
        turns.update([replace(a, residency=residency), b], now_ns)
    assert turns.spent("a") == 16 * S << 20 and not turns.spent("b")


def test_who_was_away_for_long_has_no_claim_to_the_turns_that_it_did_not_want() -> None:
    made = world(member("a", 80), member("b", 80, AWAY), naps={"b": (1500 * S, 1500 * S)}, now_ns=1500 * S)
    made.run(1500 * S)  # b sleeps
    before_ns = dict(made.resident_ns)
    made.run(1000 * S)
    assert made.resident_ns["a"] - before_ns["a"] >= 300 * S


# ---- what always holds ----

sizes = st.integers(1, 80)
crowds = st.lists(st.tuples(sizes, st.sampled_from([0, 50, 100, 200])), min_size=2, max_size=7)


def _first_fit(crowd: Sequence[tuple[int, int]]) -> list[Member]:
    free, members = 80, []
    for number, (gib, milli) in enumerate(crowd):
        is_resident = gib <= free
        free -= gib if is_resident else 0
        members.append(member(f"s{number}", gib, "" if is_resident else AWAY, min_milli=milli))
    return members


@given(crowds)
@settings(max_examples=examples(200) // 2, deadline=None)
def test_all_that_wait_come_and_little_time_is_lost(crowd: list[tuple[int, int]]) -> None:
    made = world(*_first_fit(crowd), rate=FAST)
    span_ns = 240 * S
    made.run(span_ns)
    assert made.moving_ns <= 0.05 * span_ns + 2 * S  # the first ones come without a turn
    turn_ns = compute_quantum_ns(160 * GIB * S // FAST) + 2 * S
    most_ns = turn_ns * (len(crowd) + 1) * rotation.WEIGHTS_MAX
    assert all(waited_ns <= most_ns for waited_ns in made.wait_ns.values())
    if sum(gib for gib, _ in crowd) <= 80:
        assert made.moves == []


@given(crowds, st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=7, max_size=7), st.booleans())
@settings(max_examples=examples(200) // 2, deadline=None)
def test_claims_fit_and_all_are_served_whoever_sleeps(
    crowd: list[tuple[int, int]], naps: list[tuple[int, int]], sleeps: bool
) -> None:
    members = [replace(m, idle_after_ns=10 * S if sleeps else 0) for m in _first_fit(crowd)]
    pauses = {m.name: (work * S, max(1, pause) * S) for m, (work, pause) in zip(members, naps, strict=False)}
    made = world(*members, naps=pauses, rate=FAST)
    made.run(240 * S)
    turn_ns = compute_quantum_ns(160 * GIB * S // FAST) + 2 * S
    most_ns = turn_ns * (len(crowd) + 1) * rotation.WEIGHTS_MAX
    assert all(waited_ns <= most_ns for waited_ns in made.wait_ns.values())


# ---- what it costs ----


def test_the_cost_is_said_before() -> None:
    two = rotation.estimate_cost([Load(80 * GIB, RATE)] * 2, CAPACITY)
    assert two.quantum_ns == 80 * S and 0.04 < two.lost_ratio < 0.05 and two.host_bytes == 80 * GIB
    assert two.bytes_per_s == RATE
    fit = rotation.estimate_cost([Load(40 * GIB, RATE)] * 2, CAPACITY)
    assert (fit.quantum_ns, fit.lost_ratio, fit.host_bytes) == (0, 0.0, 0)
    assert rotation.estimate_cost([], CAPACITY).claims_bytes == 0


def test_the_cost_is_of_each_ones_own_rate() -> None:
    found = rotation.estimate_cost([Load(80 * GIB, RATE), Load(40 * GIB, 8 * GIB)], CAPACITY)
    assert found.quantum_ns == 20 * (2 + 5) * S and found.bytes_per_s == 120 * GIB // 7
    others = [Load(20 * GIB, RATE), Load(60 * GIB, 20 * GIB), Load(20 * GIB, 10 * GIB)]
    assert rotation.estimate_cost([Load(80 * GIB, 20 * GIB), *others], CAPACITY).quantum_ns == 20 * (4 + 2 + 3) * S
    assert rotation.estimate_cost([Load(80 * GIB, RATE)], -GIB).bytes_per_s == RATE


def test_a_turn_lasts_by_the_rates_of_those_that_move() -> None:
    """One that is slow does not make the turns of others longer, nor one that is fast its own shorter."""
    a, b = (member(n, 40, last_work_ns=110 * S, resident_since_ns=50 * S, bytes_per_s=GIB) for n in "ab")
    a = replace(a, bytes_per_s=40 * GIB)
    c = member("c", 40, AWAY, waits=True, bytes_per_s=20 * GIB)
    turns = Turns()
    turns.update([a, b, c], 100 * S)
    turns._spent |= {"a": 2, "b": 1}
    due_ns = 50 * S + 20 * (1 + 2) * S
    assert choose_move([a, b, c], CAPACITY, turns, due_ns - 1) is None
    found = choose_move([a, b, c], CAPACITY, turns, due_ns)
    assert found and (found.name, found.to) == ("a", LEAVING)
    idle = replace(b, last_work_ns=0, resident_since_ns=0)
    assert choose_move([a, replace(idle, last_work_ns=21 * S), c], CAPACITY, turns, 100 * S) is None
    found = choose_move([a, replace(idle, last_work_ns=20 * S), c], CAPACITY, turns, 100 * S)
    assert found and (found.name, found.to) == ("b", LEAVING), "idle for as long as it takes out and in"


def self_mover(name: str, held_gib: int, stays_gib: int, **fields: Any) -> Member:
    """One whose program moves its memory itself: so many GiB of what it holds never leave the device."""
    return Member(name, 0, held_gib * GIB, (held_gib - stays_gib) * GIB, stays_bytes=stays_gib * GIB, **fields)


def test_what_stays_on_the_device_is_no_other_ones() -> None:
    a = self_mover("a", 70, 10, is_empty=False, last_work_ns=100 * S)
    b = self_mover("b", 70, 10, residency=AWAY, waits=True)
    turns = Turns()
    turns.update([a, b], 100 * S)
    assert choose_move([a, b], 80 * GIB, turns, 4000 * S) == Move("a", LEAVING, "b")
    assert choose_move([replace(a, residency=AWAY), b], 80 * GIB, turns, 4000 * S) == Move("b", COMING)
    larger = replace(b, held_bytes=71 * GIB)  # with what a leaves there it never fits
    assert choose_move([a, larger], 80 * GIB, turns, 4000 * S) is None
    assert choose_move([replace(a, residency=AWAY), larger], 80 * GIB, turns, 4000 * S) is None


@pytest.mark.parametrize("claims", [[], [Load(0, GIB)]])
def test_what_takes_no_turns_costs_nothing_though_others_hold_more_than_the_device(claims: list[Load]) -> None:
    assert rotation.estimate_cost(claims, -GIB).quantum_ns == 0
