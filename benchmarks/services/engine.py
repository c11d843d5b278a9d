"""A stub that behaves like `vllm serve MODEL`: takes its part of the device's memory when it starts, answers /health,
/v1/models and /v1/completions, whole or as a stream, and computes a kernel for each token. Its tokens say nothing.

    python -m benchmarks.services.engine serve MODEL --port 8000 --gpu-memory-utilization 0.9
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Any

from vgpud.simdevice.load import Program, Shape

KERNEL_US = 100
BODY_BYTES_MAX = 1 << 20
TOKENS_MAX = 4096


def total_bytes(library: str = "libcuda.so.1") -> int:
    """The memory of the device, as this process sees it: in a slice, the slice's."""
    driver = ctypes.CDLL(library)
    size, device = ctypes.c_size_t(), ctypes.c_int()
    for code in (
        driver.cuInit(0),
        driver.cuDeviceGet(ctypes.byref(device), 0),
        driver.cuDeviceTotalMem_v2(ctypes.byref(size), device),
    ):
        if code:
            raise SystemExit(f"the driver answers {code}: no device here")
    return size.value


class Engine:
    """The model. One thread has the device and computes the next token of all requests at once, as an engine's loop
    does."""

    def __init__(self, model: str, utilization: float, key: str) -> None:
        self.model, self.key = model, key
        self._thread = ThreadPoolExecutor(max_workers=1)
        size = int(total_bytes() * utilization)
        self._program = self._thread.submit(Program, Shape(1, KERNEL_US, memory_bytes=size)).result()
        self._batch: list[asyncio.Future[None]] = []
        self._is_due = asyncio.Event()
        print(f"SIMULATED engine for {model}: {size >> 20} MiB of device memory are taken", flush=True)

    async def run(self) -> None:
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            batch, self._batch = self._batch, []
            await asyncio.get_running_loop().run_in_executor(self._thread, self._run_kernel)
            for one in batch:
                if not one.done():
                    one.set_result(None)

    def _run_kernel(self) -> None:
        may_continue = iter((True, False))
        for _ in self._program.steps(lambda: next(may_continue)):
            pass

    async def compute_token(self) -> str:
        token: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._batch.append(token)
        self._is_due.set()
        await token
        return " token"


class Server:
    """HTTP/1.1, as much of it as a balancer speaks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        with contextlib.suppress(EOFError, OSError, asyncio.LimitOverrunError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                first, *lines = head.split("\r\n")
                headers = {
                    name.strip().lower(): text.strip() for name, _, text in (one.partition(":") for one in lines)
                }
                body = await reader.readexactly(min(int(headers.get("content-length") or 0), BODY_BYTES_MAX))
                method, path, _ = first.split(" ", 2)
                await self._answer(writer, method, path, headers, body)
                await writer.drain()
        writer.close()

    async def _answer(
        self, writer: asyncio.StreamWriter, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> None:
        if path == "/health":
            _send(writer, 200, {})
        elif self._engine.key and headers.get("authorization") != f"Bearer {self._engine.key}":
            _send(writer, 401, {"error": "Unauthorized"})
        elif (method, path) == ("GET", "/v1/models"):
            _send(writer, 200, {"object": "list", "data": [{"id": self._engine.model, "object": "model"}]})
        elif (method, path) == ("POST", "/v1/completions"):
            await self._complete(writer, body)
        else:
            _send(writer, 404, {"error": {"message": "Not Found"}})

    async def _complete(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        try:
            asked = json.loads(body)
            tokens = min(int(asked.get("max_tokens", 16)), TOKENS_MAX)
            is_stream = bool(asked.get("stream"))
        except (ValueError, AttributeError, TypeError) as error:
            _send(writer, 400, {"error": {"message": str(error)}})
            return
        if not is_stream:
            _send(writer, 200, self._describe("".join([await self._engine.compute_token() for _ in range(tokens)])))
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(tokens):
            line = f"data: {json.dumps(self._describe(await self._engine.compute_token()))}\n\n"
            writer.write(_chunk(line.encode()))
            await writer.drain()
        writer.write(_chunk(b"data: [DONE]\n\n") + _chunk(b""))

    def _describe(self, text: str) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "finish_reason": "length"}
        return {"object": "text_completion", "model": self._engine.model, "choices": [choice], "replica": os.getpid()}


def _send(writer: asyncio.StreamWriter, status: int, value: dict[str, Any]) -> None:
    body = json.dumps(value).encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


async def serve(options: argparse.Namespace) -> None:
    """Serves until it is ended."""
    engine = Engine(options.model, options.gpu_memory_utilization, os.environ.get("VLLM_API_KEY", ""))
    server = await asyncio.start_server(Server(engine).serve, options.host, options.port, backlog=1024)
    await asyncio.gather(engine.run(), server.serve_forever())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--gpu-memory-utilization", type=float, default=0.9)
    parser.add_argument("--load-seconds", type=float, default=0.0, help="how long the model takes to load")
    asked = parser.parse_args()
    time.sleep(asked.load_seconds)
    asyncio.run(serve(asked))


if __name__ == "__main__":
    main()
