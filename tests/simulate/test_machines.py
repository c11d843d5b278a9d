"""Jobs run as fast as their GPUs let them."""

from __future__ import annotations

from dataclasses import replace

from vgpud.core.jobs.model import SECOND_NS, Ask, JobSpec, JobState, Place
from vgpud.core.model import Spec
from vgpud.simulate import clusters, machines, scenario
from vgpud.simulate.engine import Outcome
from vgpud.simulate.interference import FULL
from vgpud.simulate.trace import TraceJob

RATES = {"resnet": (("fast", 1000), ("slow", 250)), "a3c": (("fast", 1000), ("slow", 900))}
CLUSTER = "1x1:slow+1x1:fast"


def job(model: str, at_s: int = 0, members: int = 1) -> TraceJob:
    spec = JobSpec(Ask(Spec(1000)), members, model=model, duration_ns=100 * SECOND_NS)
    return TraceJob(at_s * SECOND_NS, spec.duration_ns, spec)


def run(placement: str, *jobs: TraceJob) -> Outcome:
    nodes = clusters.parse(CLUSTER)
    known = machines.add_rates(jobs, RATES)
    by_model = machines.ByModel(machines.models_of(nodes))
    return scenario.run(known, nodes, scenario.Scenario("fifo", placement, machines=by_model))


def seconds(outcome: Outcome) -> list[int]:
    assert all(done.state is JobState.COMPLETED for _, done in outcome.jobs)
    return [(done.ended_ns - done.submitted_ns) // SECOND_NS for _, done in outcome.jobs]


def test_a_slow_gpu_takes_longer() -> None:
    assert seconds(run("best-fit", job("resnet"))) == [400]
    assert seconds(run("throughput", job("resnet"))) == [100]


def test_who_loses_little_leaves_the_fast_one() -> None:
    assert seconds(run("throughput", job("a3c"), job("resnet"))) == [111, 100]
    assert seconds(run("throughput(0)", job("a3c"), job("resnet"))) == [100, 400]


def test_members_wait_for_the_slowest() -> None:
    assert seconds(run("best-fit", job("resnet", members=2))) == [400]


def test_unknown_models_run_at_full_speed() -> None:
    assert seconds(run("best-fit", job("unknown"))) == [100]
    speed = machines.ByModel({}).speed(machines.add_rates([job("resnet")], RATES)[0], ())
    assert speed == FULL


def test_names_are_written_as_users_and_drivers_do() -> None:
    nodes = clusters.parse("1x1:Tesla-V100-SXM2-16GB+1x1:tesla_k80")
    by_model = machines.ByModel(machines.models_of(nodes))
    (known,) = machines.add_rates([job("ResNet-50")], {"resnet50": (("k80", 140), ("v100", 1000))})
    assert [by_model.speed(known, (Place(node.name, ()),)) for node in nodes] == [FULL, FULL * 140 // 1000]


def test_rates_change_nothing_else() -> None:
    (known,) = machines.add_rates([job("resnet")], RATES)
    assert replace(known, spec=replace(known.spec, ask=replace(known.spec.ask, rates=()))) == job("resnet")
