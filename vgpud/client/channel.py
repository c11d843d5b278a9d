"""The connection of a job's program to the daemon, and who the program is, by the environment that it was started with.

Apart from vgpud.cli.common.client because it lives in other people's programs: it knows no command line and prints
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgpud import paths
from vgpud.client.grpc_import import grpc

#: the job, or the daemon's knowledge of such calls, is not there: asking again is of no use
GONE = (
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)


@dataclass(frozen=True)
class Worker:
    """Which process of which attempt of which job."""

    job_id: int
    attempt: int
    worker: int  # 0 in a job that is not elastic


def worker_of(env: Mapping[str, str]) -> Worker:
    """By VGPU_JOB_ID and what goes with it. Raises ValueError where these are no numbers."""
    return Worker(int(env["VGPU_JOB_ID"]), int(env.get("VGPU_JOB_ATTEMPT", "1")), int(env.get("VGPU_WORKER", "0")))


def connect(env: Mapping[str, str]) -> grpc.Channel:
    """A channel to the daemon that VGPU_HOST names; it connects when it is used, and again by itself."""
    host = paths.default_host(env)
    options: list[tuple[str, Any]] = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]
    return grpc.insecure_channel(f"unix://{host}" if host.startswith("/") else host, options=options)
