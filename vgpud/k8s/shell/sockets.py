"""Unix sockets on which kubelet calls."""

from __future__ import annotations

from pathlib import Path

import grpc

from vgpud.host.listeners import KUBELET


def make_server() -> grpc.aio.Server:
    """A server with the bounds of kubelet's sockets."""
    deadline_ms = int(KUBELET.deadline_s * 1000)
    options = [("grpc.server_handshake_timeout_ms", deadline_ms), ("grpc.max_concurrent_streams", KUBELET.all_max)]
    return grpc.aio.server(maximum_concurrent_rpcs=KUBELET.all_max, options=options)


def listen(server: grpc.aio.Server, path: Path) -> None:
    """Adds a socket to a server that is not started yet, in place of one that another process left. Raises OSError."""
    path.unlink(missing_ok=True)
    try:
        server.add_insecure_port(f"unix://{path}")
    except RuntimeError as error:
        raise OSError(None, f"cannot listen on {path}: does its folder exist?") from error
