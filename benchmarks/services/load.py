"""Requests at a steady rate, whatever becomes of the ones before: an open loop, in one process."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import h11

DEADLINE_S = 60.0
_PIECE_BYTES = 65536


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
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter, h11.Connection]] = []

    async def ask(self) -> None:
        """One completion. A failure is anything but a whole answer of 200 with its text."""
        begun_s = time.perf_counter()
        try:
            answer = await asyncio.wait_for(self._ask(), DEADLINE_S)
            pid = answer["replica"]
            self._results.replicas[pid] = self._results.replicas.get(pid, 0) + 1
            if answer["choices"][0]["text"] != " token" * self._target.tokens:
                raise ValueError("another text")
        except (OSError, ValueError, KeyError, asyncio.TimeoutError, h11.ProtocolError) as error:
            self._results.failures.append(f"{type(error).__name__}: {error}")
        else:
            self._results.latencies_ms.append((time.perf_counter() - begun_s) * 1e3)

    async def _ask(self) -> dict[str, Any]:
        if self._idle:
            reader, writer, http = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._target.port)
            http = h11.Connection(h11.CLIENT)
        body = json.dumps({"model": "stub", "prompt": "x", "max_tokens": self._target.tokens}).encode()
        headers = [
            ("host", "127.0.0.1"),
            ("authorization", f"Bearer {self._target.token}"),
            ("content-type", "application/json"),
            ("content-length", str(len(body))),
        ]
        request = h11.Request(method="POST", target="/v1/completions", headers=headers)
        writer.write((http.send(request) or b"") + (http.send(h11.Data(data=body)) or b""))
        http.send(h11.EndOfMessage())
        status, data = 0, b""
        while True:
            event = http.next_event()
            if event is h11.NEED_DATA:
                http.receive_data(await reader.read(_PIECE_BYTES))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                data += event.data
            else:
                break
        if not isinstance(event, h11.EndOfMessage):
            raise OSError("the connection was closed")
        if status != 200:
            raise ValueError(f"{status} {data[:200]!r}")
        if http.our_state is h11.DONE:
            http.start_next_cycle()
            self._idle.append((reader, writer, http))
        else:
            writer.close()
        return dict(json.loads(data))

    def close(self) -> None:
        for _, writer, _ in self._idle:
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
