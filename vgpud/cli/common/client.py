"""The command line's client: vgpud.client's connection and calls, with answers as messages and errors as CliError.

Imported by the commands that talk to the daemon when they do: it loads grpc.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TypeVar

from vgpud.cli.common.options import Settings
from vgpud.cli.common.output import say
from vgpud.cli.common.starting import wait_for_starting_daemon
from vgpud.client import calls
from vgpud.client.calls import Call, Watched
from vgpud.client.connection import Connection
from vgpud.client.failures import ClientError
from vgpud.client.target import find_target, probe
from vgpud.errors import ExitCode, VgpudError
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.errors import make_cli_error

T = TypeVar("T")


def _is_starting(settings: Settings) -> bool:
    """Whether this machine's daemon, which did not answer, was starting, and does by now. One that was named, by an
    option or the environment, is not waited for: it may be any."""
    target, context = find_target(settings.host)
    if settings.host or os.environ.get("VGPU_HOST") or context:
        return False

    def answers() -> bool:
        try:
            probe(target)
        except VgpudError:
            return False
        return True

    return wait_for_starting_daemon(answers, settings.timeout_s, say)


class Client(Connection):
    """A connection to the daemon; use it in a `with`. Methods raise CliError."""

    def __init__(self, settings: Settings, check: bool = True) -> None:
        try:
            try:
                super().__init__(settings.host, timeout_s=settings.timeout_s, check=check)
            except VgpudError as error:
                if error.exit_code != ExitCode.UNREACHABLE or not _is_starting(settings):
                    raise
                super().__init__(settings.host, timeout_s=settings.timeout_s, check=check)
        except VgpudError as error:
            raise make_cli_error(error) from error

    def send(self, call: Call[T]) -> T:
        try:
            return super().send(call)
        except ClientError as error:
            raise make_cli_error(error, self.remote) from error

    def watch(self, watch_call: Watched[T]) -> Iterator[T]:
        try:
            yield from super().watch(watch_call)
        except ClientError as error:
            raise make_cli_error(error, self.remote) from error

    def find_simulated_indices(self) -> frozenset[int]:
        """The indices of the simulated devices."""
        return frozenset(device.index for device in self.all(calls.devices()) if device.simulated)

    def watch_jobs(self, job_ids: Sequence[int]) -> Iterator[pb.Job]:
        """These jobs' present state, then each job whenever it changes."""
        for jobs in self.watch(calls.watch_jobs(job_ids)):
            yield from jobs
