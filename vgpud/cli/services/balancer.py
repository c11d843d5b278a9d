"""The balancer of a service, as `vgpu service` finds it."""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from vgpud.cli.common.options import Settings
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.services.shell.control_client import Balancer
    from vgpud.v1alpha1 import vgpud_pb2 as pb

T = TypeVar("T")


def check_installed() -> None:
    """Raises CliError."""
    if importlib.util.find_spec("h11") is None:
        raise CliError("services need the package h11: pip install 'vgpud[service]'", ExitCode.USAGE)


def ask(question: Coroutine[Any, Any, T]) -> T:
    """The answer of a balancer. Raises CliError."""
    return asyncio.run(question)


def find_jobs(settings: Settings, kind: str, name: str = "", *, own: bool = True) -> list[pb.Job]:
    """The jobs of services that have not ended: of this kind, a word of session.OF_SERVICES. `own` False: of all users
    that the caller may see."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    with Client(settings) as client:
        uid = client.own_uid if own else None
        jobs = client.all(calls.jobs(False, "", uid))
    return [job for job in jobs if job.spec.session == kind and name in ("", job.spec.name)]


def find_balancer(settings: Settings, name: str) -> Balancer | None:
    """That of the caller's service with this name; None: there is none. Raises CliError."""
    from vgpud.core.jobs.session import BALANCER

    found = find_jobs(settings, BALANCER, name)
    return balancer_of(settings, found[0].job_id) if found else None


def balancer_of(settings: Settings, job_id: int) -> Balancer:
    """The one that is this job. Raises CliError."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    check_installed()
    from vgpud.services.shell.control_client import Balancer

    with Client(settings) as client:
        return Balancer(client.send(calls.job(job_id)), settings.timeout_s)


def need_balancer(settings: Settings, name: str) -> Balancer:
    """Raises CliError."""
    from vgpud.cli.common.target import check_local

    check_local(settings, "vgpu service", "log in there, or name the jobs of the service: `vgpu job ls`")
    found = find_balancer(settings, name)
    if found is None:
        raise CliError(f"no service {name} runs: `vgpu service ls` lists yours", ExitCode.NOT_FOUND)
    return found
