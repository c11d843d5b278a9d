"""The training loop's side: `with Workers(...) as workers: for step in workers.steps(total): ...`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

import torch

from vgpud.elastic import averaging, parts
from vgpud.elastic.peers import Peers, find
from vgpud.elastic.state import NEWCOMER, Stateful

W = TypeVar("W", bound="Workers")
#: timeout of an exchange between workers. Long, because a job may be paused; a worker's death is noticed at once anyway
TIMEOUT_S = 1800.0


class Workers:
    """The present workers of a job that trains one model; this process is one of them.

    state: objects that new workers get a copy of: models, optimizers, schedulers, scalers, anything with state_dict()
    and load_state_dict(). Random states and the progress are copied as well. batch: samples of a step, of all workers
    together, which the daemon may override (`vgpu submit --batch`). Outside an elastic job there is one worker, or
    as many as torchrun has started.
    """

    def __init__(self, state: Sequence[Stateful] = (), *, batch: int, timeout_s: float = TIMEOUT_S) -> None:
        if batch < 1:
            raise ValueError(f"batch={batch}: a step has at least 1 sample")
        self.batch = batch  # of all workers together
        self.step = 0  # steps completed
        self.samples = 0  # their samples
        self.loss = 0.0  # mean over the whole batch of the last step that was given one
        self._state = (*state, self)
        self._timeout_s = timeout_s
        self._peers: Peers | None = None
        self._failed: RuntimeError | None = None
        self._exchanged = self._leaves = False
        self._begin_s = self._waited_s = 0.0
        self._order: tuple[tuple[int, int, int], Any] = ((-1, 0, 0), None)

    def __enter__(self: W) -> W:
        self._peers = find(os.environ, self._timeout_s)
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self._with().end(completed=kind is None)
        self._peers = None

    # ---- rank and size ----

    @property
    def rank(self) -> int:
        """This worker's number; 0 is the one that prints and writes checkpoints."""
        return self._with().rank

    @property
    def size(self) -> int:
        """The number of workers."""
        return self._with().size

    @property
    def idle_seconds(self) -> float:
        """Total seconds this worker was stalled by membership changes."""
        return self._with().idle_s

    def _with(self) -> Peers:
        if self._peers is None:
            raise RuntimeError("use Workers in a `with`: with Workers(...) as workers")
        return self._peers

    # ---- the loop ----

    def steps(self, total: int) -> Iterator[int]:
        """The numbers of the remaining steps; a step that failed because a worker is gone is repeated."""
        peers = self._with()
        peers.begin(self._state, self.step or NEWCOMER)
        while self.step < total:
            self.batch = peers.batch or self.batch
            self._begin_s, self._waited_s = time.monotonic(), 0.0
            self._exchanged = self._leaves = False
            yield self.step
            if not self._exchanged and peers.size > 1:
                self.average(())
            if self._failed is None:
                self._completed(peers)
            if self._failed is not None or (self._leaves and self.step < total):
                self._exchanged = False
                failed, self._failed = self._failed, None
                peers.change(self._state, self.step, failed)

    def _completed(self, peers: Peers) -> None:
        self.step += 1
        self.samples += self.batch
        self._exchanged = False
        peers.step_done(self._share()[1], self.batch, time.monotonic() - self._begin_s, self._waited_s)
        if peers.size == 1:
            self._leaves = peers.leads_elsewhere()

    def average(self, model: Any, loss: Any = 0.0) -> bool:
        """Replaces the gradients of a module (or of parameters) by their means over the whole batch.

        `self.loss` is then the mean of `loss`. False: a worker is gone and the step is repeated; there are no
        gradients, so an optimizer changes nothing, but a scheduler must not be stepped.
        """
        peers = self._with()
        parameters = list(model.parameters() if hasattr(model, "parameters") else model)
        averaging.check(parameters)
        own = float(getattr(loss, "detach", lambda: loss)())
        self._exchanged = True
        if self._failed is not None:
            return False
        if peers.size == 1:
            self.loss = own
            return True
        averaging.settle(parameters)
        begin_s = time.monotonic()
        weight = self._share()[1] / self.batch
        try:
            self.loss, leaves = averaging.exchange(parameters, weight, own, peers.leads_elsewhere())
        except RuntimeError as error:
            # without its traceback, whose frames keep the group alive: others wait until its connections are closed
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

        With more workers than samples it is one sample of weight 0, so that no program gets an empty batch.
        """
        first, count = self._share()
        begin = self.samples + min(first, self.batch - 1)
        return range(begin, begin + max(count, 1))

    def indices(self, size: int, seed: int = 0) -> Any:
        """`part` of a data set of `size` samples that is reshuffled in each epoch: a tensor of indices."""
        part = self.part
        return torch.tensor(
            [int(self._shuffle_indices(seed, epoch, size)[at]) for epoch, at in parts.places(part, size)]
        )

    def _shuffle_indices(self, seed: int, epoch: int, size: int) -> Any:
        wanted = (seed, epoch, size)
        if self._order[0] != wanted:
            chance = torch.Generator().manual_seed(seed + epoch)
            self._order = (wanted, torch.randperm(size, generator=chance))
        return self._order[1]

    # ---- for checkpoints ----

    def state_dict(self) -> dict[str, int]:
        """The progress of the training, for a checkpoint; after `average` it includes this step."""
        done = self._exchanged and self._failed is None
        return {"step": self.step + done, "samples": self.samples + done * self.batch}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Restores the progress. To be called before `steps`."""
        self.step, self.samples = state_dict["step"], state_dict["samples"]
        self._exchanged = False
