"""The form that queues a job, and the prediction that fills in its size."""

from __future__ import annotations

import math
import os
import pwd
import shlex
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from starlette.requests import Request
from starlette.responses import Response

from vgpud.cli.common.times import Begin
from vgpud.cli.jobs.notify_options import Events
from vgpud.client.arrays import parse_array, set_array
from vgpud.console.live.board import Board
from vgpud.console.live.data import span
from vgpud.console.login.client import RefusedError, User
from vgpud.console.pages import commands
from vgpud.console.web.site import Form, back_to, board_of, get, page, post, site_of, user_of
from vgpud.core.units import MILLI_PER_DEVICE, UnitError, format_bytes, format_gpus, parse_bytes, parse_gpus
from vgpud.errors import CliError
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1.words import NOTIFICATION_EVENT
from vgpud.view.spans import parse_span

#: a model that is copied for the prediction
MODEL_BYTES_MAX = 2 << 30
_PIECE_BYTES = 1 << 20
OPTIMIZERS = ("none", "sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw")
PRECISIONS = ("fp32", "fp16", "bf16")
#: as `vgpu submit --predict` rounds
_STEP_MILLI, _STEP_BYTES = 50, 64 << 20
_UMASK = 0o022


def spec_of(form: Form, user: User, environments: Sequence[pb.Environment] = ()) -> pb.JobSpec:
    """The job of a form. `environments`: those of the site. Raises ValueError, one sentence that names the field."""
    command = form.get("command", "").strip()
    image = form.get("image", "").strip()
    environment_name = form.get("environment_name", "").strip()
    environment = next((one for one in environments if one.name == environment_name), None)
    if not (command or image or environment_name):
        raise ValueError("a job needs a command, an image, or an environment of the site")
    has_size = form.get("gpus", "").strip() or not environment_name
    share = pb.SliceSpec(gpus_milli=_field(form, "gpus", parse_gpus) if has_size else 0)
    for name in ("min", "max"):
        if form.get(name, "").strip():
            setattr(share, f"{name}_milli", _field(form, name, lambda text: parse_gpus(text, zero=True)))
    if form.get("mem", "").strip():
        share.mem_min_bytes = share.mem_max_bytes = _field(form, "mem", parse_bytes)
    spec = pb.JobSpec(slice=share, members=_number(form, "members", 1, 1024, 1), umask=_UMASK, image=image)
    spec.environment_name = environment_name
    spec.command.extend(["/bin/sh", "-c", command] if form.get("shell") == "yes" and command else _words(command))
    spec.name, spec.queue, spec.log = (form.get(name, "").strip() for name in ("name", "queue", "log"))
    spec.priority = _number(form, "priority", -1000, 1000, 0)
    spec.retries = _number(form, "retries", 0, 1000, 0)
    spec.hold = form.get("hold") == "yes"
    if form.get("array", "").strip():
        set_array(spec, *_field(form, "array", parse_array))
    if form.get("begin", "").strip():
        spec.begin_time.FromNanoseconds(_field(form, "begin", lambda text: Begin().convert(text, None, None)))
    _notification(spec, form)
    for name, field in (("time_limit", spec.time_limit), ("expected", spec.expected_duration)):
        if form.get(name, "").strip():
            field.CopyFrom(span(_field(form, name, parse_span)))
    home = pwd.getpwuid(user.uid)
    spec.directory = os.path.join(home.pw_dir, form.get("directory", "").strip())
    if not image and not (environment and environment.defaults.image):
        own = {"HOME": home.pw_dir, "USER": home.pw_name, "LOGNAME": home.pw_name, "SHELL": home.pw_shell}
        of_site = environment.defaults.environment if environment else {}
        for name, value in {**own, "PATH": "/usr/local/bin:/usr/bin:/bin"}.items():
            if name not in of_site:
                spec.environment[name] = value
    for line in form.get("environment", "").splitlines():
        name, equals, value = line.strip().partition("=")
        if name and not equals:
            raise ValueError(f"environment {line!r} is not a variable: write NAME=VALUE, one in a line")
        if name:
            spec.environment[name] = value
    return spec


def _notification(spec: pb.JobSpec, form: Form) -> None:
    """The command's program is not looked for: the console may see more of this machine than the user does."""
    mail, webhook, command = (form.get(f"notify_{way}", "").strip() for way in ("mail", "webhook", "command"))
    words = _words(command)
    if words and not words[0].startswith("/"):
        raise ValueError(f"notify_command: write the whole path of {words[0]!r}")
    if form.get("notify", "").strip():
        events = _field(form, "notify", lambda text: Events().convert(text, None, None))
        spec.notification.events.extend(map(NOTIFICATION_EVENT.to_number, events))
        if not (mail or webhook or words):
            raise ValueError("notify: write where the news goes: an address, a URL or a command")
    if mail or webhook or words:
        spec.notification.mail, spec.notification.webhook = mail, webhook
        spec.notification.command.extend(words)


def _field(form: Form, name: str, parse: Any) -> Any:
    try:
        return parse(form.get(name, "").strip())
    except click.UsageError as error:
        raise ValueError(f"{name}: {error.message}") from error
    except (UnitError, ValueError) as error:
        raise ValueError(f"{name}: {error}") from error


def _number(form: Form, name: str, low: int, high: int, default: int) -> int:
    text = form.get(name, "").strip()
    if not text:
        return default
    if not text.lstrip("-").isdigit() or len(text) > 9 or not low <= int(text) <= high:
        raise ValueError(f"{name}: {text!r} is not a whole number from {low} to {high}")
    return int(text)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise ValueError(f"command: {error}: close the quote, or choose the shell") from error


async def form_page(request: Request) -> Response:
    return page(request, "submit.html", **_values({}, await _find_environments(board_of(request))), refusal="")


async def _find_environments(board: Board) -> list[pb.Environment]:
    """None of a daemon that does not answer: the form is there without them."""
    try:
        return await board.api.environments()
    except CliError:
        return []


def _values(form: Form, environments: Sequence[pb.Environment]) -> dict[str, object]:
    given = dict(form) if form else {"gpus": "0.5", "request_id": str(uuid.uuid4())}
    return {"given": given, "optimizers": OPTIMIZERS, "precisions": PRECISIONS, "environments": environments}


async def submit(request: Request, form: Form) -> Response:
    """Queues the job. Refused: the form again, as it was filled in. The same form never queues twice."""
    site, user, board = site_of(request), user_of(request), board_of(request)
    environments = await _find_environments(board)
    try:
        ids = await board.api.submit(spec_of(form, user, environments), form.get("request_id") or str(uuid.uuid4()))
    except (CliError, ValueError) as error:
        sentence = error.message if isinstance(error, CliError) else str(error)
        kept = {name: value for name, value in form.items() if name != "csrf"} | {"request_id": str(uuid.uuid4())}
        return site.page(request, "submit.html", 422, **_values(kept, environments), refusal=sentence)
    many = f"Jobs {ids[0]} to {ids[-1]} were" if len(ids) > 1 else f"Job {ids[0]} was"
    site.flash(user, "done", f"{many} queued.")
    return back_to(f"/job/{ids[0]}")


# ---- prediction ----


async def predict(request: Request, form: Form) -> Response:
    """The size that a model needs, as a fragment with the filled fields, or the sentence why there is none."""
    site = site_of(request)
    given = {name: form.get(name, "") for name in ("gpus", "mem")}
    try:
        found = await _predict_size(request, form)
    except (ValueError, RefusedError) as error:
        html = site.templates.render("live/size.html", given=given, refusal=str(error), found=None)
        return Response(html, media_type="text/html")
    if found["in_range"] and found["utilisation"]:
        milli = math.ceil(found["utilisation"]["value"] * MILLI_PER_DEVICE / _STEP_MILLI) * _STEP_MILLI
        given["gpus"] = format_gpus(min(MILLI_PER_DEVICE, max(_STEP_MILLI, milli)))
    high = -(-found["memory_bytes"]["high"] // _STEP_BYTES) * _STEP_BYTES
    given["mem"] = f"{high >> 20}M"
    found["memory"] = {name: format_bytes(value) for name, value in found["memory_bytes"].items()}
    html = site.templates.render("live/size.html", given=given, refusal="", found=found)
    return Response(html, media_type="text/html")


async def _predict_size(request: Request, form: Form) -> Any:
    """What `vgpu predict` says of a copy of the model. Raises ValueError, RefusedError."""
    path = form.get("model", "").strip()
    if not path.startswith("/") or not path.endswith((".onnx", ".pt2")):
        raise ValueError("write the absolute path of a file.onnx or file.pt2 on this machine")
    devices = sorted({device.name for device in board_of(request).devices})
    if not devices:
        raise ValueError("this node has no device to predict for")
    user = user_of(request)
    fd = await site_of(request).broker.read_as(user, user.uid, path)
    with tempfile.TemporaryDirectory(prefix="vgpu-console-model-") as folder:
        copy = Path(folder) / f"model{Path(path).suffix}"
        _copy(fd, copy)
        options = ["--gpu", devices[0], "--optimizer", _one_of(form, "optimizer", OPTIMIZERS)]
        options += ["--precision", _one_of(form, "precision", PRECISIONS)]
        batch = _number(form, "batch", 1, 1 << 24, 0)
        return await commands.run(["predict", str(copy), *options, *(["--batch", str(batch)] if batch else [])])


def _copy(fd: int, path: Path) -> None:
    with os.fdopen(fd, "rb") as source, path.open("wb") as copy:
        if os.fstat(source.fileno()).st_size > MODEL_BYTES_MAX:
            raise ValueError(f"the model has more than {format_bytes(MODEL_BYTES_MAX)}: use vgpu predict")
        while piece := source.read(_PIECE_BYTES):
            copy.write(piece)


def _one_of(form: Form, name: str, choices: tuple[str, ...]) -> str:
    given = form.get(name, "")
    if given not in choices:
        raise ValueError(f"{name} {given!r} is unknown: choose one of {', '.join(choices)}")
    return given


ROUTES = [
    get("/submit", form_page),
    post("/submit", submit),
    post("/submit/predict", predict),
]
