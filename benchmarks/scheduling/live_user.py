"""A user of the live queue: `python -m benchmarks.scheduling.live_user TARGET UID`, driven by lines of JSON on stdin.

Each line is [method, request in base64]; the answer is [status code, message, response in base64]. A daemon that is
away is asked again with the same request, whose request_id makes it one. Everything is imported before this turns into
that user, who may not be able to read the interpreter.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import grpc

AWAY_S = 60.0
RETRY_S = 0.02


def stub(channel: Any, method: str) -> Callable[..., bytes]:
    """A method whose messages stay bytes."""
    made: Callable[..., bytes] = channel.unary_unary(method)
    return made


def call(channel: grpc.Channel, method: str, request: bytes) -> list[str]:
    """One call, as often as it takes to be answered."""
    ask = stub(channel, method)
    deadline = time.monotonic() + AWAY_S
    while True:
        try:
            return ["OK", "", base64.b64encode(ask(request, timeout=20.0)).decode()]
        except grpc.RpcError as error:
            away = error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
            if not away or time.monotonic() > deadline:
                return [error.code().name, error.details() or "", ""]
        time.sleep(RETRY_S)


def main() -> None:
    target, uid = sys.argv[1], int(sys.argv[2])
    with grpc.insecure_channel("unix:/nonexistent") as channel, contextlib.suppress(grpc.RpcError):
        stub(channel, "/none")(b"", timeout=1.0)  # grpc imports what it needs when it needs it
    os.setgroups([uid])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    options = [("grpc.min_reconnect_backoff_ms", 20), ("grpc.max_reconnect_backoff_ms", 100)]
    with grpc.insecure_channel(target, options=[*options, ("grpc.initial_reconnect_backoff_ms", 20)]) as channel:
        for line in sys.stdin:
            method, request = json.loads(line)
            print(json.dumps(call(channel, method, base64.b64decode(request))), flush=True)


if __name__ == "__main__":
    main()
