"""Reservations: devices that are for one queue, or for none, for a time."""

from __future__ import annotations

import pytest

from tests.core.placement.world import node
from tests.core.queue.world import Shell, gpus, make_policy, queue
from vgpud.core.jobs.events import (
    JobSuspended,
    ReservationsChanged,
    Reserve,
    Resumed,
    RoomChanged,
    StopJob,
    Suspended,
)
from vgpud.core.jobs.model import SECOND_NS, How, Job, JobSpec, Reservation
from vgpud.core.placement.cluster import Cluster
from vgpud.core.queue.machine import Machine

S = SECOND_NS


def shell(devices: int = 2, **fields: bool) -> Shell:
    queues = (queue(**fields), queue("team"), queue("ann", parent="team"))
    cluster = Cluster([node("n", devices)])
    return Shell(Machine(queues, cluster, make_policy, hows=(How.REQUEUE,)))


def reserve(at: Shell, *reservations: Reservation) -> None:
    at.send(ReservationsChanged(reservations))


def window(*devices: int, begin_s: int = 100, end_s: int = 200, **fields: str) -> Reservation:
    return Reservation("maint", "n", tuple(f"n/{i}" for i in devices), begin_s * S, end_s * S, **fields)


def devices(at: Shell, job_id: int) -> list[str]:
    return [share.device_uuid for place in at.job(job_id).placement for share in place.shares]


def test_no_job_that_would_end_in_the_window_starts_before_it() -> None:
    at = shell()
    reserve(at, window(0, 1))
    short = at.submit(gpus(1, time_limit_ns=100 * S))
    long = at.submit(gpus(1, time_limit_ns=101 * S))
    assert at.running == {short}
    assert at.reason(long) == (
        "reservation maint (for no job) begins in 1 min 40 s, and this job may run longer: it can start with"
        " a --time-limit that ends before then"
    )
    at.end(short)
    at.sleep(150)
    assert at.running == set()
    assert at.reason(long) == "its devices are kept by reservation maint (for no job), for another 50 s"
    at.sleep(50)
    assert at.running == {long}, "the window is over"


def test_other_devices_are_used_meanwhile() -> None:
    at = shell()
    reserve(at, window(0))
    jobs = [at.submit(gpus(0.5, duration_ns=1000 * S)) for _ in range(3)]
    assert [devices(at, job) for job in jobs] == [["n/1"], ["n/1"], []]


def test_a_job_of_unknown_duration_starts_and_is_requeued_when_the_window_begins() -> None:
    at = shell(1)
    reserve(at, window(0, reason="new cables"))
    job = at.submit(gpus(1))
    assert at.running == {job}
    at.sleep(99)
    assert at.running == {job}
    at.sleep(1)
    assert at.running == set() and at.state(job) == "pending"
    at.sleep(100)
    assert at.running == {job} and at.job(job).attempt == 2


def test_a_job_that_cannot_be_preempted_does_not_start_unless_it_ends_before() -> None:
    at = shell(1)
    reserve(at, window(0))
    at.submit(gpus(1, preemptible=False))
    assert at.running == set()
    ends = at.submit(gpus(1, preemptible=False, time_limit_ns=50 * S))
    assert at.running == {ends}


def test_one_that_runs_and_cannot_be_preempted_stays() -> None:
    at = shell(1)
    job = at.submit(gpus(1, preemptible=False))
    reserve(at, window(0))
    at.sleep(150)
    assert at.running == {job}


@pytest.mark.parametrize("hows", [(How.PAUSE, How.EVICT, How.REQUEUE), (How.PAUSE, How.REQUEUE)])
def test_one_that_its_user_has_suspended_is_not_started_again(hows: tuple[How, ...]) -> None:
    """What it keeps on the device moves to the host where that is possible."""
    at = Shell(Machine((queue(),), Cluster([node("n", 1)]), make_policy, hows=hows), slow=True)
    job = at.submit(gpus(1))
    at.send(Suspended(job))
    at.stops.clear()
    at.running.clear()
    at.send(JobSuspended(job, How.PAUSE))  # its memory could not be moved
    reserve(at, window(0))
    at.sleep(150)
    stops = [stop for stop in at.log if isinstance(stop, StopJob)]
    assert [stop.how for stop in stops[1:]] == [How.EVICT] * (How.EVICT in hows)
    at.answer_stops()
    assert at.state(job) == "suspended" and at.job(job).suspended_how is (How.EVICT if How.EVICT in hows else How.PAUSE)
    at.send(Resumed(job))
    assert at.running == set(), "its device is reserved"
    at.sleep(50)
    assert at.running == {job} and at.job(job).attempt == 1


def test_one_that_is_about_to_be_suspended_when_the_window_begins_is_not_started_again() -> None:
    at = Shell(Machine((queue(),), Cluster([node("n", 1)]), make_policy, hows=(How.PAUSE, How.EVICT)), slow=True)
    job = at.submit(gpus(1))
    reserve(at, window(0))
    at.sleep(99)
    at.send(Suspended(job))
    at.sleep(1)
    at.answer_stops()
    assert at.state(job) == "suspended" and at.job(job).attempt == 1


def test_the_queue_of_a_reservation_and_those_below_have_it() -> None:
    at = shell()
    reserve(at, window(0, 1, begin_s=0, queue="team"))
    other, team, ann = at.submit(gpus(0.5)), at.submit(gpus(0.5, queue="team")), at.submit(gpus(0.5, queue="ann"))
    assert at.running == {team, ann}
    assert at.reason(other).startswith("its devices are kept by reservation maint (for queue team), for another")


def test_a_strict_queue_does_not_stop_at_a_shape_that_only_some_of_its_jobs_fail_with() -> None:
    at = shell(1)
    before = [at.submit(gpus(1)), at.submit(gpus(1, time_limit_ns=500 * S)), at.submit(gpus(1, time_limit_ns=10 * S))]
    reserve(at, window(0))
    at.end(before[0])
    assert at.running == {before[2]}, "jobs that waited before the reservation was made are told apart as well"


def test_active_reservations_are_reported_once() -> None:
    at = shell()
    one = window(0)
    reserve(at, one)
    at.sleep(300)
    assert [command.active for command in at.log if isinstance(command, Reserve)] == [(one,), ()]


def test_a_reservation_that_is_removed_lets_jobs_start() -> None:
    at = shell(1)
    reserve(at, window(0))
    job = at.submit(gpus(1, time_limit_ns=500 * S))
    assert at.running == set()
    reserve(at)
    assert at.running == {job}


def test_devices_that_are_drained_stay_so() -> None:
    at = shell()
    at.send(RoomChanged("n", (), ("n/1",)))
    reserve(at, window(1))
    at.submit(gpus(1, time_limit_ns=500 * S))
    assert at.running == set()
    reserve(at, window(0))
    assert len(at.running) == 1 and devices(at, 1) == ["n/1"]


def test_a_restart_in_the_window() -> None:
    at = shell(1)
    job = at.submit(gpus(1, time_limit_ns=500 * S))
    after = shell(1)
    after.now_ns = 150 * S
    after.running = {job}
    saved: list[Job] = [at.job(job)]
    after.restore(saved)
    reserve(after, window(0))
    assert after.running == set() and after.state(job) == "pending"


@pytest.mark.parametrize(
    ("new", "says"),
    [
        (Reservation("a b", "n", ("n/0",), 0, S), "'a b' is not a name: write 1 to 40 letters, digits"),
        (Reservation("", "n", ("n/0",), 0, S), "'' is not a name"),
        (Reservation("b", "n", (), 0, S), "reservation 'b' has no device: name at least one"),
        (Reservation("b", "n", ("n/0",), 2 * S, S), "reservation 'b' ends before it begins: exchange the times"),
        (Reservation("b", "n", ("n/0",), 0, S // 2), "reservation 'b' has ended already: choose a later end"),
        (Reservation("b", "n", ("n/0",), S, S << 40), "at most a year is possible, drain the devices instead"),
        (
            Reservation("b", "n", ("n/0",), S, 2 * S, queue="x"),
            "there is no queue 'x': choose one of ann, default, team",
        ),
        (Reservation("b", "n", ("n/0",), S, 2 * S, reason="a\nb"), "is not one line of at most 200 bytes"),
        (window(1), "there is a reservation 'maint' already: choose another name"),
        (Reservation("b", "n", ("n/0",), 150 * S, 300 * S), "reservation 'maint' has 1 of these devices at that time"),
    ],
)
def test_reservations_that_are_refused(new: Reservation, says: str) -> None:
    at = shell()
    reserve(at, window(0))
    denied = at.machine.check_reservation(new, S)
    assert denied is not None and says in denied.message and "\n" not in denied.message


def test_reservations_after_each_other_are_none_too_many() -> None:
    at = shell()
    reserve(at, window(0))
    assert at.machine.check_reservation(Reservation("b", "n", ("n/0",), 200 * S, 300 * S), S) is None
    spec: JobSpec = gpus(1)
    assert at.machine.check(spec) is None
