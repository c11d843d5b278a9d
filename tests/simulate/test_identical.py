"""What the simulator makes of the shipped traces, exact to the last digit: every job's times, every sample of the
cluster, every span on devices, the figures.

The digests are of the simulator before jobs were read as they come, samples were kept as columns and ranks were
remembered by the state of a node (with costs: since jobs report their starts). Such changes leave them as they are; a
change of a policy, of a placement or of what is simulated does not, and has its own tests: then write the new ones,
which the failure shows.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from vgpud.core.jobs.model import SECOND_NS
from vgpud.simulate import clusters, readers, results
from vgpud.simulate.engine import Costs, Outcome
from vgpud.simulate.interference import Summed
from vgpud.simulate.scenario import Scenario, run
from vgpud.simulate.trace import TraceJob

DATA = Path(__file__).resolve().parents[2] / "benchmarks" / "data"
COSTS = Costs(30 * SECOND_NS, 20 * SECOND_NS, 10 * SECOND_NS, SECOND_NS)
FIGURES = ("jobs", "refused", "makespan_s", "utilisation", "working", "fragmentation", "idle_while_waiting", "jain")


@dataclass(frozen=True)
class Case:
    file: str
    jobs: int  # the first of the trace
    cluster: str
    digest: str
    scenario: Scenario = field(default_factory=Scenario)

    @property
    def name(self) -> str:
        return f"{Path(self.file).stem}-{self.scenario.policy}-{self.scenario.placement}"


SIXTY, MURI = "tiresias/60_job.csv", "muri/muri_cluster400_job.csv"
PHILLY, OPENB = "philly/philly_6c71a0.csv", "openb/openb_pod_list_default.csv"
LAS, NARROW = "2d-las(3250,7200)", "las(3250,7200,narrow)"
CASES = [
    Case(SIXTY, 60, "2x4", "71d1cb072530bedd", Scenario("fifo", "count")),
    Case(SIXTY, 60, "2x4", "0ec46bcb00b124be", Scenario("strict:fifo", "best-fit", backfill=True)),
    Case(SIXTY, 60, "2x4", "8244fb966f016b82", Scenario(LAS, "count")),
    Case(SIXTY, 60, "1x4", "5e20460f4b6f34cd", Scenario(NARROW, "best-fit", costs=COSTS)),
    Case(MURI, 400, "8x8", "81acc4a578ac16ea", Scenario(NARROW, "best-fit", costs=COSTS)),
    Case(MURI, 120, "2x8:V100+2x8:T4", "137c979568e5efb5", Scenario(LAS, "worst-fit", spread=True)),
    Case(MURI, 60, "2x8", "8f6f31edb68f67b3", Scenario(LAS, "tiresias", min_run_ns=600 * SECOND_NS)),
    Case(PHILLY, 1000, "8x8", "2d8c7a89cafb22c1", Scenario("fifo", "best-fit")),
    Case(OPENB, 600, "6x8", "286490c676ab6a61", Scenario("fifo", "best-fit", interference=Summed())),
]


@functools.cache
def load(file: str) -> list[TraceJob]:
    return readers.read(DATA / file, sort=True)


def make_digest(outcome: Outcome) -> str:
    text = hashlib.sha256()
    figures = results.figures(outcome).as_json()
    text.update(repr([figures[name] for name in FIGURES]).encode())
    for spread in ("jct_s", "queueing_s", "rho"):
        text.update(repr(sorted(figures[spread].items())).encode())
    text.update(repr(results.rows(outcome)).encode())
    text.update(
        repr([(one.at_ns, one.held_milli, one.waiting, one.fragmented_milli) for one in outcome.samples]).encode()
    )
    text.update(repr([tuple(span) for span in outcome.spans]).encode())
    text.update(repr([(job.spec.name, why) for job, why in outcome.refused_jobs]).encode())
    text.update(repr(list(map(sorted, outcome.starts_on_several_nodes))).encode())
    text.update(repr((outcome.decisions, outcome.longest_wait_ns)).encode())
    return text.hexdigest()[:16]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_to_the_last_digit(case: Case) -> None:
    outcome = run(load(case.file)[: case.jobs], clusters.parse(case.cluster), case.scenario)
    assert make_digest(outcome) == case.digest
