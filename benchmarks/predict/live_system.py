"""A real daemon on a simulated device, with the bounds of elastic jobs set low, and jobs on it. Needs root."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.duration_pb2 import Duration

from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.demo.private_system import ROOT, OwnSystem, wait_for
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

#: how long a job waits before elastic jobs shrink for it, and how long nothing happens before they grow
BOUND_S = 1.0
ENDED = ("completed", "failed", "cancelled", "timed_out")
DEVICE_BYTES = 16 << 30
CHANGE_S = 120.0


class Live:
    """The system, and what is asked of it."""

    def __init__(self, system: OwnSystem, client: Client) -> None:
        self.system, self.client = system, client

    def submit(self, command: Sequence[str], milli: int, **fields: Any) -> int:
        """The job's number."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("VGPU")}
        environment |= {"PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        spec = pb.JobSpec(
            slice=pb.SliceSpec(gpus_milli=milli),
            command=list(command),
            directory=str(self.system.folder),
            log=str(self.system.folder / "%j.log"),
            umask=0o22,
            environment=environment,
            **fields,
        )
        (job_id,) = self.client.send(calls.submit(spec))
        return job_id

    def job(self, job_id: int) -> pb.Job:
        """As it is now."""
        return self.client.send(calls.job(job_id))

    def wait(self, job_id: int, *states: str) -> pb.Job:
        """Until it is in one of these, or has ended."""
        wait_for(
            f"job {job_id}", lambda: words.JOB_STATE.to_word(self.job(job_id).state) in (*states, *ENDED), CHANGE_S
        )
        return self.job(job_id)

    def neighbour(self, milli: int) -> int:
        """A job that does nothing and takes capacity until it is cancelled."""
        return self.submit(["sleep", "1000"], milli, name="neighbour")


@contextlib.contextmanager
def live() -> Iterator[Live]:
    """One device, one queue."""
    with tempfile.TemporaryDirectory(prefix="vgpu-elastic-") as name:
        device = {"devices": "1", "memory_bytes": str(DEVICE_BYTES)}
        with OwnSystem(Path(name), device, ["job_grace_s = 2"]) as system:
            with Client(Settings(host=system.host)) as client:
                bound = Duration(nanos=int(BOUND_S * 1e9) % 10**9, seconds=int(BOUND_S))
                given = pb.Queue(name="default", elastic_wait=bound, elastic_idle=bound)
                client.send(calls.set_queue(given, ["elastic_wait", "elastic_idle"]))
                yield Live(system, client)


class Training:
    """The CIFAR program as an elastic job, and what its workers have said."""

    def __init__(self, live: Live, workers_max: int, options: Sequence[str], **fields: Any) -> None:
        self.live = live
        self.folder = live.system.folder / "lines"
        self.folder.mkdir()
        command = [sys.executable, "-m", "benchmarks.elastic.train", "--lines", str(self.folder), *options]
        elastic = pb.ElasticSpec(workers_min=1, workers_max=workers_max, heuristic=f"fixed({workers_max})")
        self.job_id = live.submit(command, 250, name="cifar", elastic=elastic, **fields)

    def steps(self) -> list[dict[str, Any]]:
        """All lines about steps, in the order of time."""
        texts = [path.read_text().rpartition("\n")[0] for path in self.folder.glob("*.jsonl")]
        lines = [json.loads(line) for text in texts for line in text.splitlines()]
        return sorted((line for line in lines if line["event"] == "step"), key=lambda line: line["time_ns"])

    def now(self) -> dict[str, Any]:
        """The last step's line of the first in rank; {} before there is one."""
        return next((line for line in reversed(self.steps()) if line["rank"] == 0), {})

    def workers(self) -> list[int]:
        """Who did the last step that all have said they did, by rank."""
        done = self.steps()
        last = [line for line in done if done and line["step"] == done[-1]["step"] - 1]
        return [line["worker"] for line in sorted(last, key=lambda line: line["rank"])]

    def wait_for(self, count: int, steps: int) -> None:
        """Until so many work together, and have done so many steps."""
        wait_for(f"{count} workers", lambda: self._now(count), CHANGE_S)
        begun = self.now()["step"]
        wait_for(
            f"{steps} steps of {count}", lambda: self._now(count) and self.now()["step"] >= begun + steps, CHANGE_S
        )

    def wait_steps(self, steps: int) -> None:
        """So many more, whatever the daemon does."""
        begun = self.now()["step"]
        wait_for(f"{steps} steps", lambda: self.now()["step"] >= begun + steps, CHANGE_S)

    def _now(self, count: int) -> bool:
        job = self.live.job(self.job_id)
        state = words.JOB_STATE.to_word(job.state)
        if state in ENDED:
            raise RuntimeError(f"the training is {state}: {job.reason}: {self.last_text()}")
        return bool(self.now().get("workers") == count)

    def last_text(self) -> str:
        """The last line of what the job has written that is not JSON."""
        texts = [path.read_text(errors="replace") for path in self.live.system.folder.glob(f"{self.job_id}.log*")]
        lines = [line for text in texts for line in text.splitlines() if line and not line.startswith("{")]
        return lines[-1] if lines else "nothing"
