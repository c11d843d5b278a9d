"""Running jobs in order while their keys fall at different paces: as if all were sorted again at each time."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.queue.test_vain import World
from tests.examples import examples
from vgpud.core.jobs.model import How
from vgpud.core.order import Entry
from vgpud.core.queue.drifting import DriftingOrder

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 1), st.integers(-50, 50), st.sampled_from([0, 1, 2, 5])),
        st.tuples(st.just("remove"), st.integers(0, 40)),
        st.tuples(st.just("rekey"), st.integers(0, 40)),
        st.tuples(st.just("sleep"), st.integers(0, 20)),
    ),
    max_size=60,
)


class Sorted:
    """The same, sorted again whenever it is asked."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.jobs: dict[int, tuple[int, int, int]] = {}  # first part, second part at time 0, pace

    def entry(self, job_id: int) -> Entry:
        first, second, pace = self.jobs[job_id]
        return ((first, second - pace * self.now_ns, 7), job_id)

    def entries(self) -> list[Entry]:
        return sorted(self.entry(job_id) for job_id in self.jobs)


def act(step: Any, order: DriftingOrder, model: Sorted, new_id: int) -> None:
    what, *given_values = step
    if what == "sleep":
        order.now_ns = model.now_ns = model.now_ns + given_values[0]
    elif what == "add":
        first, second, pace = given_values
        order.add(new_id, (first, second, 7), 0, new_id, pace)
        model.jobs[new_id] = (first, second + pace * model.now_ns, pace)
    elif what == "remove" and model.jobs:
        job_id = sorted(model.jobs)[given_values[0] % len(model.jobs)]
        order.remove(job_id)
        del model.jobs[job_id]
    elif what == "rekey":
        for job_id in model.jobs:
            value, pace = (job_id * given_values[0]) % 23, (job_id + given_values[0]) % 3
            model.jobs[job_id] = (0, value + pace * model.now_ns, pace)
        order.rekey((i, model.entry(i)[0], model.jobs[i][2]) for i in list(model.jobs))


@settings(max_examples=examples(400), deadline=None)
@given(STEPS, st.integers(-60, 60))
def test_it_is_as_if_all_were_sorted_at_each_time(steps: list[Any], at: int) -> None:
    order, model = DriftingOrder(), Sorted()
    for number, step in enumerate(steps, 1):
        act(step, order, model, number)
        entries = model.entries()
        assert list(order) == [job_id for _, job_id in entries]
        assert (len(order), order.weight) == (len(entries), sum(model.jobs))
        for cursor in (None, ((0, at, 7), 3), *entries[:2]):
            before = entries if cursor is None else entries[: bisect_left(entries, cursor)]
            assert order.find_last(cursor) == (before[-1] if before else None)
            if cursor is not None:
                assert order.weight_after(cursor) == sum(entry[1] for entry in entries if entry > cursor)
        for job_id in model.jobs:
            assert (order.entry(job_id), order.pace(job_id)) == (model.entry(job_id), model.jobs[job_id][2])


def test_at_each_decision_every_key_is_what_the_policy_says() -> None:
    for seed in range(examples(20)):
        world = World(seed, "srsf", "best-fit", (How.EVICT, How.REQUEUE))
        for _ in range(60):
            world.happens()
            state = world.at.machine._world
            for line in state.lines.values():
                line.set_time(world.at.now_ns)
                for job_id in line.running:
                    key = line.policy.key(state.jobs[job_id], world.at.now_ns)
                    assert line.running.entry(job_id) == (key, job_id), seed
