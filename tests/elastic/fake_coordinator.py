"""A fake daemon that serves JobService.Work as the real one does, and starts the workers itself.

It knows nothing of slices: a test says how many workers there are to be, kills some, and looks at their reports.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from tests.elastic.forked import Forked
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

JOB_ID = 7


def wait_for(what: str, ready: Callable[[], Any], timeout_s: float = 120.0) -> None:
    end_s = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < end_s, f"{what}: not after {timeout_s} s"
        time.sleep(0.01)


class Coordinator(stubs.JobServiceServicer):
    """One elastic job. Use it in a `with`."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.folder, self.options = folder, list(options)
        self.socket = folder / "api.sock"
        self.batch = 0
        self.processes: dict[int, Forked] = {}
        self.requests: list[pb.WorkRequest] = []
        self.reports: list[pb.ReportProgressRequest] = []
        self.memberships: list[pb.WorkResponse] = []
        self.answers = True  # False: as if the job were not known
        self.withholds_store = False
        self._ready: set[int] = set()
        self._outboxes: dict[int, queue.SimpleQueue[pb.WorkResponse | None]] = {}
        self._lock = threading.RLock()
        self._server: grpc.Server | None = None

    def __enter__(self) -> Coordinator:
        self.serve()
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self.stop()

    def serve(self) -> None:
        """Starts to answer, as a daemon that comes back does."""
        self._server = grpc.server(futures.ThreadPoolExecutor(16))
        stubs.add_JobServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix://{self.socket}")
        self._server.start()

    def stop(self) -> None:
        """Goes away: all streams end."""
        assert self._server
        with self._lock:
            for outbox in self._outboxes.values():
                outbox.put(None)
        self._server.stop(0).wait()

    # ---- what the test asks for ----

    def start(self, count: int) -> list[int]:
        """Starts so many further workers; their numbers."""
        begun = []
        for number in range(len(self.processes), len(self.processes) + count):
            env = os.environ | self.environment() | {"VGPU_WORKER": str(number)}
            self.processes[number] = Forked(self.options, env, self.out_path(number), self.err_path(number))
            begun.append(number)
        return begun

    def environment(self) -> dict[str, str]:
        """Of a program of the job."""
        return {"VGPU_JOB_ID": str(JOB_ID), "VGPU_JOB_ATTEMPT": "1", "VGPU_HOST": f"unix://{self.socket}"}

    def out_path(self, number: int) -> Path:
        return self.folder / f"worker-{number}.out"

    def err_path(self, number: int) -> Path:
        return self.folder / f"worker-{number}.err"

    def lines(self, number: int) -> list[str]:
        return (
            self.out_path(number).read_text().rpartition("\n")[0].splitlines() if self.out_path(number).exists() else []
        )

    def wait_ready(self, numbers: Sequence[int]) -> None:
        wait_for(f"workers {numbers}", lambda: self._ready >= set(numbers))

    def set(self, workers: Sequence[int], reason: str = "the test says so") -> int:
        """These work together from now on; the generation."""
        with self._lock:
            old = set(self.memberships[-1].workers) if self.memberships else set()
            kept = [number for number in self.memberships[-1].workers if number in workers] if old else []
            order = kept + [number for number in workers if number not in kept]
            made = pb.WorkResponse(generation=len(self.memberships) + 1, workers=order, batch=self.batch, reason=reason)
            self.memberships.append(made)
            self._tell(made, old | set(order))
            return made.generation

    def replace_dead(self) -> int:
        """A new generation of those of the newest one that live."""
        alive = [n for n in self.memberships[-1].workers if self.processes[n].poll() is None]
        return self.set(alive, "a worker has died")

    def messages(self, generation: int, field: str) -> list[pb.WorkRequest]:
        """The messages about a generation that have this field."""
        with self._lock:
            return [r for r in self.requests if r.generation == generation and getattr(r, field)]

    def wait_joined(self, generation: int) -> list[pb.WorkRequest]:
        """Until all of it have joined; their messages."""
        workers = set(self.memberships[generation - 1].workers)
        wait_for(
            f"all of {workers} in {generation}",
            lambda: {r.worker for r in self.messages(generation, "joined")} >= workers,
        )
        return self.messages(generation, "joined")

    def wait_ended(self, numbers: Sequence[int]) -> list[int]:
        """Their exit codes."""
        return [self.processes[number].wait(120) for number in numbers]

    # ---- the service ----

    def _tell(self, answer: pb.WorkResponse, whom: set[int]) -> None:
        for number in whom:
            if number in self._outboxes:
                self._outboxes[number].put(answer)

    def Work(self, requests: Iterator[pb.WorkRequest], context: grpc.ServicerContext) -> Iterator[pb.WorkResponse]:
        if not self.answers:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no job {JOB_ID}")
        outbox: queue.SimpleQueue[pb.WorkResponse | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=(requests, outbox), daemon=True).start()
        yield from iter(outbox.get, None)

    def _listen(self, requests: Iterator[pb.WorkRequest], outbox: queue.SimpleQueue[pb.WorkResponse | None]) -> None:
        greeted = False
        try:
            for request in requests:
                with self._lock:
                    self.requests.append(request)
                    if not greeted:
                        greeted = True
                        self._outboxes[request.worker] = outbox
                        self._ready.add(request.worker)
                        newest = self.memberships[-1] if self.memberships else None
                        if newest and newest.generation > request.generation and request.worker in newest.workers:
                            outbox.put(newest)
                    if request.store and not self.withholds_store:
                        self._store(request)
        except grpc.RpcError:
            pass  # the worker is gone
        outbox.put(None)

    def _store(self, request: pb.WorkRequest) -> None:
        newest = self.memberships[-1]
        if request.generation != newest.generation or newest.store:
            return
        newest.store = request.store
        before = self.memberships[-2].workers if len(self.memberships) > 1 else ()
        self._tell(newest, {*newest.workers, *before})

    def ReportProgress(
        self, request: pb.ReportProgressRequest, context: grpc.ServicerContext
    ) -> pb.ReportProgressResponse:
        if not self.answers:
            context.abort(grpc.StatusCode.NOT_FOUND, f"there is no job {JOB_ID}")
        self.reports.append(request)
        return pb.ReportProgressResponse()
