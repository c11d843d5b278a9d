"""The start of a service: its address, and the job of its balancer."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from dataclasses import replace

from google.protobuf.duration_pb2 import Duration

from vgpud.core.jobs.session import BALANCER, balancer_command
from vgpud.errors import CliError, ExitCode, VgpudError
from vgpud.services.core.model import Service
from vgpud.services.shell.folder import Folder
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: the balancer starts again when it ends badly: as often as the queue allows
_RETRIES = 1000
#: of a balancer whose job is cancelled: its replicas are drained and ended meanwhile
_GRACE_S = 60
#: where a service listens that names no port: above those of sessions, below those that the kernel takes for itself
PORTS = range(30_000, 32_768)


def keep_address(folder: Folder, service: Service) -> Service:
    """One that ran before keeps its token, and its port where none is given: its clients know them."""
    try:
        before = folder.load()
    except VgpudError:  # what cannot be read is written again
        before = None
    if before is None:
        return service
    port = service.port or (before.port if before.host == service.host else 0)
    return replace(service, token=before.token, port=port, generation=before.generation + 1)


def choose_port(service: Service) -> Service:
    """With a port where it names none. Raises CliError: there is none at which it can listen."""
    if service.port:
        return service
    for port in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(CliError):
            check_port(service.host, port)
            return replace(service, port=port)
    raise CliError(f"cannot listen at {service.host}: choose another address with --listen", ExitCode.CONFLICT)


def check_port(host: str, port: int) -> None:
    """Raises CliError: another program listens there, or it may not be listened at."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(1)
        except OSError as error:
            text = f"cannot listen at {host} port {port}: {(error.strerror or str(error)).lower()}"
            raise CliError(f"{text}; choose another one with --port", ExitCode.CONFLICT) from error


def begin(folder: Folder, service: Service) -> None:
    """Takes over the record that this balancer was submitted with, once: when it is started again, the folder has what
    has become of it. Raises VgpudError."""
    if folder.is_begun_by(service.token):
        return
    folder.save(choose_port(keep_address(folder, service)))
    folder.note_begin(service.token)


def fill_balancer(spec: pb.JobSpec, service: Service, folder: str) -> None:
    """Makes the message that of a balancer's job; its submitter adds the environment, and where it writes."""
    spec.name, spec.session, spec.queue = service.name, BALANCER, str(service.template.get("queue", ""))
    spec.retries, spec.not_preemptible = _RETRIES, True
    spec.grace.CopyFrom(Duration(seconds=_GRACE_S))
    del spec.command[:]
    spec.command.extend(balancer_command(sys.executable, folder))
