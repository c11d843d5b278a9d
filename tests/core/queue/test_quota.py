"""Several queues: guarantees, limits, weights, parents, reclaim, history."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.builders import make_small_device
from tests.core.queue.world import Shell, gpus, make_policy, queue, shell
from vgpud.core.jobs.events import Held, QueuesChanged, RoomChanged
from vgpud.core.jobs.model import SECOND_NS, Ask, JobSpec, Node, QueueSpec
from vgpud.core.model import Spec
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine
from vgpud.core.queue.quota import HISTORY_BITS, check_queues, decay

HOUR_NS = 3600 * SECOND_NS


def test_a_limit_keeps_jobs_waiting_and_the_reason_names_it() -> None:
    at = shell(4, queue(limit_milli=1500))
    at.submit(gpus(1))
    job = at.submit(gpus(1))
    assert at.running == {1}
    assert at.reason(job) == (
        "queue default has 1 of its limit of 1.5 GPUs in use, and this needs 1; in use by job 1 (1 GPU)"
    )


def test_cpus_and_ram_count_as_well() -> None:
    at = shell(4, queue(cpu_limit_milli=8000, ram_limit_bytes=10 << 30))
    for much, says in (
        ({"cpu_milli": 5000}, "queue default has 5 of its limit of 8 CPUs in use, and this needs 5"),
        ({"ram_bytes": 6 << 30}, "queue default has 6GiB of its limit of 10GiB RAM in use, and this needs 6GiB"),
    ):
        spec = replace(gpus(1), ask=replace(gpus(1).ask, **much))
        first, second = at.submit(spec), at.submit(spec)
        assert first in at.running and at.reason(second).startswith(f"{says}; in use by job 1 (1 GPU)")


def test_the_limit_of_a_parent_counts_its_children() -> None:
    at = shell(8, queue("team", limit_milli=3000), queue("ann", parent="team"), queue("bob", parent="team"))
    at.submit(gpus(2, queue="ann"))
    job = at.submit(gpus(2, queue="bob"))
    other = at.submit(gpus(1, queue="bob"))
    assert at.running == {1, other}
    assert (
        at.reason(job)
        == "queue team has 3 of its limit of 3 GPUs in use, and this needs 2; in use by job 1 (2 GPU), job 3 (1 GPU)"
    )


def test_below_its_guarantee_a_queue_comes_first() -> None:
    at = shell(2, queue("a", weight=9), queue("b", guarantee_milli=1000))
    denied = at.machine.check(gpus(2, queue="a", preemptible=False))
    assert denied is not None and "2 GPUs that cannot be preempted would take" in denied.message
    wall = at.submit(gpus(1, queue="b"))
    for name in "aaabbb":
        at.submit(gpus(1, queue=name))
    at.end(wall)
    assert [at.job(j).spec.queue for j in sorted(at.running)] == ["a", "b"]


def test_shares_follow_the_weights() -> None:
    at = shell(6, queue("a", weight=2), queue("b"))
    wall = at.submit(gpus(6, queue="a"))
    for name in "bbbbbbaaaaaa":
        at.submit(gpus(1, queue=name))
    at.end(wall)
    by_queue = {n: sum(1 for j in at.running if at.job(j).spec.queue == n) for n in "ab"}
    assert by_queue == {"a": 4, "b": 2}


def test_a_guarantee_is_reclaimed_from_jobs_above_their_own() -> None:
    at = shell(4, queue("a", guarantee_milli=2000), queue("b", guarantee_milli=2000))
    first = [at.submit(gpus(1, queue="a")) for _ in range(4)]
    assert at.running == set(first)
    mine = at.submit(gpus(1.5, queue="b"))
    assert at.running == {first[0], first[1], mine}
    assert at.job(first[3]).preemptions == 1
    more = at.submit(gpus(1, queue="b"))
    assert at.state(more) == "pending", "that would be more than its guarantee"


def test_who_cannot_be_preempted_stays_and_may_not_take_others_guarantee() -> None:
    at = shell(4, queue("a"), queue("b", guarantee_milli=2000))
    fixed = [at.submit(gpus(1, queue="a", preemptible=False)) for _ in range(3)]
    assert at.running == set(fixed[:2])
    assert "cannot be preempted" in at.reason(fixed[2]) and "guaranteed 2 of 4 GPUs" in at.reason(fixed[2])
    loose = [at.submit(gpus(1, queue="a")) for _ in range(2)]
    mine = at.submit(gpus(2, queue="b"))
    assert at.running == {*fixed[:2], mine} and at.state(loose[0]) == "suspended"


def test_a_job_without_gpus_takes_nothing_of_others_guarantee() -> None:
    """The balancer of a service: also where what runs already leaves others less than they are guaranteed."""
    at = shell(4, queue("a"), queue("b", guarantee_milli=2000))
    fixed = [at.submit(gpus(1, queue="a", preemptible=False)) for _ in range(2)]
    at.send(QueuesChanged((queue("a"), queue("b", guarantee_milli=3000))))
    more, balancer = (at.submit(gpus(amount, queue="a", preemptible=False)) for amount in (1, 0))
    assert at.running == {*fixed, balancer} and "cannot be preempted" in at.reason(more)


def test_no_job_is_preempted_before_the_minimum_run_and_then_at_once() -> None:
    at = shell(2, queue("a", min_run_ns=60 * SECOND_NS), queue("b", guarantee_milli=1000))
    first, second = at.submit(gpus(1, queue="a")), at.submit(gpus(1, queue="a"))
    at.sleep(10)
    mine = at.submit(gpus(1, queue="b"))
    at.sleep(49)
    assert at.running == {first, second}
    at.sleep(1)
    assert at.running == {first, mine}


def test_minimum_run_within_a_queue() -> None:
    at = shell(1, queue(policy="priority", min_run_ns=60 * SECOND_NS))
    low, high = at.submit(gpus(1)), at.submit(gpus(1, priority=1))
    at.sleep(59)
    assert at.running == {low}
    at.sleep(1)
    assert at.running == {high}


def test_a_child_without_guarantee_has_its_teams() -> None:
    queues = (queue("team", guarantee_milli=2000), queue("ann", parent="team"), queue("other"))
    at = shell(2, *queues)
    at.submit(gpus(2, queue="other"))
    mine = at.submit(gpus(2, queue="ann"))
    assert at.running == {mine}


def test_a_parents_own_jobs_leave_its_children_their_guarantee() -> None:
    queues = (queue("team", guarantee_milli=3000), queue("ann", parent="team", guarantee_milli=1000), queue("other"))
    at = shell(5, *queues)
    at.submit(gpus(2, queue="other", preemptible=False))
    own = [at.submit(gpus(1, queue="team")) for _ in range(3)]
    mine = at.submit(gpus(1, queue="ann"))
    assert at.running == {1, *own[:2], mine}


def test_history_decides_between_equals_and_fades() -> None:
    at = shell(1, queue("a"), queue("b"))
    job = at.submit(gpus(1, queue="a"))
    at.sleep(3600)
    other, mine = at.submit(gpus(1, queue="a")), at.submit(gpus(1, queue="b"))
    at.end(job)
    assert at.running == {mine}
    assert at.state(other) == "pending"


def test_decay_halves_with_each_half_life() -> None:
    one = 1 << 62
    assert decay(0, HOUR_NS) == one
    assert abs(decay(HOUR_NS, HOUR_NS) - one // 2) <= 1
    assert abs(decay(HOUR_NS // 2, HOUR_NS) / one - 0.5**0.5) < 1e-9
    assert abs(decay(12345678901234, HOUR_NS) / one - 0.5 ** (12345678901234 / HOUR_NS)) < 1e-9
    assert decay(100 * HOUR_NS, HOUR_NS) == 0


def test_history_is_a_moving_average() -> None:
    at = shell(2, queue())
    at.submit(gpus(2))
    at.sleep(7 * 86400)
    at.end(1)
    assert at.machine.history("default", at.now_ns) == 1000 << HISTORY_BITS
    at.sleep(7 * 86400)
    assert at.machine.history("default", at.now_ns) == 500 << HISTORY_BITS


def test_what_was_used_before_a_restart_counts() -> None:
    at = shell(1, queue("a"), queue("b"))
    week_ns = 7 * 86400 * SECOND_NS
    at.now_ns = 3 * week_ns
    at.machine.remember({"a": 800 << HISTORY_BITS, "gone": 1}, 2 * week_ns)
    at.restore([])
    assert at.machine.history("a", at.now_ns) == 400 << HISTORY_BITS
    wall = at.submit(gpus(1, queue="b"))
    first, second = at.submit(gpus(1, queue="a")), at.submit(gpus(1, queue="b"))
    at.end(wall)
    assert second in at.running and at.state(first) == "pending"


def test_slices_that_are_no_jobs_count() -> None:
    at = shell(4, queue(limit_milli=3000))
    at.send(RoomChanged("n", (("all", 2000, 0),), ("all",), (("default", 2000, 0, 0),)))
    at.submit(gpus(1))
    job = at.submit(gpus(1))
    assert at.running == {1}
    assert (
        at.reason(job) == "queue default has 3 of its limit of 3 GPUs in use, and this needs 1"
        "; in use by job 1 (1 GPU), slices (2 GPU)"
    )
    denied = at.machine.check_direct("default", 500)
    assert denied is not None and denied.message == (
        "queue default has 3 of its limit of 3 GPUs in use, and this needs 0.5; in use by job 1 (1 GPU), slices (2 GPU)"
    )
    at.send(RoomChanged("n", (), ("all",), ()))
    assert at.running == {1, job}
    assert at.machine.check_direct("default", 1000) is None


def test_queues_change_live() -> None:
    at = shell(2, queue())
    low, other = at.submit(gpus(1)), at.submit(gpus(1))
    high = at.submit(gpus(2, priority=1))
    assert at.running == {low, other}
    at.send(QueuesChanged((queue(policy="priority"),)))
    assert at.running == {high}
    at.send(QueuesChanged((queue(policy="priority", limit_milli=1000),)))
    at.end(high)
    assert at.running == {low}


@pytest.mark.parametrize(
    ("queues", "says"),
    [
        ((queue(), queue()), "there are two queues 'default'"),
        ((queue(parent="x"),), "its parent 'x' is not another queue"),
        ((queue("a"), queue("b", parent="a"), queue("c", parent="b")), "queues are nested once"),
        ((queue(guarantee_milli=-1),), "a guarantee of -0.001 GPUs"),
        ((queue(guarantee_milli=2, limit_milli=1),), "its limit of 0.001 GPUs is below its guarantee"),
        ((queue(weight=0),), "weight 0 is out of range"),
        ((queue(min_run_ns=-1),), "the minimum run"),
        ((queue("a"), queue("b", parent="a", guarantee_milli=5)), "the queues below a guarantee 0.005 GPUs, itself"),
    ],
)
def test_queues_that_are_invalid_are_refused(queues: tuple[QueueSpec, ...], says: str) -> None:
    denied = check_queues(queues)
    assert denied is not None and says in denied.message and "\n" not in denied.message


def test_queues_in_use_are_not_moved_or_removed_and_guarantees_must_fit() -> None:
    at = shell(2, queue("a"), queue("b"))
    at.submit(gpus(1, queue="a"))
    denied = at.machine.check_queues((queue("b"),))
    assert denied is not None and "queue a is in use by job 1" in denied.message
    denied = at.machine.check_queues((queue("a"), queue("b", guarantee_milli=3000)))
    assert denied is not None and "all guarantees together are 3 GPUs, there are 2" in denied.message
    assert at.machine.check_queues((queue("a"), queue("b", guarantee_milli=2000), queue("c"))) is None


def test_what_a_claim_has_used_is_known_when_it_is_held() -> None:
    at = shell(1, queue(), queue("team", guarantee_milli=1000), slow=True)
    at.submit(gpus(1))
    claims = at.submit(gpus(1, queue="team"))
    at.sleep(3600)
    used = at.machine.history("team", at.now_ns)
    at.send(Held(claims))
    assert used and at.machine.history("team", at.now_ns) == used


def test_a_job_that_asks_for_no_guaranteed_time_reclaims_no_capacity() -> None:
    """Memory alone is guaranteed to no queue: a queue with a guarantee of 0 is never below it."""
    device = make_small_device()
    cluster = Cluster([Node("n", (device,))])
    at = Shell(Machine((queue(), queue("team"), queue("mine", guarantee_milli=500)), cluster, make_policy))
    theirs = at.submit(gpus(1, queue="team"))
    for name in ("default", "mine"):
        ask = Ask(Spec(1000, min_milli=0, mem_min_bytes=16 << 30, mem_max_bytes=16 << 30))
        at.submit(JobSpec(ask, queue=name))
    assert at.running == {theirs}


def test_what_is_guaranteed_beside_a_job_that_cannot_be_preempted_is_named_wherever_it_is() -> None:
    """In other queues, in those below its own, and in those beside it."""
    team = queue("team", guarantee_milli=2000)
    low = [queue(name, parent="team", guarantee_milli=milli) for name, milli in (("ann", 700), ("bob", 300))]
    for name, others in (("team", "1.5"), ("ann", "0.8"), ("default", "2")):
        at = shell(4, queue(guarantee_milli=500), team, *low)
        running = at.submit(gpus(2, queue=name, preemptible=False))
        behind = at.submit(gpus(2, queue=name, preemptible=False))
        assert at.running == {running}
        assert f"others are guaranteed {others} of 4 GPUs" in at.reason(behind)
