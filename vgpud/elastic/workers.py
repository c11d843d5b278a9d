"""The training loop's side: `with Workers(...) as workers: for step in workers.steps(total): ...`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import torch

from vgpud.elastic import averaging, parts
from vgpud.elastic.crew import Crew, find
from vgpud.elastic.state import NEWCOMER, Stateful

W = TypeVar("W", bound="Workers")
#: of one exchange between workers. Long, for a job may be paused; who dies is noticed at once in any case
TIMEOUT_S = 1800.0


class Workers:
    """The workers of a job that train one model together, as many as there are at the moment; this process is one.

    state: what a newcomer is given a copy of: models, optimizers, schedulers, scalers, anything with state_dict() and
    load_state_dict(). Random states and how far the training is go along. batch: samples of a step, of all workers
    together, which the daemon may overrule (`vgpu submit --batch`). Outside an elastic job there is one worker, or
    as many as torchrun has started.
    """

    def __init__(self, state: Sequence[Stateful] = (), *, batch: int, timeout_s: float = TIMEOUT_S) -> None:
        if batch < 1:
            raise ValueError(f"batch={batch}: a step has at least 1 sample")
        self.batch = batch  # of all workers together
        self.step = 0  # steps completed
        self.samples = 0  # that they had
        self.loss = 0.0  # mean over the whole batch of the last step that was given one
        self._state = (*state, self)
        self._timeout_s = timeout_s
        self._crew: Crew | None = None
        self._failed: RuntimeError | None = None
        self._exchanged = self._leaves = False
        self._begin_s = self._waited_s = 0.0
        self._order: tuple[tuple[int, int, int], Any] = ((-1, 0, 0), None)

    def __enter__(self: W) -> W:
        self._crew = find(os.environ, self._timeout_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._with().end(completed=kind is None)
        self._crew = None

    # ---- who and how many ----

    @property
    def rank(self) -> int:
        """0 is the first: who prints, and writes checkpoints."""
        return self._with().rank

    @property
    def size(self) -> int:
        """How many there are."""
        return self._with().size

    @property
    def idle_seconds(self) -> float:
        """How long this one did no step because others came or went, in all."""
        return self._with().idle_s

    def _with(self) -> Crew:
        if self._crew is None:
            raise RuntimeError("use Workers in a `with`: with Workers(...) as workers")
        return self._crew

    # ---- the loop ----

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the steps that are left to do of so many; one that fails, as somebody is gone, comes again."""
        crew = self._with()
        crew.begin(self._state, self.step or NEWCOMER)
        while self.step < total:
            self.batch = crew.batch or self.batch
            self._begin_s, self._waited_s = time.monotonic(), 0.0
            self._exchanged = self._leaves = False
            yield self.step
            if not self._exchanged and crew.size > 1:
                self.average(())
            if self._failed is None:
                self._completed(crew)
            if self._failed is not None or (self._leaves and self.step < total):
                self._exchanged = False
                failed, self._failed = self._failed, None
                crew.change(self._state, self.step, failed)

    def _completed(self, crew: Crew) -> None:
        self.step += 1
        self.samples += self.batch
        self._exchanged = False
        crew.step_done(self._share()[1], self.batch, time.monotonic() - self._begin_s, self._waited_s)
        if crew.size == 1:
            self._leaves = crew.leads_elsewhere()

    def average(self, model: Any, loss: Any = 0.0) -> bool:
        """Replaces the gradients of a module (or of parameters) by the means over the whole batch, and `loss` likewise,

        which is in `self.loss` then. False: a worker is gone, the step is done again; there are no gradients, so that
        an optimizer changes nothing, but a scheduler is not to be moved on.
        """
        crew = self._with()
        parameters = list(model.parameters() if hasattr(model, "parameters") else model)
        averaging.check(parameters)
        own = float(getattr(loss, "detach", lambda: loss)())
        self._exchanged = True
        if self._failed is not None:
            return False
        if crew.size == 1:
            self.loss = own
            return True
        averaging.settle(parameters)
        begin_s = time.monotonic()
        weight = self._share()[1] / self.batch
        try:
            self.loss, leaves = averaging.exchange(parameters, weight, own, crew.leads_elsewhere())
        except RuntimeError as error:
            # without its traceback, whose frames hold on to the group: others wait until its connections are closed
            self._failed = error.with_traceback(None)
            for parameter in parameters:
                parameter.grad = None
            return False
        self._leaves = self._leaves or leaves
        self._waited_s += time.monotonic() - begin_s
        return True

    # ---- this worker's samples ----

    def _share(self) -> tuple[int, int]:
        return parts.share(self.batch, self.size, self.rank)

    @property
    def part(self) -> range:
        """The numbers of this worker's samples of this step, counted from the beginning of the training.

        Where there are more workers than samples it is one that counts for nothing, so that no program meets an empty
        batch.
        """
        first, count = self._share()
        begin = self.samples + min(first, self.batch - 1)
        return range(begin, begin + max(count, 1))

    def indices(self, size: int, seed: int = 0) -> Any:
        """`part` of a data set of so many samples that is shuffled anew in each epoch: a tensor of indices."""
        part = self.part
        return torch.tensor([int(self._shuffled(seed, epoch, size)[at]) for epoch, at in parts.places(part, size)])

    def _shuffled(self, seed: int, epoch: int, size: int) -> Any:
        wanted = (seed, epoch, size)
        if self._order[0] != wanted:
            chance = torch.Generator().manual_seed(seed + epoch)
            self._order = (wanted, torch.randperm(size, generator=chance))
        return self._order[1]

    # ---- for checkpoints ----

    def state_dict(self) -> dict[str, int]:
        """How far the training is, for a checkpoint; after `average`, this step is among those that are done."""
        done = self._exchanged and self._failed is None
        return {"step": self.step + done, "samples": self.samples + done * self.batch}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Goes on from there. Before `steps`."""
        self.step, self.samples = state_dict["step"], state_dict["samples"]
        self._exchanged = False
