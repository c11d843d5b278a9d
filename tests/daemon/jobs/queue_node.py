"""What tests of the live queue share: a node on simulated devices, jobs that are shell commands, and how they end."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.daemon.node import Node, wait_until
from vgpud import paths
from vgpud.host import processes
from vgpud.simdevice.process import SimulatedDevice
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs
from vgpud.v1alpha1 import words

ENDED = ("completed", "failed", "cancelled", "timed_out")
MISSING = not (paths.sim_lib_dir() / "libcuda.so.1").exists() or not (paths.lib_dir() / "vgpu-job").exists()


class QueueNode:
    """A daemon on simulated devices, and what one user says to its queue."""

    def __init__(self, node: Node, device: SimulatedDevice) -> None:
        self.node = node
        self.device = device
        self.work = node.directory / "work"
        self.work.mkdir()

    def start(self) -> QueueNode:
        self.node.start("--device", "sim", "--sim-dir", str(self.device.directory))
        return self

    def restart(self, number: int) -> None:
        self.node.stop(number)
        self.start()

    @property
    def jobs(self) -> stubs.JobServiceStub:
        return stubs.JobServiceStub(self.node.channel())

    @property
    def queues(self) -> stubs.QueueServiceStub:
        return stubs.QueueServiceStub(self.node.channel())

    def spec(self, script: str, milli: int = 500, **fields: Any) -> pb.JobSpec:
        given: dict[str, Any] = {"directory": str(self.work), "umask": 0o22, "log": str(self.work / "%j.log")}
        given["command"] = ["sh", "-c", script]
        environment = {"PATH": os.environ["PATH"]}
        made = pb.SliceSpec(gpus_milli=milli, **fields.pop("slice", {}))
        return pb.JobSpec(slice=made, environment=environment, **(given | fields))

    def submit(self, script: str, milli: int = 500, request_id: str = "", **fields: Any) -> list[int]:
        request = pb.SubmitJobRequest(spec=self.spec(script, milli, **fields), request_id=request_id)
        return list(self.jobs.SubmitJob(request).job_ids)

    def get(self, job_id: int) -> pb.Job:
        return self.jobs.GetJob(pb.GetJobRequest(job_id=job_id)).job

    def all(self) -> dict[int, pb.Job]:
        found: dict[int, pb.Job] = {}
        token = ""
        while True:
            answer = self.jobs.ListJobs(pb.ListJobsRequest(include_ended=True, page_token=token))
            found |= {job.job_id: job for job in answer.jobs}
            token = answer.next_page_token
            if not token:
                return found

    def until(self, job_id: int, *states: str) -> pb.Job:
        """The job as soon as it is in one of these states."""

        def find_job() -> pb.Job | None:
            job = self.get(job_id)
            return job if words.JOB_STATE.to_word(job.state) in states else None

        found: pb.Job = wait_until(find_job, f"job {job_id} {' or '.join(states)}; it is {self.get(job_id)}")
        return found

    def wait_for_end(self, job_id: int) -> pb.Job:
        return self.until(job_id, *ENDED)

    def read_file(self, name: str) -> str:
        path = self.work / name
        return path.read_text() if path.exists() else ""


@contextlib.contextmanager
def queue_node(node: Node, devices: int = 2, **settings: str) -> Iterator[QueueNode]:
    """A node with a queue, not started yet. Jobs outlive daemons, and so are ended after the test."""
    config = {"devices": devices, "memory_bytes": 8 << 30, "context_bytes": 256 << 20}
    with SimulatedDevice(node.directory / "sim", config) as device:
        node.settings |= settings
        try:
            yield QueueNode(node, device)
        finally:
            if node.process:
                node.stop(signal.SIGKILL)
            end_jobs(node.state / "jobs")


def end_jobs(directory: Path) -> None:
    """Kills what runs for the supervisors that are named there, and has them end."""
    for begun in directory.glob("[!.]*/begun"):  # the hidden ones are still being written
        fields = dict(line.partition(" ")[::2] for line in begun.read_text().splitlines())
        supervisor = int(fields["pid"])
        if processes.start_time(supervisor) != int(fields["start"]):
            continue
        (begun.parent / "stop").write_text("grace_ms 0\n")
        with contextlib.suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGTERM)
        wait_until(lambda pid=supervisor: not processes.runs(pid), "the end of a job")
