"""What `vgpu service` says to a balancer, and to whom it says nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from vgpud.core.jobs.session import TOKEN
from vgpud.errors import CliError
from vgpud.services.shell.control_client import Balancer
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: takes one connection and prints what it is sent
LISTENER = """
import os, socket, sys
os.setuid(int(sys.argv[1]))
server = socket.create_server(("127.0.0.1", 0))
print(server.getsockname()[1], flush=True)
client, _ = server.accept()
client.settimeout(20)
print(client.recv(65536), flush=True)
"""
OTHER_UID = 65534


@pytest.mark.skipif(os.geteuid() != 0, reason="starts a program of another user, which only root may")
def test_another_users_program_at_its_port_gets_no_token() -> None:
    command = [sys.executable, "-c", LISTENER, str(OTHER_UID)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as taker:
        assert taker.stdout
        port = int(taker.stdout.readline())
        job = pb.Job(job_id=7, uid=os.geteuid(), session_port=port)
        job.spec.environment[TOKEN] = "secret"
        with pytest.raises(CliError, match=f"uid {OTHER_UID} does"):
            asyncio.run(Balancer(job).status())
        assert taker.stdout.readline() == "b''\n"
