"""Workers that are forked off a process which has imported torch already: that takes seconds, and there are many."""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PROGRAM = "benchmarks.elastic.train"
_context = multiprocessing.get_context("forkserver")


def _run(options: Sequence[str], env: Mapping[str, str], out_path: Path, err_path: Path) -> None:
    for number, path in ((1, out_path), (2, err_path)):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = [PROGRAM, *options]
    runpy.run_module(PROGRAM, run_name="__main__")


class Forked:
    """One of them, with what tests need of a subprocess.Popen."""

    def __init__(self, options: Sequence[str], env: Mapping[str, str], out_path: Path, err_path: Path) -> None:
        _context.set_forkserver_preload(["torch", "torch._dynamo", "numpy", "grpc", PROGRAM])
        self._process = _context.Process(target=_run, args=(options, dict(env), out_path, err_path), daemon=True)
        self._process.start()
        assert self._process.pid
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        assert self._process.exitcode is not None, f"process {self.pid} has not ended within {timeout} s"
        return self._process.exitcode

    def kill(self) -> None:
        self._process.kill()
