"""What is promised for any mix of tenants: service of one that always wants, usage below a maximum, nothing left idle.

The bounds are those of start-time fair queueing and of a token bucket for pieces that cannot be taken back: with q the
quantum and eps what a tenant may have outstanding when its gate is shut (a kernel of each process, and the bound), a
tenant that always wants has used m * t - (q + eps_max) - (q + eps_own) - q in any time t, m being its minimum; and one
with a maximum M no more than M * t + M * depth + q + eps since it began. The last q of the first, SWITCHES and GUESSED
are what is allowed for changes of context and for splitting the time in which several ran.
"""

from __future__ import annotations

from collections.abc import Iterator

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from models.arbiter.model import MILLI, Params
from tests.arbiter.pair import Pair
from tests.arbiter.sharing_world import MS, US, Load, Tenant, World, tenant
from tests.examples import examples

PARAMS = Params()
SWITCHES = 0.03
GUESSED, GUESSED_BESIDE_LONG = 0.01, 0.025
SETTLED_NS = 300 * MS
END_NS = 1800 * MS
GRID_NS = 5 * MS

#: an example takes a second, so a failing one is shown as it was found
unhurried = settings(
    max_examples=examples(12), deadline=None, derandomize=True, phases=(Phase.explicit, Phase.reuse, Phase.generate)
)
kernels_us = st.sampled_from((20, 200, 2000, 10_000, 40_000))
minima = st.lists(st.integers(20, 500), min_size=2, max_size=5).filter(lambda found: sum(found) <= MILLI)


@st.composite
def backlogged_tenant(draw: st.DrawFn, ident: int, minimum: int) -> Tenant:
    """Always has something to run."""
    kernel_us = draw(kernels_us)
    load = Load(kernel_us * US, max(1, 3200 // kernel_us))
    maximum = min(MILLI, minimum + draw(st.sampled_from((0, 0, 50, 300, MILLI))))
    weight, priority = draw(st.sampled_from((0, 1, 500))), draw(st.sampled_from((0, 0, 1)))
    processes = draw(st.sampled_from((1, 1, 2))) if kernel_us < 10_000 else 1
    return tenant(ident, minimum, maximum, *[load] * processes, weight=weight, priority=priority)


@st.composite
def pausing(draw: st.DrawFn, ident: int, minimum: int) -> Tenant:
    """Launch-bound, or at work only now and then; perhaps of the latency class."""
    load = draw(
        st.sampled_from(
            (
                Load(20 * US, 50, gap_ns=MS),
                Load(200 * US, 20, period_ns=8 * MS),
                Load(200 * US, 40, gap_ns=4 * MS),
                Load(active_ns=100 * MS, idle_ns=70 * MS),
            )
        )
    )
    return tenant(ident, minimum, MILLI, load, latency=draw(st.booleans()), priority=draw(st.sampled_from((0, 1))))


@st.composite
def all_backlogged(draw: st.DrawFn) -> list[Tenant]:
    return [draw(backlogged_tenant(ident, minimum)) for ident, minimum in enumerate(draw(minima))]


@st.composite
def mixed_tenants(draw: st.DrawFn) -> list[Tenant]:
    """The first is backlogged, the others may be anything."""
    first, *others = draw(minima)
    load_types = [draw(st.sampled_from((backlogged_tenant, pausing, pausing))) for _ in others]
    found = [draw(kind(ident, milli)) for ident, (kind, milli) in enumerate(zip(load_types, others, strict=True), 1)]
    return [draw(backlogged_tenant(0, first)), *found]


def had(t: Tenant, begin_ns: int, end_ns: int) -> Iterator[tuple[int, int]]:
    """(time, device time so far) every now and then."""
    total_ns, place = 0, 0
    for at_ns in range(begin_ns, end_ns + 1, GRID_NS):
        while place < len(t.spans) and t.spans[place][1] <= at_ns:
            total_ns += t.spans[place][1] - t.spans[place][0]
            place += 1
        running_ns = at_ns - t.spans[place][0] if place < len(t.spans) else 0
        yield at_ns, total_ns + max(0, running_ns)


def most_missed_ns(t: Tenant) -> float:
    """The most, over all windows, by which it had less than its minimum."""
    rate = (1 - SWITCHES) * t.params.min_milli / MILLI
    behind = [rate * at_ns - had_ns for at_ns, had_ns in had(t, SETTLED_NS, END_NS)]
    return max(now - min(behind[: place + 1]) for place, now in enumerate(behind))


def revocable_late_ns(t: Tenant) -> int:
    return PARAMS.bound_ns + sum(load.kernel_ns for load in t.loads)


def run(tenants: list[Tenant]) -> World:
    world = World(tenants, Pair())
    world.run(END_NS)
    return world


def what(tenants: list[Tenant]) -> str:
    return "; ".join(f"{t.params}, kernels {[load.kernel_ns for load in t.loads]}" for t in tenants)


def assert_served(t: Tenant, others: list[Tenant]) -> None:
    late_ns = 3 * PARAMS.quantum_ns + max(revocable_late_ns(o) for o in others) + revocable_late_ns(t)
    missed_ns = most_missed_ns(t)
    assert missed_ns <= late_ns, f"{missed_ns / MS:.1f} of {late_ns / MS:.1f} ms: {what([t])} beside {what(others)}"


def assert_capped(t: Tenant, others: list[Tenant]) -> None:
    """Time in which several ran is split by guess: more of it beside kernels that outlast a drain."""
    long_kernels = any(load.kernel_ns > PARAMS.bound_ns for o in others for load in o.loads)
    rate = t.params.max_milli / MILLI + (GUESSED_BESIDE_LONG if long_kernels else GUESSED)
    over_ns = max(had_ns - rate * at_ns for at_ns, had_ns in had(t, 0, END_NS))
    late_ns = rate * PARAMS.cap_depth_ns + PARAMS.quantum_ns + revocable_late_ns(t)
    assert rate > 1 or over_ns <= late_ns, (
        f"{over_ns / MS:.1f} of {late_ns / MS:.1f} ms: {what([t])} beside {what(others)}"
    )


@unhurried
@given(all_backlogged())
def test_minima_and_maxima_hold_for_any_mix_and_nothing_is_left_idle(tenants: list[Tenant]) -> None:
    world = run(tenants)
    for t in tenants:
        others = [o for o in tenants if o is not t]
        assert_served(t, others)
        assert_capped(t, others)
    wanted_ns = min(1.0, sum(t.params.max_milli for t in tenants) / MILLI) * (END_NS - SETTLED_NS)
    late_ns = PARAMS.quantum_ns + max(revocable_late_ns(t) for t in tenants)
    assert world.total(SETTLED_NS, END_NS) * (END_NS - SETTLED_NS) >= wanted_ns * (1 - SWITCHES) - late_ns


@unhurried
@given(mixed_tenants())
def test_who_always_wants_is_served_whatever_the_others_do(tenants: list[Tenant]) -> None:
    run(tenants)
    assert_served(tenants[0], tenants[1:])
