"""grpc beside forks: its handlers stay off in our processes, and no program that we start notices."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, subprocess, sys
if sys.argv[1] == "client":
    import vgpud.cli.common.client
import grpc
from concurrent import futures
assert "GRPC_ENABLE_FORK_SUPPORT" not in os.environ
server = grpc.server(futures.ThreadPoolExecutor(1))
server.add_insecure_port("unix:" + sys.argv[2])
server.start()
grpc.channel_ready_future(grpc.insecure_channel("unix:" + sys.argv[2])).result(30)
for _ in range(30):
    # preexec_fn makes subprocess fork, not vfork; where grpc's handlers run they end a child now and then (SIGABRT)
    subprocess.run(["true"], check=sys.argv[1] == "client", preexec_fn=lambda: None)
"""


@pytest.mark.parametrize("through", ["client", "grpc alone"])
def test_no_handler_of_grpc_runs_when_a_program_is_started(tmp_path: Path, through: str) -> None:
    """Without the client's setting grpc says at each fork that it looked at its threads: the counter-check."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, through, str(tmp_path / "s")],
        env={**environment, "GRPC_VERBOSITY": "INFO"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ("fork() handlers" in done.stderr) == (through != "client")
