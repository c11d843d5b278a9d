"""What the API's peer proxy costs a unary call: gRPC's own socket against the public one, a call on each in turn.

A server in a process of its own answers at once, so that the difference is the proxy's alone. Used by daemon_control;
alone it prints its figures.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks import results
from vgpud.client.grpc_import import grpc

CALLS = 1000
WARM_UP = 200
METHOD = "/bench.Service/Answer"


async def serve(folder: Path) -> None:
    """Answers METHOD on the socket `inside` and through a proxy at `public` until its input ends."""
    from vgpud.api.peer_proxy import PeerProxy

    class Handler(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic for type checkers only
        def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
            async def answer(request: bytes, context: object) -> bytes:
                return request

            return grpc.unary_unary_rpc_method_handler(answer)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Handler(),))
    server.add_insecure_port(f"unix:{folder / 'inside'}")
    await server.start()
    await PeerProxy(folder / "inside").open(folder / "public", 0o600, -1)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.read)


def measure(calls: int = CALLS) -> dict[str, list[float]]:
    """Times of calls in us: `inside` without the proxy, `public` through it."""
    took: dict[str, list[float]] = {"inside": [], "public": []}
    with tempfile.TemporaryDirectory(prefix="vgd-") as name:
        command = [sys.executable, "-m", "benchmarks.door_cost", "--serve", name]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=results.ROOT, stdin=pipe, stdout=pipe, text=True) as server:
            assert server.stdin and server.stdout
            assert server.stdout.readline() == "ready\n"
            channels: dict[str, Any] = {which: grpc.insecure_channel(f"unix:{name}/{which}") for which in took}
            asks = {which: channel.unary_unary(METHOD) for which, channel in channels.items()}
            for number in range(WARM_UP + calls):
                for which, ask in asks.items():
                    begin_ns = time.perf_counter_ns()
                    ask(b"x" * 200)
                    if number >= WARM_UP:
                        took[which].append(round((time.perf_counter_ns() - begin_ns) / 1e3, 1))
            for channel in channels.values():
                channel.close()
            server.stdin.close()
    return took


def figures(took: dict[str, list[float]]) -> dict[str, float]:
    """Medians, and through the proxy over without it."""
    inside, public = (sorted(took[which])[len(took[which]) // 2] for which in ("inside", "public"))
    return {"call_us": inside, "call_through_door_us": public, "door_ratio": public / inside}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        asyncio.run(serve(Path(sys.argv[2])))
    else:
        print(json.dumps(figures(measure())))
