"""Which workers work together: alone, a fixed number under torchrun, or workers that come and go as the daemon says."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import torch.distributed as dist

from vgpud.client import report, silence
from vgpud.client.channel import connect, worker_of
from vgpud.elastic import group
from vgpud.elastic.link import Link, Membership
from vgpud.elastic.state import Stateful, agree, check

#: times in a row that a group fails before a step is completed though no worker is gone: then it is the program
FAILURES_MAX = 3


class Peers(Protocol):
    """What the training loop asks of those that it works with."""

    rank: int
    size: int
    batch: int  # that the daemon wants; 0 = the program's own
    idle_s: float  # that it did no step because others came or went, in all

    def begin(self, state: Sequence[Stateful], completed: int) -> None:
        """Before the first step."""

    def leads_elsewhere(self) -> bool:
        """Whether this one is to say that the others change after this step."""

    def change(self, state: Sequence[Stateful], completed: int, failed: RuntimeError | None) -> None:
        """Continues with the workers that the daemon has named, from a state that all have. Raises SystemExit in the
        others."""

    def step_done(self, samples: int, batch: int, seconds: float, waited_s: float) -> None:
        """What this one has done in a step, and all together."""

    def end(self, completed: bool) -> None:
        """After the last step, or before an exception propagates."""


def find(env: Mapping[str, str], timeout_s: float) -> Peers:
    """By the environment: a worker of an elastic job, else one of torchrun's or of the program's own, or alone."""
    if "VGPU_JOB_ID" in env and "VGPU_WORKER" in env:
        return Elastic(env, timeout_s)
    return Fixed(env)


class Fixed:
    """One worker, or as many as torchrun has started, or those of a process group that the program has made."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._ours = not dist.is_initialized() and int(env.get("WORLD_SIZE", "1")) > 1
        if self._ours:
            dist.init_process_group("gloo" if not dist.is_nccl_available() or not _has_device() else None)
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.size = dist.get_world_size() if dist.is_initialized() else 1
        self.batch = 0
        self.idle_s = 0.0

    def begin(self, state: Sequence[Stateful], completed: int) -> None:
        if self.size > 1:
            agree(state, completed)

    def leads_elsewhere(self) -> bool:
        return False

    def change(self, state: Sequence[Stateful], completed: int, failed: RuntimeError | None) -> None:
        assert failed
        raise failed  # torchrun starts all of them again

    def step_done(self, samples: int, batch: int, seconds: float, waited_s: float) -> None:
        if self.rank == 0:
            report(batch)

    def end(self, completed: bool) -> None:
        if self._ours:
            (group.part if completed else group.leave)()


def _has_device() -> bool:
    import torch

    return bool(torch.cuda.is_available())


class Elastic:
    """A worker of an elastic job: once in a process, for the job ends with it."""

    _used = False

    def __init__(self, env: Mapping[str, str], timeout_s: float) -> None:
        if Elastic._used:
            raise RuntimeError("one Workers for an elastic job: do all steps in one, or submit two jobs")
        Elastic._used = True
        silence()
        self._who = worker_of(env)
        self._timeout_s = timeout_s
        self._stores = group.Stores()
        self._link = Link(self._who, connect(env), self._stores.make)
        self._generation = 0  # that we work in, or have tried last
        self._failures = 0
        self._tried: tuple[int, ...] = ()  # that generation's workers
        self._fresh = True  # the first step after a change is no measure
        self._end_of_step_s = 0.0  # 0 = has done none
        self.rank, self.size, self.batch, self.idle_s = 0, 1, 0, 0.0

    def begin(self, state: Sequence[Stateful], completed: int) -> None:
        check(state)
        self._form(state, completed)

    def leads_elsewhere(self) -> bool:
        return self.rank == 0 and self._link.announces(self._generation)

    def change(self, state: Sequence[Stateful], completed: int, failed: RuntimeError | None) -> None:
        self._link.flush()
        group.leave()
        if failed is not None:
            self._strike(failed)
        self._form(state, completed)

    def _form(self, state: Sequence[Stateful], completed: int) -> None:
        """Goes with the newest membership; with a newer one where that fails or is replaced."""
        while True:
            membership = self._link.wait(self._generation, self._say)
            if self._who.worker not in membership.workers:
                self._say(f"leaves after {max(completed, 0)} steps: {membership.reason}")
                raise SystemExit(0)
            if not set(self._tried) <= set(membership.workers):
                self._failures = 0  # a worker was gone indeed
            self._generation, self._tried = membership.generation, membership.workers
            try:
                if self._meet(membership):
                    agree(state, completed)
                    break
            except RuntimeError as error:
                group.leave()
                self._strike(error)
        self._stores.forget(current_generation=membership.generation)
        self.rank, self.size, self.batch = (
            membership.workers.index(self._who.worker),
            len(membership.workers),
            membership.batch,
        )
        idle_s = time.monotonic() - self._end_of_step_s if self._end_of_step_s else 0.0
        self._link.report_join(membership.generation, idle_s)
        self.idle_s += idle_s
        self._fresh = True
        if self.rank == 0:
            self._say(f"{self.size} worker{'s' * (self.size > 1)}, {idle_s:.2f} s without a step: {membership.reason}")

    def _meet(self, membership: Membership) -> bool:
        def is_superseded() -> bool:
            newest = self._link.newest
            return newest is not None and newest.generation > membership.generation

        store = self._stores.reach(membership.generation, membership.store)
        if not group.meet(store, len(membership.workers), is_superseded):
            return False
        group.form(store, membership.workers.index(self._who.worker), len(membership.workers), self._timeout_s)
        return True

    def _strike(self, error: RuntimeError) -> None:
        """The group has failed, most likely as a worker is gone. Raises the error where that cannot be the reason."""
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            raise error
        self._link.report_loss(self._generation)
        self._say(f"the group of generation {self._generation} has failed: {_first_sentence(error)}")

    def step_done(self, samples: int, batch: int, seconds: float, waited_s: float) -> None:
        self._failures = 0
        self._end_of_step_s = time.monotonic()
        if not self._fresh:
            self._link.progress(samples, seconds, waited_s)
        self._fresh = False

    def end(self, completed: bool) -> None:
        (group.part if completed else group.leave)()
        self._link.close()

    def _say(self, text: str) -> None:
        print(f"vgpud.elastic (worker {self._who.worker}): {text}", file=sys.stderr, flush=True)


def _first_sentence(error: RuntimeError) -> str:
    return str(error).partition("\n")[0].partition(". ")[0]
