"""A stub that behaves like `vllm serve MODEL`: takes its part of the device's memory when it starts, answers /health,
/v1/models and /v1/completions, whole or as a stream, and computes a kernel for each token. Its tokens say nothing.

    python -m benchmarks.services.engine serve MODEL --port 8000 --gpu-memory-utilization 0.9
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
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
    """The model. One thread has the device and computes for all requests, as an engine's one loop does."""

    def __init__(self, model: str, utilization: float, key: str) -> None:
        self.model, self.key = model, key
        self._loop = ThreadPoolExecutor(max_workers=1)
        size = int(total_bytes() * utilization)
        shape = Shape(kernels=1, kernel_us=KERNEL_US, memory_bytes=size)
        self._program = self._loop.submit(Program, shape).result()
        print(f"SIMULATED engine for {model}: {size >> 20} MiB of device memory are taken", flush=True)

    def compute_token(self) -> str:
        self._loop.submit(self._run_kernel).result()
        return " token"

    def _run_kernel(self) -> None:
        may_continue = iter((True, False))
        for _ in self._program.steps(lambda: next(may_continue)):
            pass


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    engine: Engine
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing for each request."""

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, {})
        elif self._is_allowed() and self.path == "/v1/models":
            self._send(200, {"object": "list", "data": [{"id": self.engine.model, "object": "model"}]})
        elif self._is_allowed():
            self._send(404, {"error": {"message": "Not Found"}})
        else:
            self._send(401, {"error": "Unauthorized"})

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(min(size, BODY_BYTES_MAX))
        if not self._is_allowed():
            self._send(401, {"error": "Unauthorized"})
            return
        if self.path != "/v1/completions":
            self._send(404, {"error": {"message": "Not Found"}})
            return
        try:
            asked = json.loads(body)
            tokens = min(int(asked.get("max_tokens", 16)), TOKENS_MAX)
            is_stream = bool(asked.get("stream"))
        except (ValueError, AttributeError, TypeError) as error:
            self._send(400, {"error": {"message": str(error)}})
            return
        if is_stream:
            self._stream(tokens)
            return
        text = "".join(self.engine.compute_token() for _ in range(tokens))
        self._send(200, self._completion(text))

    def _is_allowed(self) -> bool:
        return not self.engine.key or self.headers.get("authorization") == f"Bearer {self.engine.key}"

    def _completion(self, text: str) -> dict[str, Any]:
        choice = {"index": 0, "text": text, "finish_reason": "length"}
        return {"object": "text_completion", "model": self.engine.model, "choices": [choice], "replica": os.getpid()}

    def _send(self, status: int, value: dict[str, Any]) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _stream(self, tokens: int) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for _ in range(tokens):
            self._write_chunk(f"data: {json.dumps(self._completion(self.engine.compute_token()))}\n\n".encode())
        self._write_chunk(b"data: [DONE]\n\n")
        self._write_chunk(b"")

    def _write_chunk(self, data: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))


class Server(ThreadingHTTPServer):
    request_queue_size = 1024


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
    Handler.engine = Engine(asked.model, asked.gpu_memory_utilization, os.environ.get("VLLM_API_KEY", ""))
    Server((asked.host, asked.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
