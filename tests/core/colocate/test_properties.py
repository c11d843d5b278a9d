"""Whatever happens to jobs that share devices: guarantees hold, limits hold when a job arrives, pairs stay apart."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.placement.world import GIB, node
from tests.core.queue.world import Shell, make_policy, queue
from tests.examples import examples
from vgpud.core.jobs.events import Measured, PairLoses, StartJob
from vgpud.core.jobs.model import Ask, How, Job, JobSpec, JobState, Resident
from vgpud.core.model import Spec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.placement.shape import resident
from vgpud.core.queue.machine import Machine

KIND_NAMES = st.sampled_from(["", "a", "b", "c"])
JOBS = st.builds(
    lambda milli, least, gib, known, kind, fixed: JobSpec(
        Ask(Spec(milli, min_milli=least, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB), utilisation_milli=known),
        kinds=(kind,) if kind else (),
        preemptible=not fixed,
    ),
    st.sampled_from([1000, 1000, 1000, 500]),
    st.sampled_from([None, None, None, 100, 500]),
    st.sampled_from([4, 30, 50]),
    st.sampled_from([-1, 100, 400, 700]),
    KIND_NAMES,
    st.booleans(),
)


def on_devices(at: Shell) -> dict[str, list[Job]]:
    """The jobs that run and are not being stopped, by device."""
    found: dict[str, list[Job]] = {}
    for job in at.machine.jobs.values():
        if job.state is JobState.RUNNING and job.stop_to is None:
            for place in job.placement:
                for share in place.shares:
                    found.setdefault(share.device_uuid, []).append(job)
    return found


def who(job: Job) -> Resident:
    (place,) = job.placement
    return resident(place.utilisation_milli, place.kind, place.shares[0].max_milli)


def sound(at: Shell, cluster: Cluster) -> None:
    for uuid, jobs in on_devices(at).items():
        shares = [job.placement[0].shares[0] for job in jobs]
        assert sum(share.min_milli for share in shares) <= 1000, "what is guaranteed"
        assert sum(share.mem_min_bytes for share in shares) <= 80 * GIB
        assert len(jobs) <= 2
        there = cluster.node("n").residents[int(uuid.removeprefix("n/"))]
        assert Counter(there) == Counter(map(who, jobs)), "what the rule is told is what runs"


@settings(max_examples=examples(150), deadline=None)
@given(st.data(), st.booleans())
def test_any_sequence(data: st.DataObject, moves: bool) -> None:
    cluster = Cluster([node("n", 3)])
    hows = (How.PAUSE, How.EVICT, How.REQUEUE)
    at = Shell(Machine((queue(placement="colocate(120,2)"),), cluster, make_policy, hows=hows, moves=moves))
    for _ in range(data.draw(st.integers(1, 25))):
        running = [job for jobs in on_devices(at).values() for job in jobs]
        action = data.draw(st.sampled_from(["submit", "submit", "end", "measure", "part"] if running else ["submit"]))
        before = len(at.log)
        if action == "submit":
            at.submit(data.draw(JOBS))
        elif action == "end":
            at.end(data.draw(st.sampled_from(running)).job_id)
        elif action == "measure":
            at.send(Measured(data.draw(st.sampled_from(running)).job_id, data.draw(st.integers(1, 1000))))
        else:
            found = [pair for jobs in on_devices(at).values() for pair in combinations(jobs, 2)]
            if found:
                stays, leaves = data.draw(st.sampled_from(found))
                if not leaves.spec.preemptible:
                    stays, leaves = leaves, stays
                at.send(PairLoses(leaves.job_id, stays.job_id, "why"))
        at.sleep(1)
        sound(at, cluster)
        for started in [command.job_id for command in at.log[before:] if isinstance(command, StartJob)]:
            job = at.job(started)
            together = on_devices(at).get(job.placement[0].shares[0].device_uuid, []) if job.placement else []
            if job in together and len(together) > 1:
                assert sum(who(one)[0] for one in together) <= 1200, "the limit, when somebody comes"
                pairs = {(who(job)[1], who(one)[1]) for one in together if one is not job}
                assert not {tuple(sorted(pair)) for pair in pairs} & set(at.machine.pairs())
    for _ in range(200):
        left = [job for job in at.machine.jobs.values() if not job.state.is_final]
        running = [job for job in left if job.state is JobState.RUNNING]
        if not running:
            break
        at.end(running[0].job_id)
    assert not [job for job in at.machine.jobs.values() if not job.state.is_final], "nobody waits for ever"
    assert cluster.node("n").residents == [()] * 3 and cluster.free_milli() == 3000
