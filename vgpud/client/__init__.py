"""What programs import of vgpud: a client of its API, and reports of progress.

`Client` and `AsyncClient` are the API without protobuf (docs/api.md); they are loaded when they are used.

A job's program reports its progress to the daemon: `vgpud.client.report(samples=n)` after each step. That raises no
error and waits for no network, and outside a job nothing happens: the line can stay in the program. A thread sends the
sums once a second; a daemon that is away gets them when it is back. Processes forked from one that has reported do not
report. With VGPU_PROGRESS_FILE, as in the runs of `vgpu tune`, the sums are also added to that file, a line each:
its pid, samples, and the seconds that they took, both since the first report.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vgpud.client.async_client import AsyncClient as AsyncClient
    from vgpud.client.failures import ClientError as ClientError
    from vgpud.client.failures import InvalidRequestError as InvalidRequestError
    from vgpud.client.failures import NoCapacityError as NoCapacityError
    from vgpud.client.failures import NotAllowedError as NotAllowedError
    from vgpud.client.failures import NotFoundError as NotFoundError
    from vgpud.client.failures import StateConflictError as StateConflictError
    from vgpud.client.failures import TimedOutError as TimedOutError
    from vgpud.client.failures import UnreachableError as UnreachableError
    from vgpud.client.memory import MemoryRequest as MemoryRequest
    from vgpud.client.memory import MemoryWatch as MemoryWatch
    from vgpud.client.memory import memory_requests as memory_requests
    from vgpud.client.memory import watch_memory_pressure as watch_memory_pressure
    from vgpud.client.memory_callbacks import empty_torch_cache as empty_torch_cache
    from vgpud.client.memory_callbacks import sleep_vllm as sleep_vllm
    from vgpud.client.model import JobSpec as JobSpec
    from vgpud.client.model import Queue as Queue
    from vgpud.client.model import Reservation as Reservation
    from vgpud.client.model import SliceSpec as SliceSpec
    from vgpud.client.sizes import SizeError as SizeError
    from vgpud.client.sizes import size as size
    from vgpud.client.sync_client import Client as Client
    from vgpud.client.weights import SharedWeights as SharedWeights
    from vgpud.client.weights import load_weights as load_weights

#: what is loaded when it is used -> the module
_ERRORS = ("ClientError", "InvalidRequestError", "NoCapacityError", "NotAllowedError", "NotFoundError")
_LATE = {"AsyncClient": "async_client", "Client": "sync_client", "SizeError": "sizes", "size": "sizes"}
_LATE |= dict.fromkeys((*_ERRORS, "StateConflictError", "TimedOutError", "UnreachableError"), "failures")
_LATE |= dict.fromkeys(("JobSpec", "Queue", "Reservation", "SliceSpec"), "model")
_LATE |= dict.fromkeys(("MemoryRequest", "MemoryWatch", "memory_requests", "watch_memory_pressure"), "memory")
_LATE |= dict.fromkeys(("empty_torch_cache", "sleep_vllm"), "memory_callbacks")
_LATE |= dict.fromkeys(("SharedWeights", "load_weights"), "weights")

PERIOD_S = 1.0
#: timeout of the last report, at the end of the program
FAREWELL_S = 0.5
SAMPLES_MAX = 1 << 53

_reporter: _Reporter | None = None
_silent = "VGPU_JOB_ID" not in os.environ
_warned = False


def __getattr__(name: str) -> Any:
    if name not in _LATE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_LATE[name]}"), name)


def report(samples: int, steps: int = 1) -> None:
    """Reports the samples and steps completed since the last call. The first call begins the count."""
    global _reporter, _silent
    if _silent:
        return
    if not (_count(samples) and _count(steps)):
        _warn(samples, steps)
        return
    try:
        if _reporter is None:
            _reporter = _Reporter()
        _reporter.add(samples, steps)
    except Exception:  # no error here may affect the program
        _silent = True


def _count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= SAMPLES_MAX


def _warn(samples: object, steps: object) -> None:
    global _warned
    if not _warned:
        _warned = True
        print(f"vgpud.client.report: {samples=} {steps=} are not counts: not reported", file=sys.stderr)


class _Reporter:
    """Sums up, and sends from a separate thread."""

    def __init__(self) -> None:
        from vgpud.client.channel import connect, worker_of

        self._lock = threading.Lock()
        self._samples = self._steps = 0
        self._begin_s = self._last_s = 0.0  # 0 = nothing was reported yet
        self._first_s, self._all_samples = 0.0, 0
        self._file = os.environ.get("VGPU_PROGRESS_FILE", "")
        self._ended = threading.Event()
        self._who = worker_of(os.environ)
        self._channel = connect(os.environ)
        self._thread = threading.Thread(target=self._run, name="vgpud report", daemon=True)
        self._thread.start()
        os.register_at_fork(after_in_child=silence)
        atexit.register(self._farewell)

    def add(self, samples: int, steps: int) -> None:
        """Adds one report of the program. The time before the first one is unknown."""
        now_s = time.monotonic()
        with self._lock:
            if self._last_s:
                self._samples += samples
                self._steps += steps
                self._all_samples += samples
            else:
                self._begin_s = self._first_s = now_s
            self._last_s = now_s

    def _run(self) -> None:
        from vgpud.client.channel import GONE
        from vgpud.client.grpc_import import grpc
        from vgpud.v1alpha1 import vgpud_pb2 as pb
        from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

        ask: Any = stubs.JobServiceStub(self._channel).ReportProgress
        while True:
            ended = self._ended.wait(PERIOD_S)
            with self._lock:
                samples, steps, until_s = self._samples, self._steps, self._last_s
                request = pb.ReportProgressRequest(
                    job_id=self._who.job_id,
                    attempt=self._who.attempt,
                    worker=self._who.worker,
                    samples=samples,
                    steps=steps,
                    seconds=until_s - self._begin_s,
                )
                line = f"{os.getpid()} {self._all_samples} {until_s - self._first_s}\n"
            if steps and self._file:
                self._write(line)
            if steps and request.seconds > 0:
                try:
                    ask(request, timeout=FAREWELL_S if ended else 5.0)
                    self._subtract_report(samples, steps, until_s)
                except grpc.RpcError as error:
                    if error.code() in GONE:
                        silence()
                        return
            if ended:
                return

    def _subtract_report(self, samples: int, steps: int, until_s: float) -> None:
        with self._lock:
            self._samples -= samples
            self._steps -= steps
            self._begin_s = until_s

    def _write(self, line: str) -> None:
        try:
            with open(self._file, "a") as file:
                file.write(line)
        except (OSError, ValueError):
            self._file = ""

    def _farewell(self) -> None:
        self._ended.set()
        if not _silent:
            self._thread.join(2 * FAREWELL_S)


def silence() -> None:
    """Ends reporting here: vgpud.elastic reports for its workers."""
    global _silent
    _silent = True
