"""The balancers of services, by the rights of the user who asks."""

from __future__ import annotations

from vgpud.console.live.data import Api
from vgpud.core.jobs import session
from vgpud.errors import CliError, ExitCode
from vgpud.services.shell.control_client import Balancer
from vgpud.v1alpha1 import vgpud_pb2 as pb

_ACTIVE = ("pending", "held", "running", "suspended")


async def list_balancers(api: Api) -> list[pb.Job]:
    """Of all services that the user may see. Raises CliError."""
    jobs = await api.jobs(_ACTIVE)
    return sorted((job for job in jobs if job.spec.session == session.BALANCER), key=lambda job: job.spec.name)


async def find_balancer(api: Api, uid: int, name: str) -> Balancer | None:
    """Of the service with this name that the user has; None: there is none. Raises CliError."""
    found = [job for job in await list_balancers(api) if job.spec.name == name and job.uid == uid]
    return Balancer(await api.job(found[0].job_id)) if found else None


async def need_balancer(api: Api, uid: int, name: str) -> Balancer:
    """The same, where there has to be one. Raises CliError."""
    found = await find_balancer(api, uid, name)
    if found is None:
        raise CliError(f"no service {name[:60]} of yours runs", ExitCode.NOT_FOUND)
    return found
