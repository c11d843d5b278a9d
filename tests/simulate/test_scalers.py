"""Elastic jobs in the simulation have as many workers as their autoscalers, the daemon's own, ask for."""

from __future__ import annotations

from tests.simulate.test_elastic import elastic
from tests.simulate.worlds import job
from vgpud.core.jobs.model import SECOND_NS, QueueSpec
from vgpud.simulate import clusters, scenario
from vgpud.simulate.engine import Costs, Outcome
from vgpud.simulate.scaling import Curve
from vgpud.simulate.trace import TraceJob

#: img/s; flat from 4 workers
PLATEAU = Curve(((4, 400), (64, 400)))
HOUR_S = 3600
#: resized as soon as there is free capacity
AT_ONCE = (QueueSpec("default", elastic_idle_ns=SECOND_NS),)


def _play(trace: list[TraceJob], cluster: str, *, has_autoscalers: bool = True) -> Outcome:
    costs = Costs(resize_ns=2 * SECOND_NS)
    one = scenario.Scenario(placement=scenario.COUNT, queues=AT_ONCE, costs=costs, has_autoscalers=has_autoscalers)
    return scenario.run(trace, clusters.parse(cluster), one)


def test_no_more_workers_than_are_worth_it() -> None:
    """It looks at more, and gives them back."""
    outcome = _play([elastic(0, 10 * HOUR_S, 1, 16, 4, PLATEAU)], "1x16")
    held = [sample.held_milli // 1000 for sample in outcome.samples]
    assert held[-2] == 4 and 5 <= max(held) <= 9
    greedy = _play([elastic(0, 10 * HOUR_S, 1, 16, 4, PLATEAU)], "1x16", has_autoscalers=False)
    assert [sample.held_milli // 1000 for sample in greedy.samples][-2] == 16


def test_what_one_gives_back_another_has() -> None:
    """Sixteen devices for two that would both take all, and are no faster for it."""
    trace = [elastic(at_s, 10 * HOUR_S, 1, 16, 4, PLATEAU) for at_s in (0, 60)]
    known = [one for _, one in _play(trace, "1x16").jobs]
    assert [one.wished_members for one in known] == [4, 4]
    alone = 10 * HOUR_S
    assert all(alone < (one.ended_ns - one.submitted_ns) // SECOND_NS < 1.1 * alone for one in known)


def test_others_are_never_asked() -> None:
    (_, known), *_ = _play([job(0, 100, members=2)], "1x16").jobs
    assert known.wished_members == 0 and known.ended_ns == 100 * SECOND_NS
