"""What publishing costs an API server: many nodes of eight GPUs, their drivers' cores and connections in one process.

Each node has the driver's core, its own client, its watch and its ticks; vgpud and kubelet are left out. Counted is
what the drivers send and receive: while all nodes publish for the first time, during some minutes in which nothing
changes (writes there are the failure that is looked for), and when one GPU of each of some nodes is drained. A real
API server's own count of writes and its memory are beside it.
"""

from __future__ import annotations

import asyncio
import json
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2
from lightkube import AsyncClient, KubeConfig

from benchmarks import harness, results
from benchmarks.kubernetes.node import Api, api_server
from benchmarks.table import equal_to, judge
from vgpud.k8s.core import events as ev
from vgpud.k8s.core.machine import State, step
from vgpud.k8s.core.model import Gpu
from vgpud.k8s.shell.api_server import ApiServer

GIB, MIB = 1 << 30, 1 << 20
TICK_S = 1.0
#: nodes that begin within a second
STARTS_PER_S = 100
WRITES = ("POST", "PUT", "PATCH", "DELETE")


class Wire(httpx2.AsyncHTTPTransport):
    """Counts a node's requests and bytes: bodies, without heads and TLS."""

    def __init__(self, verify: bool) -> None:
        super().__init__(verify=verify)
        self.requests: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()
        self.received_bytes = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        kind = "WATCH" if "watch" in request.url.params else request.method
        self.requests[kind] += 1
        self.sent_bytes[kind] += len(request.content)
        response = await super().handle_async_request(request)
        response.stream = _Counted(response.stream, self)
        return response


class _Counted(httpx2.AsyncByteStream):
    def __init__(self, stream: Any, wire: Wire) -> None:
        self._stream, self._wire = stream, wire

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for part in self._stream:
            self._wire.received_bytes += len(part)
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


class Publisher:
    """A driver without kubelet and vgpud."""

    def __init__(self, name: str, gpus: Sequence[Gpu], config: KubeConfig) -> None:
        self.gpus = tuple(gpus)
        self.wire = Wire(verify=False)
        self._api = ApiServer(lambda: AsyncClient(config, transport=self.wire, trust_env=False), name)
        self._state = State(name)
        self._tasks: set[asyncio.Task[None]] = set()
        self.errors: list[str] = []

    def start(self) -> None:
        self.post(ev.Leads())
        self.post(ev.Registered())
        self.post(ev.NodeSeen(self.gpus, ()))
        for work in (self._api.watch_pool(self.post), self._ticks()):
            self._spawn(work)

    def drain(self) -> None:
        """Its first GPU, by an operator."""
        self.gpus = (replace(self.gpus[0], drained="maintenance"), *self.gpus[1:])
        self.post(ev.NodeSeen(self.gpus, ()))

    def is_published(self) -> bool:
        pool = self._state.pool
        return not pool.writing and bool(pool.stored_slices) and not self._due()

    def _due(self) -> bool:
        specs = [one["spec"] for one in self._state.pool.stored_slices or ()]
        tainted = any("taints" in device for spec in specs for device in spec.get("devices", ()))
        return tainted != bool(self.gpus[0].drained)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._api.close()

    def post(self, event: ev.Event) -> None:
        for command in step(self._state, event, time.monotonic_ns()):
            if isinstance(command, ev.Publish):
                self._spawn(self._publish(command))

    async def _publish(self, command: ev.Publish) -> None:
        done = await self._api.publish(command.changes)
        if done.error or done.dropped_fields:
            self.errors.append(done.error or f"not stored: {', '.join(done.dropped_fields)}")
        self.post(done)

    async def _ticks(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            self.post(ev.Tick())

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Counts:
    """What all nodes have sent and received so far."""

    def __init__(self, nodes: Sequence[Publisher]) -> None:
        self.requests: Counter[str] = Counter()
        self.sent_bytes: Counter[str] = Counter()
        for one in nodes:
            self.requests += one.wire.requests
            self.sent_bytes += one.wire.sent_bytes
        self.received_bytes = sum(one.wire.received_bytes for one in nodes)

    def since(self, base: Counts) -> dict[str, Any]:
        requests, sent = self.requests - base.requests, self.sent_bytes - base.sent_bytes
        return {
            "writes": sum(requests[kind] for kind in WRITES),
            "written_bytes": sum(sent[kind] for kind in WRITES),
            "reads": requests["GET"],
            "watches": requests["WATCH"],
            "received_bytes": self.received_bytes - base.received_bytes,
        }


def gpus_of(count: int) -> list[Gpu]:
    """As vgpud shows H200s."""
    names = [f"GPU-00000000-0000-0000-0000-{n:012x}" for n in range(count)]
    return [
        Gpu(uuid, n, "NVIDIA H200", 140_400 * MIB, 2 * MIB, pci_root=f"pci0000:{n:02x}") for n, uuid in enumerate(names)
    ]


async def wait_published(nodes: Sequence[Publisher], timeout_s: float) -> float:
    """Seconds until all are. Raises TimeoutError."""
    begin = time.monotonic()
    while not all(one.is_published() for one in nodes):
        if time.monotonic() - begin > timeout_s:
            left = [one for one in nodes if not one.is_published()]
            raise TimeoutError(f"{len(left)} nodes are not published: {left[0].errors[-3:]}")
        await asyncio.sleep(0.1)
    return time.monotonic() - begin


async def measure(api: Api, count: int, gpus: int, minutes: float, drained: int) -> dict[str, Any]:
    """Publishes, waits, drains."""
    config = KubeConfig.from_file(api.kubeconfig)
    figures: dict[str, Any] = {"memory_before_bytes": api.memory_bytes()}
    nodes: list[Publisher] = []
    for n in range(count):
        api.add_node(f"node-{n:04d}")
        nodes.append(Publisher(f"node-{n:04d}", gpus_of(gpus), config))
    try:
        nothing, begin = Counts(()), time.monotonic()
        for number, one in enumerate(nodes):
            one.start()
            if number % (STARTS_PER_S // 10) == 0:
                await asyncio.sleep(0.1)
        await wait_published(nodes, 120)
        first_s = time.monotonic() - begin
        print(f"  {count} nodes are published after {first_s:.0f} s", flush=True)
        await asyncio.sleep(5)  # the watches show it
        figures["first"] = Counts(nodes).since(nothing) | {"seconds": first_s}
        figures["stored_bytes_per_node"] = sum(len(json.dumps(one)) for one in api.slices()) // count
        figures["slices_per_node"] = len(api.slices()) / count
        figures["memory_published_bytes"] = api.memory_bytes()
        before, cpu, begin = Counts(nodes), _cpu_s(api), time.monotonic()
        await asyncio.sleep(minutes * 60)
        hours = (time.monotonic() - begin) / 3600
        idle = Counts(nodes).since(before)
        figures["idle"] = idle | {"seconds": hours * 3600}
        per_hour = {f"{name}_per_node_hour": value / count / hours for name, value in idle.items()}
        figures["idle"] |= per_hour | {"api_server_cpu_percent": 100 * (_cpu_s(api) - cpu) / (hours * 3600)}
        figures["memory_idle_bytes"] = api.memory_bytes()
        before = Counts(nodes)
        others = Counts(nodes[drained:])
        for one in nodes[:drained]:
            one.drain()
        seconds = await wait_published(nodes[:drained], 60)
        await asyncio.sleep(5)
        change = Counts(nodes).since(before)
        figures["drained"] = {name: value / drained for name, value in change.items()} | {"seconds": seconds}
        figures["drained"]["received_bytes_of_other_nodes"] = Counts(nodes[drained:]).since(others)["received_bytes"]
        figures["errors"] = sum(len(one.errors) for one in nodes)
        figures["memory_end_bytes"] = api.memory_bytes()
    finally:
        await asyncio.gather(*(one.stop() for one in nodes))
    return figures


def _cpu_s(api: Api) -> float:
    """Processor time of a real API server and its etcd."""
    ticks = 0
    for pid in api.pids():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when something is written though nothing changes."""
    made = harness.parser(__doc__)
    made.add_argument("--nodes", type=int, default=1000, help="(default: %(default)s)")
    made.add_argument("--gpus", type=int, default=8, help="of each node (default: %(default)s)")
    made.add_argument("--minutes", type=float, default=6.0, help="in which nothing changes (default: %(default)s)")
    made.add_argument("--drained", type=int, default=20, help="nodes on which a GPU is drained (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("what is published does not depend on the device: leave --real out")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 8 * args.nodes + 1000)), hard))
    with TemporaryDirectory(prefix="vgk-") as name, api_server(Path(name)) as api:
        server = api.name
        figures = asyncio.run(measure(api, args.nodes, args.gpus, args.minutes, args.drained))
    figures["api_server"] = server
    print(json.dumps(figures, indent=1))
    written = figures["idle"]["writes"]
    good = judge("writes while nothing changes", written, equal_to(0))
    others = figures["drained"]["received_bytes_of_other_nodes"]
    good &= judge("bytes of others' changes that a node's watch got", others, equal_to(0))
    path = results.write(
        "kubernetes_publish",
        is_simulated=True,
        device=f"SIMULATED nodes of {args.gpus} GPUs; {server}",
        parameters={"nodes": args.nodes, "gpus": args.gpus, "minutes": args.minutes, "drained": args.drained},
        goals={"idle_writes": 0, "received_bytes_of_other_nodes": 0},
        figures=figures,
        raw={},
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
