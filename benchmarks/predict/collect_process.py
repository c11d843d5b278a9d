"""A worker of `collect` seen from outside: asked line by line, with deadlines, ended when it does not answer."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from benchmarks.results import ROOT


class WorkerError(Exception):
    """It did not answer in time, or it has ended."""


class Worker:
    """One process that measures workloads."""

    def __init__(self, python: str = sys.executable, env: Mapping[str, str] | None = None) -> None:
        paths = [str(ROOT), *filter(None, [(env or os.environ).get("PYTHONPATH")])]
        self._process = subprocess.Popen(
            [python, "-m", "benchmarks.predict.collect_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**(env or os.environ), "PYTHONPATH": os.pathsep.join(paths)},
        )
        self._selector = selectors.DefaultSelector()
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._rest = b""

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):  # what was not read any more
                    pipe.close()

    def measure(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """What it reports of a workload. Raises WorkerError."""
        end = time.monotonic() + timeout_s
        failed = self.prepare(request, timeout_s)
        if failed:
            return failed
        self.start()
        return self.read_answer(end - time.monotonic())

    def prepare(self, request: Mapping[str, Any], timeout_s: float) -> dict[str, Any]:
        """Everything up to the measurement; its report if that fails, else nothing."""
        self._write(json.dumps(request))
        line = self._line(timeout_s)
        return {} if line == "ready" else dict(json.loads(line))

    def start(self) -> None:
        """What was prepared is measured from now on."""
        self._write("go")

    def read_answer(self, timeout_s: float) -> dict[str, Any]:
        return dict(json.loads(self._line(timeout_s)))

    def _write(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(f"{line}\n".encode())
            self._process.stdin.flush()
        except BrokenPipeError as error:
            raise WorkerError(f"it ended with code {self._process.wait()}") from error

    def _line(self, timeout_s: float) -> str:
        end = time.monotonic() + timeout_s
        assert self._process.stdout is not None
        while b"\n" not in self._rest:
            left = end - time.monotonic()
            if left <= 0 or not self._selector.select(left):
                raise WorkerError(f"no answer within {timeout_s:.0f} s")
            more = os.read(self._process.stdout.fileno(), 1 << 16)
            if not more:
                raise WorkerError(f"it ended with code {self._process.wait()}")
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line.decode()
