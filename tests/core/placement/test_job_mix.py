"""The mix of jobs that FGD learns from what is submitted."""

from __future__ import annotations

from dataclasses import replace

from tests.core.placement.world import ask, at, fresh, job, node
from vgpud.core.jobs.model import Node
from vgpud.core.placement.cluster import Cluster
from vgpud.core.placement.fgd import PLAIN_MIX, mix_of
from vgpud.core.placement.job_mix import JOBS_LEAST, JOBS_MAX, JobMix

#: of three nodes the first has the scarce model
NODES = [node("a", 1, model="rare"), node("b", 4, model="frequent")]
WHOLE, RARE = ask(1000), ask(1000, models=("rare",))


def test_until_enough_jobs_are_known_the_mix_is_plain() -> None:
    learnt = JobMix()
    assert not any(learnt.add(WHOLE) for _ in range(JOBS_LEAST - 1))
    assert learnt.mix == PLAIN_MIX
    assert learnt.add(WHOLE)
    assert learnt.mix == ((WHOLE, JOBS_LEAST),)


def test_it_is_the_mix_of_the_newest_jobs() -> None:
    learnt = JobMix()
    asks = [ask(100 + 50 * (number % 8)) for number in range(JOBS_MAX)]
    for one in (WHOLE,) * 500 + tuple(asks) + tuple(asks):
        learnt.add(one)
    assert learnt.mix == mix_of(asks)
    assert len(learnt._asks) == JOBS_MAX
    assert sum(learnt._counts.values()) == JOBS_MAX, "what is beyond is forgotten"


def test_memory_and_utilisation_make_no_other_ask() -> None:
    learnt = JobMix()
    for number in range(JOBS_LEAST):
        one = ask(500)
        learnt.add(replace(one, utilisation_milli=number, spec=replace(one.spec, mem_min_bytes=number)))
    assert learnt.mix == ((ask(500), JOBS_LEAST),)


def make_cluster(nodes: list[Node]) -> Cluster:
    cluster = Cluster(fresh(nodes))
    cluster.rules({"default": ("fgd", False)})
    return cluster


def test_jobs_that_can_run_anywhere_leave_a_scarce_model_to_those_that_ask_for_it() -> None:
    """As if the mix had been known from the beginning; without it the smaller node is as good."""
    learning, nodes = make_cluster(NODES), [node("b", 1, model="rare"), node("a", 1, model="frequent")]
    assert at(learning.place(job(1000))) == ["a"]
    for one in [WHOLE] * 12 + [RARE] * 4:
        learning.count_ask(one)
    assert at(learning.place(job(1000))) == ["b"]
    learning.replace_nodes(fresh(nodes))
    assert at(learning.place(job(1000))) == ["a"], "on other nodes too"


def test_a_mix_that_is_given_stays() -> None:
    cluster = Cluster(fresh(NODES), mix=((RARE, 1), (WHOLE, 3)))
    for _ in range(100):
        cluster.count_ask(ask(250))
    assert cluster._mix == ((RARE, 1), (WHOLE, 3))
