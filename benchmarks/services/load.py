"""Requests at a steady rate, whatever becomes of the ones before: an open loop, in one process."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

DEADLINE_S = 60.0
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass
class Results:
    """Of requests, in the order of their answers."""

    latencies_ms: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    replicas: dict[int, int] = field(default_factory=dict)  # answers by pid


@dataclass(frozen=True)
class Target:
    port: int
    token: str
    tokens: int  # of each completion


class Client:
    """Connections are kept and used again, as clients' libraries do."""

    def __init__(self, target: Target, results: Results) -> None:
        self._target, self._results = target, results
        self._idle: list[Pair] = []
        body = json.dumps({"model": "stub", "prompt": "x", "max_tokens": target.tokens}).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {target.token}\r\n"
        self._request = f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body

    async def ask(self) -> None:
        """One completion. A failure is anything but a whole answer of 200 with its text."""
        begun_s = time.perf_counter()
        try:
            answer = await asyncio.wait_for(self._ask(), DEADLINE_S)
            pid = answer["replica"]
            self._results.replicas[pid] = self._results.replicas.get(pid, 0) + 1
            if answer["choices"][0]["text"] != " token" * self._target.tokens:
                raise ValueError("another text")
        except (OSError, ValueError, KeyError, asyncio.TimeoutError, EOFError) as error:
            self._results.failures.append(f"{type(error).__name__}: {error}")
        else:
            self._results.latencies_ms.append((time.perf_counter() - begun_s) * 1e3)

    async def _ask(self) -> dict[str, Any]:
        """Reads answers with a Content-Length, as the balancer sends those of the stub."""
        reader, writer = self._idle.pop() if self._idle else await self._connect()
        writer.write(self._request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        size = int(head.partition(b"\r\ncontent-length:")[2].partition(b"\r\n")[0])
        data = await reader.readexactly(size)
        if not head.startswith(b"http/1.1 200 "):
            raise ValueError(f"{head[:15]!r} {data[:200]!r}")
        if b"\r\nconnection: close\r\n" in head:
            writer.close()
        else:
            self._idle.append((reader, writer))
        return dict(json.loads(data))

    async def _connect(self) -> Pair:
        return await asyncio.open_connection("127.0.0.1", self._target.port)

    def close(self) -> None:
        for _, writer in self._idle:
            writer.close()


async def send_requests(target: Target, per_s: float, stop: asyncio.Event, results: Results) -> None:
    """`per_s` requests a second until `stop`, then waits for the last answers."""
    client = Client(target, results)
    tasks: set[asyncio.Task[None]] = set()
    due_s = time.perf_counter()
    while not stop.is_set():
        task = asyncio.create_task(client.ask())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        due_s += 1 / per_s
        await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
    await asyncio.gather(*tasks)
    client.close()
