"""Connections to the daemon: of any client, and of a job's program, with its identity from its environment.

They run in users' programs: nothing is printed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vgpud import paths
from vgpud.client.contexts import Context
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


#: largest answer: the accounting of a month has tens of megabytes
ANSWER_BYTES_MAX = 256 << 20
#: UNAVAILABLE is retried a few times; every changing call carries a request_id, so nothing is done twice
_SERVICE_CONFIG = (
    '{"methodConfig": [{"name": [{}], "retryPolicy": {"maxAttempts": 4, "initialBackoff": "0.05s",'
    ' "maxBackoff": "0.5s", "backoffMultiplier": 3, "retryableStatusCodes": ["UNAVAILABLE"]}}]}'
)
OPTIONS: tuple[tuple[str, Any], ...] = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.service_config", _SERVICE_CONFIG),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)


def open_channel(target: str, context: Context | None, options: list[tuple[str, Any]]) -> grpc.Channel:
    """A channel to a unix socket, or with a context to a daemon of another machine, over TLS with both certificates."""
    if context is None:
        return grpc.insecure_channel(target, options=options)
    return grpc.secure_channel(target, _credentials(context), options=options)


def open_async_channel(target: str, context: Context | None, options: list[tuple[str, Any]]) -> Any:
    """The same for asyncio."""
    if context is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, _credentials(context), options=options)


def _credentials(context: Context) -> grpc.ChannelCredentials:
    return grpc.ssl_channel_credentials(context.authority.encode(), context.key.encode(), context.certificate.encode())


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
