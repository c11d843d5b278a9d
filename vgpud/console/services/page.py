"""The page of services: replicas and their health, addresses, changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from vgpud.console.services import changes
from vgpud.console.services.balancer import list_balancers, need_balancer
from vgpud.console.web.site import Form, act, board_of, fragment, get, page, post, user_of
from vgpud.errors import CliError
from vgpud.services.core.model import Service
from vgpud.services.shell.control_client import Balancer
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.services import service_row

#: services whose balancers are asked at once
_ASKED_AT_ONCE = 8


async def _rows(request: Request) -> dict[str, object]:
    """Raises CliError."""
    if request.state.node:
        return {"rows": [], "is_elsewhere": True}
    api, uid = board_of(request).api, user_of(request).uid
    jobs = await list_balancers(api)
    places = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def look(job: pb.Job) -> dict[str, Any]:
        status: dict[str, Any] = {}
        why = ""
        record: Service | None = None
        if job.uid == uid:
            async with places:
                try:
                    balancer = Balancer(await api.job(job.job_id))
                    status, record = await balancer.status(), await balancer.record()
                except CliError as error:
                    status, why = {}, error.message
        row = {**service_row(job, status, uid), "status": status, **_sizes(record)}
        return {**row, "state": why} if why else row

    return {"rows": list(await asyncio.gather(*map(look, jobs))), "is_elsewhere": False}


def _sizes(service: Service | None) -> dict[str, Any]:
    """Of the forms: GPUs of a replica, in thousandths, and after which time it sleeps, in ns."""
    if service is None:
        return {"gpus_milli": 0, "idle_ns": 0}
    gpus_milli = service.template.get("slice", {}).get("gpusMilli", 0)
    return {"gpus_milli": int(gpus_milli), "idle_ns": int(service.idle_s * 1e9)}


async def services_page(request: Request) -> Response:
    return page(request, "services.html", **await _rows(request))


async def services_part(request: Request) -> Response:
    return fragment(request, "live/services.html", **await _rows(request))


Change = Callable[[Service, Form], Service]


def _action(do: Change | None, done: str) -> Callable[[Request, Form], Any]:
    """`do` None: the service is stopped."""

    async def action(request: Request, form: Form) -> Response:
        name = request.path_params["name"]

        async def work() -> None:
            balancer = await need_balancer(board_of(request).api, user_of(request).uid, name)
            if do is None:
                await balancer.stop()
            else:
                await balancer.change(do(await balancer.record(), form))

        return await act(request, work(), f"Service {name} {done}.", "/services")

    return action


ROUTES = [
    get("/services", services_page),
    get("/services/part", services_part),
    post("/services/{name}/scale", _action(changes.scale, "was scaled")),
    post("/services/{name}/restart", _action(changes.restart, "replaces its replicas, one at a time")),
    post("/services/{name}/update", _action(changes.update, "was changed")),
    post("/services/{name}/stop", _action(None, "ends: its replicas answer what they have first")),
]
