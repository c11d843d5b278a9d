"""The queue of a real daemon on simulated devices: jobs from their submission to their end, also over its death."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import grpc
import pytest

from vgpud.v1 import vgpud_pb2 as pb

from .conftest import Node, eventually
from .queue import MISSING, QueueNode, queue_node

pytestmark = pytest.mark.skipif(MISSING, reason="the simulated driver or vgpu-job is not built: run make")


@pytest.fixture
def queue(node: Node) -> Iterator[QueueNode]:
    with queue_node(node) as made:
        yield made.start()


def test_a_job_runs_on_its_slice_and_completes(queue: QueueNode) -> None:
    (job_id,) = queue.submit('echo "$VGPU_SOCKET"; echo of $VGPU_JOB_ID', 500)
    job = queue.ended(job_id)
    assert (job.state, job.exit_code, job.attempt) == ("completed", 0, 1)
    assert queue.written(f"{job_id}.log") == f"{queue.node.socket(f'j-{job_id}')}\nof {job_id}\n"
    assert queue.node.names() == []
    kinds = [kind for kind in queue.node.kinds() if kind.startswith("job.")]
    assert kinds == ["job.started", "job.completed"]
