"""A neighbour of the attacker who makes one kind of call again and again: `neighbour UID KIND WHERE`.

Prints a JSON line for each: when it began, what it took, and why it was refused ("" when it was not).

attach WHERE  attaches to the slice of this socket, from a new process each time: a known one has its place already
list WHERE    ListSlices at this target of the API
submit WHERE  SubmitJob there, of a job that is held
metrics WHERE the metrics at HOST:PORT; page: the console's log-in page there; tls: a TLS handshake there
link WHERE    a one-time link of the console at this socket
device WHERE  a request to the simulated device in this folder
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable
from pathlib import Path

import google.rpc.error_details_pb2  # type: ignore[import-untyped]  # noqa: F401  for the words of a refusal
import grpc_status.rpc_status  # noqa: F401

from benchmarks.hostile import users
from tests.attach import client as wire
from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.client import calls
from vgpud.console.login import wire as wire_errors
from vgpud.console.login.broker import link
from vgpud.errors import CliError, DriverError
from vgpud.simdevice import control
from vgpud.v1alpha1 import vgpud_pb2 as pb

PAUSE_S = 0.01
TIMEOUT_S = 30.0


class Refused(Exception):
    """The daemon's reason."""


def attach_once(path: str) -> None:
    """Raises Refused."""
    try:
        tenant = wire.attach(path)
    except (OSError, AssertionError) as error:
        raise Refused(f"{path}: {error}") from error
    tenant.close()
    if tenant.status != wire.OK:
        raise Refused(tenant.text)


def held_job(milli: int = 100) -> pb.JobSpec:
    """A job that never starts."""
    return pb.JobSpec(slice=pb.SliceSpec(gpus_milli=milli), command=["/bin/true"], directory="/", hold=True)


def get_once(where: str, path: str) -> None:
    """Raises Refused, OSError."""
    connection = http.client.HTTPConnection(where, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        answer.read()
    except http.client.HTTPException as error:
        raise Refused(f"{where}{path}: {error!r}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Refused(f"{where}{path}: {answer.status}")


def shake_hands(where: str) -> None:
    """Up to where a certificate would be asked for. Raises OSError."""
    host, _, port = where.rpartition(":")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, int(port)), TIMEOUT_S) as sock, context.wrap_socket(sock):
        pass


def caller(kind: str, where: str) -> Callable[[], object]:
    """The call. A client's methods raise CliError."""
    if kind == "attach":
        return lambda: attach_once(where)
    if kind in ("metrics", "page"):
        return lambda: get_once(where, "/metrics" if kind == "metrics" else "/login")
    if kind == "link":
        return lambda: link(Path(where), TIMEOUT_S)
    if kind == "tls":
        return lambda: shake_hands(where)
    if kind == "device":
        return lambda: control.tell_mode(Path(where), 0, "shared")
    client = Client(Settings(host=where, timeout_s=TIMEOUT_S))
    return (lambda: client.all(calls.slices())) if kind == "list" else lambda: client.send(calls.submit(held_job()))


def measure(call: Callable[[], object]) -> None:
    """One call, and its line."""
    begin_ns, refused = time.monotonic_ns(), ""
    try:
        call()
    except (Refused, CliError, DriverError, OSError, ValueError, wire_errors.GoneError) as error:
        refused = str(error) or "no reason given"
    took_ms = (time.monotonic_ns() - begin_ns) / 1e6
    print(json.dumps({"time_ns": begin_ns, "took_ms": took_ms, "refused": refused}), flush=True)


def main() -> None:
    """Until it is ended."""
    uid, kind, where = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    call = caller(kind, where)
    if uid != 0:
        call()  # grpc imports what it needs when it needs it
        users.become(uid)
        call = caller(kind, where)  # a connection stays that of the user who made it
    while True:
        if kind != "attach":
            measure(call)
        elif child := os.fork():
            os.waitpid(child, 0)
        else:
            measure(call)
            os._exit(0)
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    main()
