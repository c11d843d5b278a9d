"""A service of three replicas under a steady load while they are replaced one at a time, and while each is killed: how
many requests fail. And one that sleeps: how long its first request takes beside the wake-up alone.

A private system on a simulated device; replicas are stubs that behave like `vllm serve` (engine.py). The load is an
open loop: a request is sent when it is due, whatever became of those before. A request has failed if it got anything
but its whole answer.
"""

from __future__ import annotations

import asyncio
import math
import os
import shlex
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import harness, results
from benchmarks.services.engine import KERNEL_US
from benchmarks.services.load import Results, Target, send_requests
from benchmarks.table import at_most, judge
from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.demo.private_system import OwnSystem, wait_for
from vgpud.cli.services.balancer import ask, find_balancer
from vgpud.client import calls
from vgpud.services.shell.control_client import Balancer
from vgpud.v1alpha1 import vgpud_pb2 as pb

NAME = "chat"
PER_S, REPLICAS, TOKENS = 200.0, 3, 2
WAKE_UPS = 40
GOAL_FAILED = 0
GOAL_FIRST_MS = 200.0
LONG_S = 60.0
IDLE_S = 1.0
POLL_S = 0.01
KEPT = ("requests", "failed", "p50_ms", "p99_ms", "max_ms")
SITE = ("job_grace_s = 5",)


PROGRAM = (sys.executable, "-m", "benchmarks.services.engine", "serve", "stub", "--gpu-memory-utilization", "0.5")
SIZE = ("--gpus", "0.2")


class Service:
    """One service of the private system, as its user's commands see it."""

    def __init__(self, own: OwnSystem, *options: str) -> None:
        self._own = own
        self._settings = Settings(host=own.host, timeout_s=60)
        script = f'exec {shlex.join(PROGRAM)} --port "$VGPU_SERVICE_PORT"'
        self.vgpu("service", "start", *SIZE, "--name", NAME, "--health-http", "/health", *options, "sh", "-c", script)

    @property
    def balancer(self) -> Balancer:
        found = find_balancer(self._settings, NAME)
        assert found
        return found

    def target(self) -> Target:
        return Target(self.status()["port"], ask(self.balancer.record()).token, TOKENS)

    def status(self) -> dict[str, Any]:
        return ask(self.balancer.status())

    def replicas(self) -> list[dict[str, Any]]:
        return list(self.status()["replicas"])

    def wait_until_healthy(self, count: int, generation: int = 0) -> None:
        def is_so() -> bool:
            replicas = self.replicas()
            current = [one for one in replicas if generation in (0, one["generation"])]
            healthy: int = sum(one["state"] == "healthy" for one in current)
            return healthy == count == len(replicas)

        wait_for(f"{count} healthy replicas", is_so, LONG_S)

    def wait_until_gone(self, job_id: int) -> None:
        wait_for(f"the end of job {job_id}", lambda: job_id not in self.job_ids(), LONG_S)

    def wait_until_asleep(self) -> None:
        wait_for("the sleep", lambda: self.status()["asleep"] and self.is_evicted(), LONG_S)

    def job_ids(self) -> list[int]:
        return [one["job_id"] for one in self.replicas()]

    def is_evicted(self) -> bool:
        """Whether the memory of all replicas is on the host."""
        with self.client() as client:
            return all(
                client.send(calls.get_slice(f"j-{job_id}")).suspended == pb.SUSPENSION_EVICTED
                for job_id in self.job_ids()
            )

    def client(self) -> Client:
        return Client(self._settings)

    def vgpu(self, *words: str) -> None:
        self._own.vgpu("--timeout", "60", *words)

    def stop(self) -> None:
        """All of its jobs, and others: they would outlive the system."""
        with self.client() as client:
            self.vgpu("service", "stop", NAME)
            wait_for("the end of the service", lambda: find_balancer(self._settings, NAME) is None, LONG_S)
            for job in client.all(calls.jobs()):
                client.send(calls.cancel(job.job_id))
            wait_for("the end of all jobs", lambda: not client.all(calls.jobs()), LONG_S)

    def kill_program(self, job_id: int) -> None:
        """SIGKILL to the program of a replica, wherever in its job it is."""
        with self.client() as client:
            pids = [one.pid for one in client.all(calls.processes(f"j-{job_id}"))]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


@contextmanager
def under_load(target: Target, per_s: float) -> Iterator[Results]:
    """The results are complete after the body."""
    found = Results()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    failure: list[BaseException] = []

    def run() -> None:
        try:
            loop.run_until_complete(send_requests(target, per_s, stop, found))
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
    if failure:
        raise failure[0]


def percentile(values: list[float], part: float) -> float:
    """The smallest value that is not below this part of all."""
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)] if values else math.nan


def describe(answers: Results) -> dict[str, Any]:
    return {
        "requests": len(answers.latencies_ms) + len(answers.failures),
        "failed": len(answers.failures),
        "p50_ms": round(percentile(answers.latencies_ms, 0.5), 2),
        "p99_ms": round(percentile(answers.latencies_ms, 0.99), 2),
        "max_ms": round(max(answers.latencies_ms, default=math.nan), 2),
        "programs": len(answers.replicas),
        "failures": answers.failures[:10],
    }


def measure_replacement(service: Service, per_s: float, quiet_s: float) -> dict[str, Any]:
    with under_load(service.target(), per_s) as found:
        time.sleep(quiet_s)
        generation = ask(service.balancer.record()).generation + 1
        service.vgpu("service", "restart", NAME)
        service.wait_until_healthy(REPLICAS, generation)
        time.sleep(quiet_s)
    return describe(found)


def measure_kills(service: Service, per_s: float, quiet_s: float) -> dict[str, Any]:
    """Each of the replicas that there are at the beginning is killed; the next one when it has been replaced."""
    with under_load(service.target(), per_s) as found:
        for job_id in service.job_ids():
            time.sleep(quiet_s)
            service.kill_program(job_id)
            service.wait_until_gone(job_id)
            service.wait_until_healthy(REPLICAS)
        time.sleep(quiet_s)
    return describe(found)


def measure_alone(service: Service, per_s: float, quiet_s: float) -> dict[str, Any]:
    with under_load(service.target(), per_s) as found:
        time.sleep(2 * quiet_s)
    return describe(found)


def first_request_ms(service: Service) -> float:
    """Of a service that sleeps."""
    target, found = service.target(), Results()

    async def ask() -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, stop.set)
        await send_requests(target, 1.0, stop, found)

    asyncio.run(ask())
    if found.failures:
        raise RuntimeError(f"the first request has failed: {found.failures[0]}")
    return found.latencies_ms[0]


class PlainJob:
    """The same program as a job of its own, which is suspended and resumed by hand."""

    def __init__(self, service: Service) -> None:
        self._service = service
        service.vgpu("submit", *SIZE, "--name", "plain", "--no-preempt", "--", *PROGRAM, "--port", "0")
        with service.client() as client:
            (self.job_id,) = [job.job_id for job in client.all(calls.jobs()) if job.spec.name == "plain"]
        wait_for("the plain job", lambda: self._has_program(), LONG_S)

    def _has_program(self) -> bool:
        with self._service.client() as client:
            return bool(client.all(calls.processes(f"j-{self.job_id}")))

    def wake_up_ms(self) -> float:
        """From ResumeJob until its slice is resumed."""
        with self._service.client() as client:
            client.send(calls.suspend_job(self.job_id))
            self._wait_for(client, pb.SUSPENSION_EVICTED)
            begun_s = time.perf_counter()
            client.send(calls.resume_job(self.job_id))
            self._wait_for(client, pb.SUSPENSION_UNSPECIFIED)
            return (time.perf_counter() - begun_s) * 1e3

    def _wait_for(self, client: Client, suspension: int) -> None:
        until_s = time.monotonic() + LONG_S
        while client.send(calls.get_slice(f"j-{self.job_id}")).suspended != suspension:
            if time.monotonic() > until_s:
                raise RuntimeError("the plain job is not suspended or resumed")
            time.sleep(POLL_S)


def measure_sleep(service: Service, wake_ups: int) -> dict[str, list[float]]:
    """First requests and wake-ups alone, in turn, so that both have the same machine."""
    plain = PlainJob(service)
    first, alone = [], []
    for _ in range(wake_ups):
        service.wait_until_asleep()
        first.append(round(first_request_ms(service), 2))
        service.wait_until_asleep()
        alone.append(round(plain.wake_up_ms(), 2))
    return {"first_ms": first, "wake_up_ms": alone}


def measure_lent(service: Service) -> dict[str, Any]:
    """While it sleeps: whether a job gets the whole device, memory included, and the first request the service again
    when that job has ended."""
    service.wait_until_asleep()
    begun_s = time.perf_counter()
    service.vgpu("submit", "--wait", "--gpus", "1", "--", "true")
    ran_s = time.perf_counter() - begun_s
    return {"whole_device_job_s": round(ran_s, 2), "first_ms": round(first_request_ms(service), 2)}


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("--per-s", type=float, default=PER_S, help="requests a second (default: %(default)s)")
    parser.add_argument("--quiet-s", type=float, default=5.0, help="between two disturbances (default: %(default)s)")
    parser.add_argument("--wake-ups", type=int, default=WAKE_UPS, help="first requests (default: %(default)s)")
    options = parser.parse_args()
    if options.real:
        parser.error("it is for the simulated device: its stub computes nothing that a device would")
    raw: dict[str, Any] = {}
    with harness.system(harness.one_device(), SITE, (KERNEL_US,)) as own:
        own.env["XDG_STATE_HOME"] = str(own.folder / "home")
        service = Service(own, "--replicas", str(REPLICAS))
        try:
            service.wait_until_healthy(REPLICAS)
            for name, measure in (
                ("alone", measure_alone),
                ("replacement", measure_replacement),
                ("kills", measure_kills),
            ):
                raw[name] = measure(service, options.per_s, options.quiet_s)
                print(f"{name}: {raw[name]}", flush=True)
            service.vgpu("service", "update", NAME, "--replicas", "1", "--scale-to-zero", f"{IDLE_S:g}s")
            raw["lent"] = measure_lent(service)
            raw["sleep"] = measure_sleep(service, options.wake_ups)
        finally:
            service.stop()
    return report(options, raw)


def report(options: Any, raw: dict[str, Any]) -> int:
    first, alone = raw["sleep"]["first_ms"], raw["sleep"]["wake_up_ms"]
    first_p95, alone_p95 = percentile(first, 0.95), percentile(alone, 0.95)
    figures = {
        **{f"{name}_{what}": raw[name][what] for name in ("alone", "replacement", "kills") for what in KEPT},
        "first_request_p50_ms": percentile(first, 0.5),
        "first_request_p95_ms": first_p95,
        "wake_up_p50_ms": percentile(alone, 0.5),
        "wake_up_p95_ms": alone_p95,
        "first_request_more_p95_ms": round(first_p95 - alone_p95, 2),
        "whole_device_job_while_asleep_s": raw["lent"]["whole_device_job_s"],
    }
    print(f"a service of {REPLICAS} replicas under {options.per_s:g} requests/s")
    good = [
        judge("failed requests in a rolling replacement", figures["replacement_failed"], at_most(GOAL_FAILED)),
        judge("failed requests while each replica is killed", figures["kills_failed"], at_most(GOAL_FAILED)),
        judge(
            "first request of a service that sleeps, p95, more than a wake-up's p95, ms",
            figures["first_request_more_p95_ms"],
            at_most(GOAL_FIRST_MS),
        ),
    ]
    path = results.write(
        "services",
        is_simulated=True,
        device="SIMULATED H200",
        parameters={
            "per_s": options.per_s,
            "replicas": REPLICAS,
            "tokens": TOKENS,
            "quiet_s": options.quiet_s,
            "wake_ups": options.wake_ups,
        },
        goals={
            "replacement_failed": GOAL_FAILED,
            "kills_failed": GOAL_FAILED,
            "first_request_more_p95_ms": GOAL_FIRST_MS,
        },
        figures=figures,
        raw=raw,
        folder=options.results,
    )
    print(path)
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
