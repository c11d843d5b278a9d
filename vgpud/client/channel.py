"""The connection of a job's program to the daemon, and the program's identity from its environment.

Separate from vgpud.cli.common.client because it runs in users' programs: it has no command line and prints nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgpud import paths
from vgpud.client.grpc_import import grpc

#: the job does not exist, or the daemon does not know the call: repeating is useless
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
    """A process's job, attempt and worker number."""

    job_id: int
    attempt: int
    worker: int  # 0 in a job that is not elastic


def worker_of(env: Mapping[str, str]) -> Worker:
    """From VGPU_JOB_ID and the related variables. Raises ValueError if these are not numbers."""
    return Worker(int(env["VGPU_JOB_ID"]), int(env.get("VGPU_JOB_ATTEMPT", "1")), int(env.get("VGPU_WORKER", "0")))


def connect(env: Mapping[str, str]) -> grpc.Channel:
    """A channel to the daemon that VGPU_HOST names; it connects on first use, and reconnects by itself."""
    host = paths.default_host(env)
    options: list[tuple[str, Any]] = [
        ("grpc.enable_http_proxy", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 2000),
    ]
    return grpc.insecure_channel(f"unix://{host}" if host.startswith("/") else host, options=options)
