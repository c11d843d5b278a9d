"""A worker of an elastic job without any training: `-m tests.daemon.jobs.elastic_worker DIRECTORY`, as tests run it.

It says it is ready, works in every membership that it gets, and leaves with 0 when it is in none. Each thing that
happens is a line `WORKER PID WHAT` in DIRECTORY/log. It fails with 3 when DIRECTORY/fail-WORKER is there, says nothing
to the daemon when DIRECTORY/mute-WORKER is, and ends with 0 when DIRECTORY/done is.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc

from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

DIRECTORY = Path(sys.argv[1])
WORKER = int(os.environ["VGPU_WORKER"])
WHO = {
    "job_id": int(os.environ["VGPU_JOB_ID"]),
    "attempt": int(os.environ["VGPU_JOB_ATTEMPT"]),
    "worker": WORKER,
}


class Worker:
    def __init__(self) -> None:
        self.generation = 0
        self.leave_event = threading.Event()

    def say(self, what: str) -> None:
        with (DIRECTORY / "log").open("a") as log:
            log.write(f"{WORKER} {os.getpid()} {what}\n")

    def talk(self) -> None:
        """One stream after another, as long as it lives."""
        while not self.leave_event.is_set():
            said: queue.SimpleQueue[pb.WorkRequest | None] = queue.SimpleQueue()
            said.put(pb.WorkRequest(generation=self.generation, **WHO))
            try:
                with grpc.insecure_channel(os.environ["VGPU_HOST"]) as channel:
                    for response in stubs.JobServiceStub(channel).Work(iter(said.get, None)):
                        self.handle_membership(response, said)
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    self.say(f"refused {error.details()}")
            said.put(None)
            time.sleep(0.1)

    def handle_membership(self, response: pb.WorkResponse, requests: queue.SimpleQueue[pb.WorkRequest | None]) -> None:
        if WORKER not in response.workers:
            self.say(f"leaves {response.generation}")
            self.leave_event.set()
            return
        if not response.store:
            if response.workers[0] == WORKER:
                requests.put(
                    pb.WorkRequest(
                        generation=response.generation, store=f"127.0.0.1:{1000 + response.generation}", **WHO
                    )
                )
            return
        if response.generation > self.generation:
            self.generation = response.generation
            members = ",".join(map(str, response.workers))
            self.say(f"works {response.generation} {members} at {response.store} batch {response.batch}")
            requests.put(pb.WorkRequest(generation=response.generation, joined=True, idle_seconds=0.01, **WHO))
            for report in self.reports(response.generation):
                requests.put(report)

    def reports(self, generation: int) -> Iterator[pb.WorkRequest]:
        speed = 10 if (DIRECTORY / f"slow-{WORKER}").exists() else 100
        for _ in range(int(os.environ.get("REPORTS", "0"))):
            work = {"samples": speed, "seconds": 1.0, "steps": 10}
            yield pb.WorkRequest(generation=generation, **work, **WHO)


def main() -> None:
    worker = Worker()
    worker.say("starts")
    if not (DIRECTORY / f"mute-{WORKER}").exists():
        threading.Thread(target=worker.talk, daemon=True).start()
    while not worker.leave_event.is_set() and not (DIRECTORY / "done").exists():
        if (DIRECTORY / f"fail-{WORKER}").exists():
            worker.say("fails")
            os._exit(3)
        time.sleep(0.02)
    os._exit(0)


if __name__ == "__main__":
    main()
