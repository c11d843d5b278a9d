"""Unix sockets on which kubelet calls."""

from __future__ import annotations

from pathlib import Path

import grpc


def listen(server: grpc.aio.Server, path: Path) -> None:
    """Adds a socket to a server that is not started yet, in place of one that another process left. Raises OSError."""
    path.unlink(missing_ok=True)
    try:
        server.add_insecure_port(f"unix://{path}")
    except RuntimeError as error:
        raise OSError(None, f"cannot listen on {path}: does its folder exist?") from error
