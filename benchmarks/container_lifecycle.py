"""How soon a container's slice is free again, and how soon a restarted vgpud has running containers back.

Containers are ended in four ways: `docker kill`, `docker rm -f`, the container's memory limit (OOM kill), and without
notice (SIGKILL to the engine's shim and to the container's first process, so that no runtime and no hook says so). The
time counts from the end of the container's first process to the moment at which the API lists the slice no more; asked
every millisecond. Re-adoption: SIGKILL to vgpud with tenants running in containers, then a new vgpud; the time counts
from its start to the moment at which all containers and all their processes are listed again. Needs root and dockerd.
"""

from __future__ import annotations

import os
import select
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import engine, harness, results
from benchmarks.base_image import ImageError, base_tar
from benchmarks.table import at_most, judge
from vgpud.cli.common.client import Client
from vgpud.cli.demo.private_system import OwnSystem, PartError, wait_for
from vgpud.client import calls
from vgpud.errors import CliError

GOAL_RELEASE_MS = 1000.0
GOAL_READOPT_MS = 2000.0
POLL_S = 0.001
DEADLINE_S = 30.0
OOM_LIMIT = ("--memory=64m", "--memory-swap=64m")
#: the busy tenant's options; the model that containers get has a kernel of 250 us
TENANT = ("--seconds", "600", "--kernel-us", "250", "--report-ms", "60000")
#: a program of the base image that needs more memory than OOM_LIMIT gives
TOO_LARGE = "tail /dev/zero"


def parent(pid: int) -> int:
    """The parent of a process: of a container's first process the engine's shim."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def no_notice(docker: engine.Docker, container: str, pid: int) -> None:
    """Ends a container so that no process can report it."""
    os.kill(parent(pid), signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)


WAYS: dict[str, Callable[[engine.Docker, str, int], object]] = {
    "docker_kill": lambda docker, container, _pid: docker.cli("kill", container),
    "docker_rm": lambda docker, container, _pid: docker.cli("rm", "-f", container),
    "out_of_memory": lambda docker, container, _pid: docker.cli("exec", container, "touch", "/go"),
    "no_notice": no_notice,
}


def is_listed(client: Client, container: str) -> bool:
    """Whether a slice has this container."""
    return any(c.id == container for item in client.all(calls.slices()) for c in item.containers)


def release_ms(own: OwnSystem, docker: engine.Docker, way: str, tenant: Path) -> float:
    """One container with a busy tenant, ended in one way: ms from its end to the end of its slice."""
    grows = f"while [ ! -e /go ]; do sleep 0.05; done; exec {TOO_LARGE}" if way == "out_of_memory" else "wait"
    options = ["-e", "VGPU=0.5", "-e", "VGPU_MEM=1g", "-v", f"{tenant}:/tenant:ro", *OOM_LIMIT]
    script = f"/tenant {' '.join(TENANT)} & {grows}"
    container = docker.start_container(*options, engine.BASE, "sh", "-c", script)
    pid = docker.pid(container)
    with own.client() as client:
        wait_for("the tenant", lambda: any(p.container == container for p in client.all(calls.processes())), DEADLINE_S)
        first = os.pidfd_open(pid)
        # beside, so that the time does not hold the engine's own work after the container's end
        helper = threading.Thread(target=WAYS[way], args=(docker, container, pid))
        helper.start()
        try:
            poll = select.poll()
            poll.register(first, select.POLLIN)
            if not poll.poll(DEADLINE_S * 1000):
                raise PartError(f"{way}: the container did not end")
            ended = time.monotonic()
            while is_listed(client, container):
                if time.monotonic() > ended + DEADLINE_S:
                    raise PartError(f"{way}: the slice was not released within {DEADLINE_S:.0f} s")
                time.sleep(POLL_S)
            released = time.monotonic()
        finally:
            helper.join()
            os.close(first)
    docker.remove_all()
    return (released - ended) * 1000


def readopt_ms(own: OwnSystem, docker: engine.Docker, count: int, tenant: Path) -> tuple[float, bool]:
    """SIGKILL to vgpud under `count` containers: (ms from the new one's start until all are back, none stopped)."""
    options = ["-e", f"VGPU={1 / count:.2f}", "-e", "VGPU_MEM=1g", "-v", f"{tenant}:/tenant:ro"]
    made = {docker.start_container(*options, engine.BASE, "/tenant", *TENANT) for _ in range(count)}

    def all_back() -> bool:
        try:
            with own.client() as client:
                attached = {process.container for process in client.all(calls.processes())}
                known = {c.id for item in client.all(calls.slices()) for c in item.containers if c.pid}
        except CliError:
            return False
        return made <= attached and made <= known

    wait_for("the tenants", all_back, DEADLINE_S)
    pids = {docker.pid(container) for container in made}
    assert own.daemon
    own.daemon.kill()
    begin = time.monotonic()
    own.start_daemon()
    wait_for("all containers", all_back, DEADLINE_S)
    took_ms = (time.monotonic() - begin) * 1000
    alive = {docker.pid(container) for container in made} == pids
    docker.remove_all()
    wait_for("the slices' end", lambda: not _any_slice(own), DEADLINE_S)
    return took_ms, alive


def _any_slice(own: OwnSystem) -> bool:
    with own.client() as client:
        return bool(client.all(calls.slices()))


def measure(own: OwnSystem, docker: engine.Docker, rounds: int, count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """(figures, raw) of all ways and of re-adoption."""
    tenant = harness.build("tenants/load.c")
    raw: dict[str, Any] = {way: [release_ms(own, docker, way, tenant) for _ in range(rounds)] for way in WAYS}
    readopted = [readopt_ms(own, docker, count, tenant) for _ in range(rounds)]
    raw["readoption_ms"] = [took for took, _ in readopted]
    figures: dict[str, Any] = {}
    for way in WAYS:
        figures[f"release_{way}_worst_ms"] = max(raw[way])
        figures[f"release_{way}_median_ms"] = statistics.median(raw[way])
    figures["readoption_worst_ms"] = max(raw["readoption_ms"])
    figures["readoption_median_ms"] = statistics.median(raw["readoption_ms"])
    figures["containers_stopped_by_the_daemons_end"] = sum(not alive for _, alive in readopted)
    return figures, raw


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed, 3 where no engine can run."""
    made = harness.parser(__doc__)
    made.add_argument("--rounds", type=int, default=10, help="times that each is measured (default: %(default)s)")
    made.add_argument("--containers", type=int, default=4, help="containers to re-adopt (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("how containers end does not depend on the device: run it on the simulated one")
    reason = engine.why_not("dockerd", "docker")
    if reason:
        print(f"cannot measure here: {reason}")
        return 3
    with tempfile.TemporaryDirectory(prefix="vge-") as name, harness.system(harness.one_device()) as own:
        device = own.device_name()
        try:
            with engine.Docker(Path(name), {"vgpu": engine.front_of(own)}) as docker:
                docker.import_base(base_tar())
                figures, raw = measure(own, docker, args.rounds, args.containers)
        except ImageError as error:
            print(f"cannot measure here: {error}")
            return 3
    good = figures["containers_stopped_by_the_daemons_end"] == 0
    print(f"containers stopped by the daemon's end: {figures['containers_stopped_by_the_daemons_end']}")
    for way in WAYS:
        worst = figures[f"release_{way}_worst_ms"]
        good &= judge(f"worst release after {way}, ms", worst, at_most(GOAL_RELEASE_MS))
    worst = figures["readoption_worst_ms"]
    good &= judge("worst re-adoption, ms", worst, at_most(GOAL_READOPT_MS))
    path = results.write(
        "container_lifecycle",
        is_simulated=True,
        device=device,
        parameters={"rounds": args.rounds, "containers": args.containers},
        goals={"release_worst_ms": GOAL_RELEASE_MS, "readoption_worst_ms": GOAL_READOPT_MS, "containers_stopped": 0},
        figures=figures,
        raw=raw,
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
