"""The start of a service: its form, and the job of its balancer, which finds the record in its environment. The console
writes nothing into the user's files."""

from __future__ import annotations

import asyncio
import pwd
import re
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from vgpud import paths
from vgpud.console.login.client import User
from vgpud.console.pages.submit import find_environments
from vgpud.console.pages.submit_form import FieldError, own_variables
from vgpud.console.services.balancer import find_balancer, need_balancer
from vgpud.console.services.form import form_of, service_of
from vgpud.console.web.site import Form, back_to, board_of, get, page, post, site_of, user_of
from vgpud.core.jobs.session import SERVICE_RECORD
from vgpud.core.model import CLASSES
from vgpud.errors import CliError
from vgpud.services.core.model import RESTARTS, Service
from vgpud.services.shell.starting import check_port, fill_balancer
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: of a record: the kernel takes no longer variable (execve(2): 128 KiB)
RECORD_BYTES_MAX = 96 * 1024
_UMASK = 0o077
_ELSEWHERE = "a service of another node is started in that node's own console, or there by `vgpu service start`"
_NUMBERED = re.compile(r"-(\d{1,4})$")


async def form_page(request: Request) -> Response:
    """An empty form; with `like` in the address that of a service that runs."""
    like = request.query_params.get("like", "")[:40]
    environments = await find_environments(board_of(request))
    given: Mapping[str, str] = {"gpus": "0.5"}
    if like and not request.state.node:
        balancer = await need_balancer(board_of(request).api, user_of(request).uid, like)
        given = form_of(await balancer.record(), user_of(request)) | {"name": name_copy(like)}
    refusal = _ELSEWHERE if request.state.node else ""
    return page(request, "service_form.html", **_values(given, environments), refusal=refusal, refusals={}, like=like)


def name_copy(name: str) -> str:
    """Of a service like this one: chat-2, then chat-3."""
    number = _NUMBERED.search(name)
    base = name[: number.start()] if number else name
    suffix = f"-{int(number.group(1)) + 1 if number else 2}"
    return base[: 40 - len(suffix)].rstrip("-") + suffix


def _values(form: Mapping[str, str], environments: Sequence[pb.Environment]) -> dict[str, object]:
    given = {"request_id": str(uuid.uuid4()), **form}
    return {"given": given, "environments": environments, "classes": CLASSES, "restarts": RESTARTS}


async def start(request: Request, form: Form) -> Response:
    """Refused: the form again, as it was filled in, with the reason at its field. The same form never starts twice."""
    site, user, board = site_of(request), user_of(request), board_of(request)
    environments = await find_environments(board)
    try:
        if request.state.node:
            raise ValueError(_ELSEWHERE)
        service = service_of(form, user, environments)
        if await find_balancer(board.api, user.uid, service.name) is not None:
            raise FieldError("name", f"service {service.name} runs already: choose another name, or stop it first")
        if service.port:
            await _check_port(service)
        await board.api.submit(make_balancer_job(service, user), form.get("request_id") or str(uuid.uuid4()))
    except (CliError, ValueError) as error:
        sentence = error.message if isinstance(error, CliError) else str(error)
        refusals = {error.field: sentence} if isinstance(error, FieldError) else {}
        kept = {name: value for name, value in form.items() if name not in ("csrf", "request_id")}
        values = {**_values(kept, environments), "refusal": sentence, "refusals": refusals}
        return site.page(request, "service_form.html", 422, **values, like="")
    site.flash(user, "done", f"Service {service.name} starts.")
    return back_to("/services")


async def _check_port(service: Service) -> None:
    """As far as another program can say: the balancer tries again. Raises FieldError."""
    try:
        await asyncio.to_thread(check_port, service.host, service.port)
    except CliError as error:
        raise FieldError("listen", error.message) from error


def make_balancer_job(service: Service, user: User) -> pb.JobSpec:
    """The job of its balancer. Raises ValueError."""
    home = pwd.getpwuid(user.uid)
    folder = paths.services_dir({"XDG_STATE_HOME": f"{home.pw_dir}/.local/state"}) / service.name
    spec = pb.JobSpec(members=1, umask=_UMASK, directory=home.pw_dir)
    fill_balancer(spec, service, str(folder))
    record = service.to_json()
    if len(record.encode()) > RECORD_BYTES_MAX:
        raise ValueError(f"what was entered has more than {RECORD_BYTES_MAX >> 10} KiB: put variables into a script")
    for name, value in own_variables(home, spec).items():
        spec.environment[name] = value
    spec.environment[SERVICE_RECORD] = record
    spec.log = str(Path(home.pw_dir) / f"vgpu-service-{service.name}.log").replace("%", "%%")
    return spec


ROUTES = [get("/services/new", form_page), post("/services/new", start)]
