"""Jobs with --mem-swap in the queue: side by side, in turn with slices that are no jobs', suspended, and restarted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.builders import make_small_device
from tests.core.queue.world import Shell, queue
from vgpud.core.jobs.events import Changed, JobSuspended, RoomChanged, StartJob, StopJob, Suspended
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Ask, How, Job, JobSpec, Node
from vgpud.core.model import Spec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue.machine import Machine

GIB = 1 << 30
HOWS = (How.PAUSE, How.EVICT, How.REQUEUE)


def make_shell(swap_gib: int = 100, *, slow: bool = False, **rules: Any) -> Shell:
    """One device of 16 GiB."""
    cluster = Cluster([Node("n", (make_small_device(0),), swap_bytes=swap_gib * GIB)])
    return Shell(Machine((queue(**rules),), cluster, registry.make, hows=HOWS), slow=slow)


def spec(gib: int = 16, milli: int = 250, *, mem_swap: bool = True, **fields: Any) -> JobSpec:
    wanted = Spec(milli, mem_min_bytes=gib * GIB, mem_max_bytes=gib * GIB, mem_swap=mem_swap)
    return JobSpec(Ask(wanted), **fields)


def node_of(at: Shell) -> Node:
    return at.machine._world.cluster.node("n")  # type: ignore[attr-defined,no-any-return]


def tell(at: Shell, in_turn: Sequence[tuple[int, bool]] = (), swap_gib: int = 100) -> None:
    sizes = tuple(("GPU-0", gib * GIB, is_there) for gib, is_there in in_turn)
    at.send(RoomChanged("n", (), ("GPU-0",), (), sizes, swap_gib * GIB))


def test_four_of_the_whole_memory_run_together() -> None:
    at = make_shell()
    jobs = [at.submit(spec()) for _ in range(5)]
    assert at.running == set(jobs[:4])
    at.end(jobs[0])
    assert at.running == set(jobs[1:])


def test_one_that_the_host_cannot_hold_waits_and_is_not_tried() -> None:
    at = make_shell(swap_gib=20)
    first, second = at.submit(spec()), at.submit(spec())
    third = at.submit(spec())
    assert at.running == {first, second}
    assert at.reason(third).startswith("slices with mem-swap would need 32GiB of the host's RAM, of which 20GiB may be")
    at.sleep(3600)
    assert [c.job_id for c in at.log if isinstance(c, StartJob)] == [first, second]
    smaller = at.submit(spec(4))
    assert smaller not in at.running, "both others would have to leave for it"
    tell(at, swap_gib=40)
    assert third in at.running


def test_slices_that_are_no_jobs_are_in_the_same_turn() -> None:
    at = make_shell()
    tell(at, [(16, True)])
    first = at.submit(spec(12))
    assert first in at.running
    other = at.submit(spec(1, mem_swap=False))
    assert at.state(other) == "pending"
    tell(at)
    assert other in at.running


@pytest.mark.parametrize("how", [How.PAUSE, How.EVICT])
def test_what_a_suspended_one_keeps_is_in_turn_or_on_the_host(how: How) -> None:
    at = make_shell(slow=True)
    first = at.submit(spec(12))
    at.send(Suspended(first))
    at.stops.clear()
    at.running.clear()
    at.send(JobSuspended(first, how))
    node = node_of(at)
    assert node.free_bytes == [(4 if how is How.PAUSE else 16) * GIB] and not node.swapped_bytes
    second = at.submit(spec(16))
    assert second in at.running and (node.free_bytes, node.swapped_bytes) == ([0], 16 * GIB)


def test_a_job_that_goes_first_takes_memory_from_those_in_turn() -> None:
    at = make_shell(policy="priority(preempt)", slow=True)
    low = [at.submit(spec(16)) for _ in range(2)]
    high = at.submit(spec(10, mem_swap=False, priority=5))
    stops = [command for command in at.log if isinstance(command, StopJob)]
    assert {(stop.job_id, stop.how) for stop in stops} == {(job_id, How.EVICT) for job_id in low}
    at.answer_stops()
    assert at.running == {high} and node_of(at).free_bytes == [6 * GIB]
    small = at.submit(spec(6))
    assert small in at.running
    at.end(high)
    assert at.running == {small, *low} and node_of(at).free_bytes == [0]


def test_memory_on_the_host_is_counted_until_the_job_has_gone() -> None:
    at = make_shell(swap_gib=16, policy="priority(preempt)")
    low = at.submit(spec(16))
    high = at.submit(spec(16, mem_swap=False, priority=5))
    assert at.running == {high} and at.job(low).suspended_how is How.EVICT
    at.end(high)
    assert at.running == {low}
    first = at.submit(spec(16))
    assert at.running == {low, first}
    at.submit(spec(16, mem_swap=False, priority=5))
    assert node_of(at).swapped_bytes == 16 * GIB, "both are on the host, and one of them comes back first"


def test_a_running_one_changes_its_size() -> None:
    at = make_shell()
    jobs = [at.submit(spec()) for _ in range(2)]
    before = list(node_of(at).turns)
    at.send(Changed(jobs[0], replace(at.job(jobs[0]).spec, ask=Ask(replace(spec().ask.spec, gpus_milli=500)))))
    assert node_of(at).free_milli == [250] and node_of(at).turns == before
    for job_id in jobs:
        at.end(job_id)
    assert (node_of(at).free_milli, node_of(at).free_bytes, node_of(at).turns) == ([1000], [16 * GIB], [])


def test_one_is_backfilled_beside_those_in_turn() -> None:
    at = make_shell(strict=True)
    long = at.submit(spec(16, 500, time_limit_ns=100 * SECOND_NS))
    plain = at.submit(spec(8, mem_swap=False, time_limit_ns=10 * SECOND_NS))
    assert at.state(plain) == "pending"
    at.submit(spec(16, time_limit_ns=200 * SECOND_NS))
    short = at.submit(spec(16, time_limit_ns=50 * SECOND_NS))
    assert at.running == {long, short}


def test_placements_from_before_are_in_turn_after_a_restart() -> None:
    before = make_shell()
    jobs = [before.submit(spec()) for _ in range(2)]
    kept: list[Job] = []
    for job_id in jobs:
        job = before.job(job_id)
        kept.append(replace(job, placement=tuple(replace(place, in_turn=False) for place in job.placement)))
    after = make_shell()
    after.running.update(jobs)
    after.restore(kept)
    after.next_id = 3
    assert node_of(after).free_bytes == [0] and node_of(after).swapped_bytes == 16 * GIB
    assert after.submit(spec()) in after.running


def test_the_time_of_a_limit_of_the_host_is_none() -> None:
    assert RoomChanged("n", (), ()).swap_bytes == NEVER_NS and Node("n", ()).swap_bytes == NEVER_NS
