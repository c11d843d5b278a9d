"""A program that reports to an autoscaler and has at once the size that it asks for."""

from __future__ import annotations

from vgpud.core.elastic.autoscaler import Autoscaler, WorkerTarget
from vgpud.core.jobs.model import SECOND_NS, Elastic


class Program:
    """Its workers report after each step, all at once."""

    def __init__(
        self,
        least_members: int = 1,
        most_members: int = 8,
        heuristic: str = "",
        members: int = 0,
        step_ns: int = SECOND_NS,
    ) -> None:
        self.step_ns = step_ns
        self.elastic = Elastic(least_members=least_members, most_members=most_members, heuristic=heuristic)
        self.scaler = Autoscaler(self.elastic)
        self.now_ns = 0
        self.targets: list[WorkerTarget] = []
        self.workers: tuple[int, ...] = ()
        self.change(members or least_members)

    def change(self, members: int) -> None:
        self.workers = tuple(range(members))
        self.scaler.set_workers(self.workers, self.now_ns)

    def step(self, samples: int, steps: int = 1) -> list[str]:
        """The whole job's samples of so many steps; every request is granted at once."""
        self.now_ns += steps * self.step_ns
        part, over = divmod(samples * steps, len(self.workers))
        said = [
            self.scaler.add_report(worker, part + (worker < over), steps * self.step_ns, steps, self.now_ns)
            for worker in self.workers
        ]
        target = self.scaler.take_new_target(self.now_ns)
        if target:
            self.targets.append(target)
            if target.members != len(self.workers):
                self.change(target.members)
        return [text for text in said if text]

    def settle(self, curve: list[int], steps: int = 4000) -> int:
        """How many workers it has after so many steps, doing curve[k] with k workers, ten in a report."""
        for _ in range(steps // 10):
            self.step(curve[len(self.workers)], 10)
        return len(self.workers)
