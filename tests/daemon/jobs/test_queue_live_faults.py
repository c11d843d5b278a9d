"""The live queue when something fails: daemons that die between two steps, failing starts, limits, lost capacity."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.api.asker import Asker
from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.jobs.test_queue_live import catch_refusal
from tests.daemon.node import Node, wait_until
from vgpud.core import events as ev
from vgpud.core import origins
from vgpud.core.checksums import unseal
from vgpud.core.jobs import session
from vgpud.core.jobs.model import Ask, Job, JobSpec, JobState, QueueSpec
from vgpud.core.model import EVICTED, PAUSED, Denied, Drain, Reason, Slice, Spec, State
from vgpud.core.policy.level_table import JOB
from vgpud.daemon.jobs import attempts, controller
from vgpud.daemon.jobs.attempts import JobAttempts
from vgpud.daemon.jobs.controller import JobController
from vgpud.daemon.jobs.locks import JobLocks
from vgpud.daemon.jobs.saver import JobSaver
from vgpud.daemon.jobs.slices import JobSlices
from vgpud.daemon.jobs.submissions import FREE_OF_GPUS_MAX
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.jobs.messages import Result
from vgpud.store.database import FILE_NAME, Store
from vgpud.store.jobs import JobStore
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(MISSING, reason="the simulated driver or vgpu-job is not built: run make")


@pytest.fixture
def queue(node: Node) -> Iterator[QueueNode]:
    with queue_node(node) as made:
        yield made.start()


def change(queue: QueueNode, job_id: int, **fields: Any) -> None:
    """Has the database say something else of a job, as it would if the daemon had been killed at another point."""
    store = Store(queue.node.state)
    jobs = JobStore(store)
    found = jobs.find(job_id)
    assert found
    jobs.save([replace(found, **fields)])
    store.close()


def test_a_decision_to_start_that_was_saved_and_no_more_is_carried_out_once(queue: QueueNode) -> None:
    (first,) = queue.submit("while [ ! -e go ]; do sleep 0.02; done", 500)
    (job_id,) = queue.submit("echo $VGPU_JOB_ATTEMPT >> ran", 500, hold=True)
    queue.until(first, "running")
    queue.node.stop(signal.SIGKILL)
    jobs = Store(queue.node.state)
    placed = JobStore(jobs).find(first)
    assert placed
    jobs.close()
    change(queue, job_id, state=JobState.RUNNING, attempt=1, started_ns=placed.started_ns, placement=placed.placement)
    queue.start()
    assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED
    queue.restart(signal.SIGKILL)
    assert queue.read_file("ran") == "1\n"
    (queue.work / "go").touch()
    assert queue.wait_for_end(first).state == pb.JOB_STATE_COMPLETED
    assert queue.node.names() == []


def test_one_that_was_ordered_to_end_is_ordered_again(queue: QueueNode) -> None:
    (job_id,) = queue.submit("sleep 1000", 500)
    (again,) = queue.submit("echo $VGPU_JOB_ATTEMPT >> ran; while [ ! -e go ]; do sleep 0.02; done", 500)
    queue.until(job_id, "running")
    wait_until(lambda: queue.read_file("ran"), "its first attempt")
    queue.node.stop(signal.SIGKILL)
    change(queue, job_id, stopping="cancelled by its owner", stop_to=JobState.CANCELLED)
    change(queue, again, stopping="job 9 needs the room", stop_to=JobState.SUSPENDED)
    queue.start()
    job = queue.wait_for_end(job_id)
    assert (job.state, job.reason) == (pb.JOB_STATE_CANCELLED, "cancelled by its owner")
    wait_until(lambda: queue.get(again).preemptions == 1, "it makes room, although nobody needs it any more")
    assert queue.until(again, "running").attempt == 1
    (queue.work / "go").touch()
    assert queue.wait_for_end(again).state == pb.JOB_STATE_COMPLETED
    assert queue.read_file("ran") == "1\n"


@pytest.mark.parametrize("code", [0, 9])
def test_one_that_ends_because_the_former_daemon_stopped_it_is_started_again(queue: QueueNode, code: int) -> None:
    """It was preempted by SIGTERM, and takes its time; the daemon that sent it is killed meanwhile. A job that saves
    its state then exits with 0, and has not completed."""
    tidies = f'trap "sleep 1.5; exit {code}" TERM; while :; do sleep 0.05; done'
    (job_id,) = queue.submit(f"echo $VGPU_JOB_ATTEMPT >> ran; [ $VGPU_JOB_ATTEMPT = 2 ] || {{ {tidies}; }}", 500)
    wait_until(lambda: queue.read_file("ran"), "its first attempt")
    queue.node.stop(signal.SIGKILL)
    begun = (queue.node.state / "jobs" / f"{job_id}.1" / "begun").read_text()
    (supervisor,) = [int(line.split()[1]) for line in begun.splitlines() if line.startswith("pid ")]
    os.kill(supervisor, signal.SIGTERM)
    change(queue, job_id, stopping="job 9 needs the room", stop_to=JobState.SUSPENDED)
    queue.start()
    job = queue.wait_for_end(job_id)
    assert (job.state, job.attempt) == (pb.JOB_STATE_COMPLETED, 2)
    assert queue.read_file("ran") == "1\n2\n"


def test_slices_without_their_job_go_at_the_next_start(queue: QueueNode) -> None:
    (job_id,) = queue.submit("while [ ! -e go ]; do sleep 0.02; done", 500)
    queue.until(job_id, "running")
    wait_until(lambda: queue.node.names(), "its slice")
    queue.node.stop(signal.SIGKILL)
    (queue.work / "go").touch()
    change(queue, job_id, state=JobState.COMPLETED, ended_ns=1 << 61, placement=())
    queue.start()
    assert queue.node.names() == []
    assert queue.get(job_id).state == pb.JOB_STATE_COMPLETED


def test_what_cannot_be_started_fails_with_the_reason(queue: QueueNode) -> None:
    (job_id,) = queue.submit("true", 500, directory="/nonexistent")
    job = queue.wait_for_end(job_id)
    assert job.state == pb.JOB_STATE_FAILED
    assert "/nonexistent" in job.reason
    assert queue.node.names() == []


def test_no_user_fills_the_daemons_memory(node: Node) -> None:
    with queue_node(node, jobs_per_user_max="5") as queue:
        queue.start()
        queue.submit("true", 100, hold=True, array_indices=range(1, 5))
        code, text = catch_refusal(lambda: queue.submit("true", 100, array_indices=[1, 2]))
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "4 jobs that have not ended" in text
        queue.restart(signal.SIGKILL)
        queue.submit("true", 100, hold=True)
        assert catch_refusal(lambda: queue.submit("true", 100))[0] is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_no_user_has_any_number_of_jobs_without_gpus(queue: QueueNode) -> None:
    balancer = {"session": session.BALANCER, "command": session.balancer_command(sys.executable, str(queue.work))}
    for _ in range(FREE_OF_GPUS_MAX):
        queue.submit("", 0, hold=True, **balancer)
    code, text = catch_refusal(lambda: queue.submit("", 0, **balancer))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and f"{FREE_OF_GPUS_MAX} jobs without GPUs" in text
    queue.submit("true", 100)


def test_nothing_new_is_placed_on_a_drained_device(queue: QueueNode) -> None:
    device = queue.node.nodes.ListDevices(pb.ListDevicesRequest()).devices[0]
    queue.node.nodes.DrainDevice(pb.DrainDeviceRequest(device_uuid=device.uuid, reason="dust"))
    (one,) = queue.submit("while [ ! -e go ]; do sleep 0.02; done", 800)
    (two,) = queue.submit("true", 800)
    assert list(queue.until(one, "running").device_indices) in ([], [1])
    assert queue.get(two).state == pb.JOB_STATE_PENDING
    queue.node.nodes.UndrainDevice(pb.UndrainDeviceRequest(device_uuid=device.uuid))
    assert queue.wait_for_end(two).state == pb.JOB_STATE_COMPLETED
    (queue.work / "go").touch()


def test_steps_of_one_job_never_overlap() -> None:
    """Three callers, one after another, the third while the second has been let in but does not run yet."""
    attempts = JobAttempts.__new__(JobAttempts)
    attempts._locks = JobLocks()
    inside: list[int] = []
    order: list[int] = []

    async def step(number: int) -> None:
        async with attempts.job_lock(7):
            inside.append(number)
            assert len(inside) == 1
            await asyncio.sleep(0)
            order.append(inside.pop())

    async def all_of_them() -> None:
        tasks = [asyncio.create_task(step(1)), asyncio.create_task(step(2))]
        for number in range(3, 9):
            await asyncio.sleep(0)
            tasks.append(asyncio.create_task(step(number)))
        await asyncio.gather(*tasks)

    asyncio.run(all_of_them())
    assert order == list(range(1, 9))
    assert not attempts._locks._locks


class Suspending:
    """The daemon, as far as it suspends the two slices of gang 7, of which the second is refused `refusals` times: the
    queue's host, its machine, events and suspension in one."""

    def __init__(self, refusals: int) -> None:
        self.state = State()
        for origin in (origins.Job(7, 0), origins.Job(7, 1)):
            name = origin.slice_name()
            self.state.slices[name] = Slice(origin, name, 1, Spec(500), (), 0, 0, suspended=EVICTED)
        self.slices = self.events = self
        self.refusals = refusals
        self.notes: list[ev.Log] = []

    def note(self, entry: ev.Log) -> None:
        self.notes.append(entry)

    async def suspend(self, name: str, evict: bool, job_id: int) -> Slice:
        return self._now(name, EVICTED if evict else PAUSED)

    async def resume(self, name: str, job_id: int) -> Slice | Denied:
        if name.endswith("1") and self.refusals:
            self.refusals -= 1
            return Denied(Reason.UNAVAILABLE, "the disk is full")
        return self._now(name, "")

    def _now(self, name: str, suspended: str) -> Slice:
        self.state.slices[name] = replace(self.state.slices[name], suspended=suspended)
        return self.state.slices[name]


def test_a_gang_continues_as_a_whole_and_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attempts, "RESUME_S", 0.01)
    jobs = JobController.__new__(JobController)
    made = JobAttempts.__new__(JobAttempts)
    made._locks, made._jobs = JobLocks(), jobs
    host: Any = Suspending(2)
    jobs.host, jobs.slices = host, JobSlices(host, host, lambda: 0)
    jobs.machine, jobs.clock, jobs.elastic, jobs.saver = MagicMock(), MagicMock(), MagicMock(), MagicMock()
    job = Job(7, JobSpec(Ask(Spec(500)), members=2), 0, state=JobState.RUNNING, attempt=1)
    denied = asyncio.run(jobs.slices.resume(job))
    assert denied and [made.suspended for made in host.state.slices.values()] == [EVICTED, EVICTED]
    asyncio.run(made._resume_found(job))
    assert [made.suspended for made in host.state.slices.values()] == ["", ""]
    (note,) = host.notes
    assert note.message == "job 7: it could not be resumed, trying again: the disk is full"


def test_a_daemon_that_starts_does_not_wait_for_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd would end it: a job that continues from the host's memory takes as long as it takes."""
    monkeypatch.setattr(controller, "SETTLE_S", 0.05)
    jobs = JobController.__new__(JobController)
    decided: list[str] = []
    for name in ("_drop_orphans", "_carry_out", "_look_at_capacity"):
        monkeypatch.setattr(jobs, name, lambda *_: None)
    monkeypatch.setattr(jobs, "process_events", lambda *_: decided.append("room"))
    jobs.machine, jobs.clock, jobs.progress = MagicMock(), MagicMock(), MagicMock()
    jobs.attempts = MagicMock(runner=AsyncMock())
    jobs.store, jobs.saver = MagicMock(), MagicMock(has_all_jobs=True)
    jobs.notifier, jobs.reservations, jobs._pending = AsyncMock(), MagicMock(), []
    jobs._kept, jobs._histories, jobs._history_at_ns = (), {}, 0

    async def start() -> None:
        hangs = asyncio.create_task(asyncio.sleep(1000))
        jobs._tasks = {hangs}  # type: ignore[arg-type]
        await asyncio.wait_for(jobs.start(), 30)
        assert not hangs.done()
        hangs.cancel()

    asyncio.run(start())
    assert decided and jobs.attempts.runner.note_boot.await_count == 1


def test_what_an_attempt_used_is_counted_once(tmp_path: Path) -> None:
    """Also if the daemon is killed between its result and its end, and the next one finds the result again."""
    jobs: Any = SimpleNamespace(store=JobStore(Store(tmp_path)))
    made = JobAttempts.__new__(JobAttempts)
    made._jobs = jobs
    job = Job(3, JobSpec(Ask(Spec(500))), 0, attempt=1)
    jobs.store.save([job])
    for _ in range(2):
        made._add_resource_use(job, Result(0, cpu_ns=5, ram_peak_bytes=9))
    job.attempt = 2
    made._add_resource_use(job, Result(0, cpu_ns=7, ram_peak_bytes=1))
    facts = jobs.store.facts(3)
    assert (facts["cpu_ns"], facts["ram_peak_bytes"]) == (12, 9)


def test_fair_shares_outlive_the_daemon(queue: QueueNode) -> None:
    (job_id,) = queue.submit("sleep 1.5", 2000)
    queue.wait_for_end(job_id)

    def history() -> float:
        return queue.queues.ListQueues(pb.ListQueuesRequest()).queues[0].history_gpu_seconds

    before = history()
    assert 2.5 < before < 10
    queue.restart(signal.SIGTERM)
    assert 0.99 * before < history() <= before


def count_learnt_jobs(queue: QueueNode) -> float:
    """By the database, how many ended jobs the order of the queue has learnt from."""
    with contextlib.closing(sqlite3.connect(queue.node.state / FILE_NAME)) as db:
        (body,) = db.execute("SELECT body FROM queue_orders WHERE queue = 'default'").fetchone()
    return float(unseal(body)["knowledge"]["all"]["jobs"] / JOB)


def test_what_an_order_has_learnt_outlives_the_daemon(queue: QueueNode) -> None:
    """Jobs that ended after it was written as well: the daemon was killed."""
    for job_id in [queue.submit("true")[0] for _ in range(2)]:
        queue.wait_for_end(job_id)
    queue.restart(signal.SIGTERM)
    assert 1.9 < count_learnt_jobs(queue) <= 2
    queue.wait_for_end(queue.submit("true")[0])
    queue.restart(signal.SIGKILL)
    queue.restart(signal.SIGTERM)
    assert 2.9 < count_learnt_jobs(queue) <= 3


def test_where_that_is_damaged_it_begins_again(queue: QueueNode) -> None:
    queue.wait_for_end(queue.submit("true")[0])
    queue.node.stop(signal.SIGTERM)
    with contextlib.closing(sqlite3.connect(queue.node.state / FILE_NAME, isolation_level=None)) as db:
        db.execute("UPDATE queue_orders SET body = replace(body, 'costs', 'coasts')")
    queue.start()
    queue.wait_for_end(queue.submit("true")[0])
    queue.restart(signal.SIGTERM)
    assert count_learnt_jobs(queue) == 1


@contextlib.contextmanager
def held_database(queue: QueueNode) -> Iterator[None]:
    """Another process writes into the database and does not end."""
    with contextlib.closing(sqlite3.connect(queue.node.state / FILE_NAME, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


def test_the_history_is_saved_when_the_database_is_held_for_a_moment_at_the_end(tmp_path: Path) -> None:
    """A flush holds it when jobs have just ended, too."""
    store = Store(tmp_path)
    jobs = JobController.__new__(JobController)
    vars(jobs).update(_timer=None, _tasks=set(), attempts=MagicMock(), progress=MagicMock(), _recorder=MagicMock())
    vars(jobs).update(notifier=MagicMock())
    queues = MagicMock(unsaved_rows=(), specs=[QueueSpec("default")])
    vars(jobs).update(_histories={}, _saved_orders={}, queues=queues, store=JobStore(store))
    vars(jobs).update(saver=JobSaver(jobs.store, MagicMock(), queues, MagicMock(), 1))
    vars(jobs).update(machine=MagicMock(history=lambda name, now_ns: 7), clock=MagicMock(now_ns=lambda: 5))

    async def stop() -> None:
        with contextlib.closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            asyncio.get_running_loop().call_later(0.05, other.execute, "ROLLBACK")
            await jobs.stop()

    asyncio.run(stop())
    assert jobs.store.load().histories == {"default": 7}
    store.close()


def test_what_was_decided_while_the_database_was_held_is_saved_at_the_end(tmp_path: Path) -> None:
    store = Store(tmp_path)
    machine = SliceMachine(store, MagicMock())
    kept = ev.SaveDrain(Drain("a device", "it has failed", by_fault=True))
    machine._unsaved.append(kept)
    store.erase()
    asyncio.run(machine.save_rest())
    assert store.load(10).drains == (kept.drain,)
    assert not store.needs_flush, "what a job has left behind is gone from the files"
    store.close()


def test_nothing_is_half_queued_while_the_database_cannot_be_written(queue: QueueNode) -> None:
    """What is asked for is refused and never runs; what ends meanwhile is kept in mind, and written when it can be."""
    (running,) = queue.submit("while [ ! -e go ]; do sleep 0.02; done; exit 4", 500)
    queue.until(running, "running")
    wait_until(lambda: queue.node.names(), "its slice")
    with held_database(queue):
        code, text = catch_refusal(lambda: queue.submit("touch ran", 500, "again", array_indices=[1, 2, 3]))
        assert code is grpc.StatusCode.UNAVAILABLE
        assert "nothing was changed" in text
        (queue.work / "go").touch()
        assert queue.wait_for_end(running).exit_code == 4
    wait_until(
        lambda: all(job.state == pb.JOB_STATE_CANCELLED for job_id, job in queue.all().items() if job_id != running),
        "the end of what was refused",
    )
    wait_until(lambda: not queue.node.names(), "the end of its slice")
    (after,) = queue.submit("touch after", 500)
    assert queue.wait_for_end(after).state == pb.JOB_STATE_COMPLETED
    queue.restart(signal.SIGKILL)
    assert queue.get(running).exit_code == 4
    assert not (queue.work / "ran").exists()
    again = queue.submit("touch ran", 500, "again", array_indices=[1, 2, 3])
    assert {queue.wait_for_end(job_id).state for job_id in again} == {pb.JOB_STATE_COMPLETED}, (
        "as clients do by themselves"
    )
    assert again == queue.submit("touch ran", 500, "again", array_indices=[1, 2, 3])


def test_who_is_held_up_for_a_moment_notices_nothing(queue: QueueNode) -> None:
    end = Timestamp()
    end.GetCurrentTime()
    hour = pb.Reservation(name="night", device_uuids=["0"], end_time={"seconds": end.seconds + 3600})
    requests: list[Callable[[], object]] = [
        lambda: queue.submit("touch ran", 500),
        lambda: queue.queues.SetQueue(pb.SetQueueRequest(queue=pb.Queue(name="team"))),
        lambda: queue.queues.DeleteQueue(pb.DeleteQueueRequest(name="team")),
        lambda: queue.queues.CreateReservation(pb.CreateReservationRequest(reservation=hour)),
        lambda: queue.queues.DeleteReservation(pb.DeleteReservationRequest(name="night")),
    ]
    with ThreadPoolExecutor(1) as pool:
        for request in requests:
            with held_database(queue):
                asked = pool.submit(request)
                time.sleep(0.3)
                assert not asked.done()
            asked.result(30)
    wait_until(lambda: queue.read_file("ran") == "" and (queue.work / "ran").exists(), "the job's end")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to ask as another user")
def test_users_make_slices_as_the_site_says_and_jobs_anyway(node: Node) -> None:
    """direct = "deny": a user's slice is refused, the user's job has one; an admin's is made."""
    with queue_node(node, direct='"deny"', socket_mode='"0666"') as queue:
        queue.start()
        node.directory.chmod(0o755)
        queue.work.chmod(0o777)
        asker = Asker(f"unix:{queue.node.runtime / 'vgpud.sock'}", "64001:64001")
        try:
            asked = pb.CreateSliceRequest(name="mine", spec=pb.SliceSpec(gpus_milli=100))
            code, text, _ = asker.ask("/vgpud.v1alpha1.SliceService/CreateSlice", "unary_unary", asked)
            assert code == "PERMISSION_DENIED"
            assert "vgpu submit" in text
            request = pb.SubmitJobRequest(spec=queue.spec("id -u > who", 500))
            code, text, raw = asker.ask("/vgpud.v1alpha1.JobService/SubmitJob", "unary_unary", request)
            assert code == "OK", text
        finally:
            asker.close()
        (job_id,) = pb.SubmitJobResponse.FromString(raw).job_ids
        assert queue.wait_for_end(job_id).state == pb.JOB_STATE_COMPLETED, queue.get(job_id).reason
        assert queue.read_file("who") == "64001\n"
        assert queue.node.create("admins", 100).queue == "default"
