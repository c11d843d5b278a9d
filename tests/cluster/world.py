"""A controller over the fake Slurm, with a store in memory: killed and recreated from what was saved."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tests.cluster.fake_slurm import FakeSlurm
from vgpud.cluster.core.controller import HOWS, Controller
from vgpud.cluster.core.look import Decided
from vgpud.cluster.core.model import Binding, Settings
from vgpud.core.jobs.events import Command, Event
from vgpud.core.jobs.model import SECOND_NS, Job, JobState, QueueSpec
from vgpud.core.model import SiteLimits
from vgpud.core.placement.cluster import Cluster
from vgpud.core.policy import registry
from vgpud.core.queue.machine import TRIES_MAX, Machine, members_max
from vgpud.core.queue.record import decode, encode, to_plain
from vgpud.simulate.replay import Recording, Step

SITE = SiteLimits(slices_max=1 << 40)
PLAIN = (QueueSpec("default", min_run_ns=0),)


class World:
    def __init__(
        self, slurm: FakeSlurm, queues: tuple[QueueSpec, ...] = PLAIN, settings: Settings | None = None
    ) -> None:
        self.slurm = slurm
        self.queues = queues
        self.settings = settings or Settings()
        self.now_ns = 1_000 * SECOND_NS
        self.jobs: dict[int, Any] = {}  # saved, as JSON
        self.bindings: dict[str, Binding] = {}
        self.next_id = 1
        self.ended_jobs: list[tuple[str, Job]] = []
        self.steps: list[Step] = []
        self.last = Decided()
        self.controller = self._make_controller()

    def _make_controller(self) -> Controller:
        machine = Machine(
            self.queues,
            Cluster((), SITE),
            registry.make,
            hows=HOWS,
            members_max=members_max(SITE),
            tries_max=TRIES_MAX,
        )
        return Controller(machine, {queue.name for queue in self.queues}, self.settings, self._hear)

    def _hear(self, at_ns: int, events: Sequence[Event], commands: Sequence[Command]) -> None:
        plain = tuple(json.loads(json.dumps(to_plain(command))) for command in commands)
        self.steps.append(Step(at_ns, tuple(events), plain))

    def look(self, passed_s: float = 2.0, queues: tuple[QueueSpec, ...] = ()) -> Decided:
        """One turn of the controller; Slurm executes the decisions, and then does what it can."""
        self.now_ns += int(passed_s * SECOND_NS)
        self.slurm.pass_to(self.now_ns)
        made = self.controller.step(self.slurm.snapshot(), self.now_ns, queues)
        for _, fault in made.faults:
            raise fault
        self._save(made)
        for order in made.orders:
            self.slurm.tell(order)
        self.slurm.schedule()
        self.last = made
        return made

    def _save(self, decision: Decided) -> None:
        for job_id, job in decision.jobs.items():
            self.jobs[job_id] = json.loads(json.dumps(encode(job)))
        for key, binding in decision.bindings.items():
            if binding is None:
                self.bindings.pop(key, None)
            else:
                self.bindings[key] = replace(binding)
        for _, job in decision.ended_jobs:
            self.jobs.pop(job.job_id, None)
        self.ended_jobs += decision.ended_jobs
        self.next_id = self.controller.next_id

    def kill(self) -> None:
        """The controller is gone with everything that was not saved; another one begins."""
        self.controller = self._make_controller()
        jobs = [decode(Job, body) for body in self.jobs.values()]
        self.steps.clear()
        self.controller.restore(jobs, [replace(one) for one in self.bindings.values()], self.next_id, self.now_ns)

    def looks(self, count: int, passed_s: float = 2.0) -> None:
        for _ in range(count):
            self.look(passed_s)

    def job(self, key: str) -> Job:
        """The queue's."""
        found = self.controller.bindings.get(key)
        if found is not None:
            return self.controller.machine.jobs[found.job_id]
        return [job for one, job in self.ended_jobs if one == key][-1]

    def state(self, key: str) -> str:
        return self.job(key).state.value

    def slurm_state(self, key: str) -> str:
        return self.slurm.jobs[key].state

    def running(self) -> list[str]:
        """Of the queue's jobs, those that run in Slurm."""
        return [key for key, job in self.slurm.jobs.items() if job.state == "RUNNING"]

    def recording(self) -> Recording:
        """Of a world whose controller was not killed."""
        return Recording(self.queues, (), SITE, steps=tuple(self.steps), options={"hows": HOWS})

    def used_milli(self, queue: str) -> int:
        """What running jobs of a queue have in Slurm."""
        accounts = [queue] if queue != "default" else ["", queue]
        jobs = [job for job in self.slurm.jobs.values() if job.account in accounts]
        return sum(milli for job in jobs for devices in job.has.values() for milli in devices.values())

    def count_jobs(self, state: JobState) -> int:
        bindings = self.controller.bindings.values()
        return sum(self.controller.machine.jobs[one.job_id].state is state for one in bindings)
