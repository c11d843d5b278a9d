"""What holds of worker groups whatever happens to them, and in whatever order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.elastic.worker_world import World, place, places
from vgpud.core.elastic import worker_events as we
from vgpud.core.elastic.worker_group import WorkerState
from vgpud.core.jobs.model import JobState

LEAST, MOST = 1, 5
ACTIONS = ("hello", "join", "lose", "fail", "die", "leave", "straggle", "resize", "unstartable", "suspend", "resume")
ACTIONS += ("sleep", "restart", "stop")

steps = st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 7)), max_size=40)


class Chance(World):
    """What may happen, whenever it may. `worker_target`: workers that the queue counts, while nothing has failed."""

    def __init__(self) -> None:
        super().__init__(2, retries=3)
        self.worker_target = 2
        self.is_disturbed = False  # a start has failed, or a worker went while no other could start

    def act(self, action: str, number: int) -> None:
        running = sorted(self.running)
        worker = running[number % len(running)] if running else -1
        match action:
            case "hello" if worker >= 0 and not self.worker(worker).done:
                self.hello(worker, self.group.generation * (number % 2))
            case "join":
                self.join_all()
            case "lose" if worker >= 0:
                self.say(worker, has_lost_peers=True)
            case "fail" if worker >= 0:
                self.ends(worker, 3)
            case "die" if worker >= 0 and worker in self.stopped_workers:
                self.ends(worker, 143, is_stopped=True)
            case "leave" if worker >= 0 and self.worker(worker).leaving:
                self.ends(worker, 0)
            case "straggle" if worker >= 0:
                self.send(we.Straggling(worker, "slow", place("b") if number % 2 else None))
            case "resize" if self.job.state is JobState.RUNNING and not self.group.ending:
                self.worker_target = LEAST + number % MOST
                self.send(we.Resize(places("abcde"[: self.worker_target]), "x"))
            case "unstartable":
                self.unstartable.add(self.group.next_number)
            case "suspend" | "resume":
                self.job.state = JobState.SUSPENDED if action == "suspend" else JobState.RUNNING
            case "sleep":
                self.sleep(200 * number)
            case "restart":
                self.restart()
            case "stop" if number == 0:
                self.send(we.StopAll())

    def join_all(self) -> None:
        if self.group.members:
            self.say(self.group.members[0], store="127.0.0.1:5")
        for member in set(self.group.members) & self.live.streams:
            self.say(member, has_joined=True)

    def restart(self) -> None:
        """Another daemon finds what the disk has, and the processes; their streams come back."""
        other = World(2, record=self.disk, retries=3)
        assert other.group == self.group, "nothing is decided that is not saved"
        other.job = self.job
        self.live, self.mail = other.live, {}
        self.live.job = self.job
        self.send(we.Adopted(running=tuple(self.running)))

    def carry_on(self) -> None:
        """Nothing else happens until all is done that was to be done."""
        self.job.state = JobState.RUNNING
        for _ in range(4 * MOST):
            for number in sorted(self.running - self.live.streams):
                self.hello(number, self.group.generation)
            self.join_all()
            for number in sorted(self.running):
                worker = self.group.worker(number)
                if worker and (worker.leaving or self.group.ending or self.group.is_finished):
                    self.ends(number, 0, is_stopped=self.group.ending)
            self.sleep(100)


@given(steps)
def test_groups_keep_their_promises(steps: list[tuple[str, int]]) -> None:
    world = Chance()
    world.begin(0, 1)
    generation = 1
    for action, number in steps:
        if not world.running:
            break
        started = len(world.started_workers)
        world.act(action, number)
        group = world.group
        numbers = [worker.number for worker in group.workers]
        assert len(set(numbers)) == len(numbers) and len(set(group.members)) == len(group.members), "one of each rank"
        assert group.generation >= generation, "generations only grow"
        generation = group.generation
        assert set(group.members) <= set(range(group.next_number))
        assert sum(worker.state is WorkerState.STAND_IN for worker in group.workers) <= 1, "one stand-in at a time"
        if len(world.started_workers) > started:
            assert world.job.state is JobState.RUNNING, "none starts while the job is suspended"
        world.is_disturbed |= (
            bool(world.unstartable & set(world.started_workers)) or world.job.state is not JobState.RUNNING
        )
        if not (world.is_disturbed or group.ending or group.is_finished):
            assert len(group.retained_workers) == world.worker_target, (
                "never fewer than the queue counts, unless something failed"
            )
        for worker in world.started_workers:
            assert (
                worker in world.unstartable
                or worker in world.running
                or group.worker(worker) is None
                or group.is_finished
            )
    ended_before = world.end_count
    world.carry_on()
    group = world.group
    if world.running:
        works = {worker.number for worker in group.workers if worker.works}
        assert set(group.members) == works == world.live.joined_workers == world.running, (
            "all that started have joined or gone"
        )
        assert group.placement == tuple(worker.place for worker in group.workers)
        assert world.live.resize_problem is None, "the queue has its answer"
    else:
        assert group.ending or group.is_finished or not group.workers
        assert world.end_count >= 1 or ended_before
