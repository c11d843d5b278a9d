"""A worker's side of the stream JobService.Work: a thread receives memberships and sends progress.

The training waits for it only at a change: while the daemon is away it continues, and the stream reconnects by itself.
Every message can be repeated: a new stream begins with the worker's identity and its generation.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vgpud.client.channel import GONE, Worker
from vgpud.client.grpc_import import grpc
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

BACKOFF_MIN_S, BACKOFF_MAX_S = 0.1, 2.0
REFUSED_S = 5.0
#: interval of messages about progress
PROGRESS_S = 1.0
CLOSE_S = 1.0


@dataclass(frozen=True)
class Membership:
    """The workers of a generation."""

    generation: int
    workers: tuple[int, ...]  # in order of rank
    store: str  # HOST:PORT of the rendezvous; "" = not known yet
    batch: int  # global; 0 = left to the program
    reason: str


@dataclass
class Progress:
    """Progress since the last message."""

    samples: int = 0
    steps: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0


class Link:
    """The connection of one worker. The thread calls `make_store` when this worker is rank 0."""

    def __init__(self, who: Worker, channel: grpc.Channel, make_store: Callable[[int], str]) -> None:
        self._who = who
        self._channel = channel
        self._make_store = make_store
        self._changed = threading.Condition()
        self._newest: Membership | None = None
        self._refused = ""
        self._generation = 0  # that this worker runs in
        self._lost = -1  # failed generation that has not been replaced yet
        self._progress = Progress()
        self._said_s = time.monotonic()
        self._outbox: queue.SimpleQueue[pb.WorkRequest | None] | None = None
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="vgpud work", daemon=True)
        self._thread.start()

    # ---- the program's side ----

    @property
    def newest(self) -> Membership | None:
        """The last membership received."""
        with self._changed:
            return self._newest

    def announces(self, generation: int) -> bool:
        """Whether there is a later generation whose rendezvous is known."""
        newest = self.newest
        return newest is not None and newest.generation > generation and (bool(newest.store) or not newest.workers)

    def wait(self, last_generation: int, tell: Callable[[str], None]) -> Membership:
        """The first membership later than `last_generation` that can be acted upon. Raises RefusedError."""
        begin_s, is_reported = time.monotonic(), False
        with self._changed:
            while True:
                newest = self._newest
                if (
                    newest
                    and newest.generation > last_generation
                    and (newest.store or self._who.worker not in newest.workers)
                ):
                    return newest
                if self._refused and not self._generation:
                    raise RefusedError(self._refused)
                self._changed.wait(1.0)
                if not is_reported and time.monotonic() - begin_s > 10:
                    is_reported = True
                    tell("waits for the daemon's next membership")

    def report_join(self, generation: int, idle_s: float) -> None:
        """Reports that this worker runs in this generation."""
        with self._changed:
            self._generation, self._lost = generation, -1
            self._send(pb.WorkRequest(generation=generation, joined=True, idle_seconds=idle_s))

    def report_loss(self, generation: int) -> None:
        """Reports that the process group of this generation has failed."""
        with self._changed:
            self._lost = generation
            self._send(pb.WorkRequest(generation=generation, lost=True))

    def progress(self, samples: int, seconds: float, waited_s: float) -> None:
        """Counts a step. Reported once a second."""
        with self._changed:
            made = self._progress
            made.samples += samples
            made.steps += 1
            made.seconds += seconds
            made.waited_s += waited_s
            if time.monotonic() - self._said_s >= PROGRESS_S:
                self._flush()

    def flush(self) -> None:
        """Reports the rest of this generation's progress at once."""
        with self._changed:
            self._flush()

    def close(self) -> None:
        """Ends the stream; queued messages are still delivered."""
        with self._changed:
            self._flush()
            self._closed.set()
            if self._outbox is not None:
                self._outbox.put(None)
        self._thread.join(CLOSE_S)
        self._channel.close()

    # ---- the thread ----

    def _flush(self) -> None:
        made = self._progress
        if not made.steps or self._outbox is None:
            return
        self._progress = Progress()
        self._said_s = time.monotonic()
        self._send(
            pb.WorkRequest(
                generation=self._generation,
                samples=made.samples,
                steps=made.steps,
                seconds=made.seconds,
                waited_seconds=min(made.waited_s, made.seconds),
            )
        )

    def _send(self, request: pb.WorkRequest) -> None:
        """Called with the lock. Without a stream nothing is lost: the next one begins with the state of that time."""
        if self._outbox is not None:
            request.job_id, request.attempt, request.worker = self._who.job_id, self._who.attempt, self._who.worker
            self._outbox.put(request)

    def _run(self) -> None:
        pause_s = BACKOFF_MIN_S
        while not self._closed.is_set():
            heard = False
            try:
                for answer in self._session():
                    heard = True
                    self._take(answer)
            except grpc.RpcError as error:
                if error.code() in GONE:
                    with self._changed:
                        self._refused = error.details() or error.code().name
                        self._changed.notify_all()
                    pause_s = REFUSED_S
            except ValueError:
                return  # the channel was closed
            pause_s = BACKOFF_MIN_S if heard else pause_s
            self._closed.wait(pause_s)
            pause_s = min(2 * pause_s, BACKOFF_MAX_S)

    def _session(self) -> Iterator[pb.WorkResponse]:
        """The answers of one stream."""
        outbox: queue.SimpleQueue[pb.WorkRequest | None] = queue.SimpleQueue()
        with self._changed:
            if self._closed.is_set():
                return
            self._outbox = outbox
            self._send(pb.WorkRequest(generation=self._generation))
            if self._lost >= 0:
                self._send(pb.WorkRequest(generation=self._lost, lost=True))
        try:
            yield from stubs.JobServiceStub(self._channel).Work(iter(outbox.get, None))
        finally:
            with self._changed:
                self._outbox = None
            outbox.put(None)  # grpc's own thread waits for this

    def _take(self, answer: pb.WorkResponse) -> None:
        membership = Membership(
            answer.generation, tuple(answer.workers), answer.store, answer.batch, answer.reason or "no reason given"
        )
        if membership.workers and membership.workers[0] == self._who.worker and not membership.store:
            store = ""
            with contextlib.suppress(RuntimeError, OSError):  # the daemon's wait times out, and it chooses another one
                store = self._make_store(membership.generation)
            with self._changed:
                if store:
                    self._send(pb.WorkRequest(generation=membership.generation, store=store))
        with self._changed:
            if self._newest is None or membership.generation >= self._newest.generation:
                self._newest, self._refused = membership, ""
                self._changed.notify_all()


class RefusedError(Exception):
    """The daemon refuses this worker; one line for the user."""
