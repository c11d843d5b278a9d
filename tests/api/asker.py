"""Calls RPCs as another user: `asker.py TARGET UID:GID[:GROUP,GROUP]`, driven by lines of JSON on its standard input.

Each line is [path, kind, request in base64, deadline in s]; the answer is [status code, message, first response in
base64, or ""]. Everything is imported before it turns into that user, who may not be able to read the interpreter.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import grpc


def call(channel: grpc.Channel, path: str, kind: str, request: bytes, deadline_s: float) -> list[str]:
    """One call; of a stream of answers the first."""
    method: Callable[..., Any] = getattr(channel, kind)(path)
    given: Any = iter([request]) if kind.startswith("stream") else request
    try:
        answer = method(given, timeout=deadline_s)
        if kind.endswith("_stream"):
            with contextlib.closing(_Cancelled(answer)):
                answer = next(answer, b"")
    except grpc.RpcError as error:
        return [error.code().name, error.details() or "", ""]
    return ["OK", "", base64.b64encode(answer).decode()]


class _Cancelled:
    def __init__(self, answer: Any) -> None:
        self.close = answer.cancel


def main() -> None:
    target, (uid, gid, *groups) = sys.argv[1], sys.argv[2].split(":")
    with grpc.insecure_channel("unix:/nonexistent") as channel:  # grpc imports what it needs when it needs it
        for kind in ("unary_unary", "unary_stream", "stream_unary", "stream_stream"):
            call(channel, "/none", kind, b"", 1.0)
    os.setgroups([int(group) for group in ",".join(groups).split(",") if group])
    os.setgid(int(gid))
    os.setuid(int(uid))
    with grpc.insecure_channel(target) as channel:
        for line in sys.stdin:
            path, kind, request, deadline_s = json.loads(line)
            answer = call(channel, path, kind, base64.b64decode(request), deadline_s)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


class Asker:
    """The same from a test's side."""

    def __init__(self, target: str, who: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, target, who], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, path: str, kind: str, request: Any, deadline_s: float = 30.0) -> tuple[str, str, bytes]:
        """(status code, message, first response) of a call."""
        assert self._process.stdin
        assert self._process.stdout
        raw = base64.b64encode(request.SerializeToString()).decode()
        self._process.stdin.write(json.dumps([path, kind, raw, deadline_s]) + "\n")
        self._process.stdin.flush()
        code, message, answer = json.loads(self._process.stdout.readline())
        return code, message, base64.b64decode(answer)

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()


if __name__ == "__main__":
    main()
