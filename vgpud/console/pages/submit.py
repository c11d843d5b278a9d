"""The form that queues a job, and the prediction that fills in its size."""

from __future__ import annotations

import math
import os
import tempfile
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from vgpud.cli.common.quantities import Whole
from vgpud.cli.jobs.notify_options import EVENTS
from vgpud.console.live.board import Board
from vgpud.console.login.client import RefusedError
from vgpud.console.pages import commands
from vgpud.console.pages.submit_form import FieldError, form_of, read_field, spec_of
from vgpud.console.web.site import Form, address_of, back_to, board_of, get, page, post, site_of, user_of
from vgpud.core.model import CLASSES
from vgpud.core.units import MILLI_PER_DEVICE, format_bytes, format_gpus, parse_whole
from vgpud.errors import CliError
from vgpud.v1alpha1 import vgpud_pb2 as pb

_JOB_MAX = (1 << 63) - 1
#: a model that is copied for the prediction
MODEL_BYTES_MAX = 2 << 30
_PIECE_BYTES = 1 << 20
OPTIMIZERS = ("none", "sgd", "momentum", "adagrad", "rmsprop", "adam", "adamw")
PRECISIONS = ("fp32", "fp16", "bf16")
#: as `vgpu submit --predict` rounds
_STEP_MILLI, _STEP_BYTES = 50, 64 << 20
_BATCH: Any = Whole(1, 1 << 24)


async def form_page(request: Request) -> Response:
    """An empty form; with `like` in the address that of a job that there is."""
    like = parse_whole(request.query_params.get("like", ""), _JOB_MAX)
    environments = await find_environments(board_of(request))
    if not like:
        return page(request, "submit.html", **_values({}, environments), refusal="", refusals={}, like=0)
    job = await board_of(request).api.job(like)
    refusal = f"job {like} is a session: `vgpu session start` starts another one" if job.spec.session else ""
    given = form_of(job, user_of(request)) | {"request_id": str(uuid.uuid4())}
    return page(request, "submit.html", **_values(given, environments), refusal=refusal, refusals={}, like=like)


async def find_environments(board: Board) -> list[pb.Environment]:
    """None of a daemon that does not answer: the form is there without them."""
    try:
        return await board.api.environments()
    except CliError:
        return []


def _values(form: Form, environments: Sequence[pb.Environment]) -> dict[str, object]:
    given = dict(form) if form else {"gpus": "0.5", "request_id": str(uuid.uuid4())}
    fixed = {"optimizers": OPTIMIZERS, "precisions": PRECISIONS, "classes": CLASSES, "events": EVENTS}
    return {"given": given, "environments": environments, **fixed}


async def submit(request: Request, form: Form) -> Response:
    """Queues the job. Refused: the form again, as it was filled in. The same form never queues twice."""
    site, user, board = site_of(request), user_of(request), board_of(request)
    environments = await find_environments(board)
    try:
        ids = await board.api.submit(spec_of(form, user, environments), form.get("request_id") or str(uuid.uuid4()))
    except (CliError, ValueError) as error:
        sentence = error.message if isinstance(error, CliError) else str(error)
        kept = {name: value for name, value in form.items() if name != "csrf"} | {"request_id": str(uuid.uuid4())}
        refusals = {error.field: sentence} if isinstance(error, FieldError) else {}
        values = {**_values(kept, environments), "refusal": sentence, "refusals": refusals}
        return site.page(request, "submit.html", 422, **values, like=0)
    many = f"Jobs {ids[0]} to {ids[-1]} were" if len(ids) > 1 else f"Job {ids[0]} was"
    site.flash(user, "done", f"{many} queued.")
    at = f"{address_of(request)}/job/{ids[0]}"
    return back_to(f"{at}/terminal" if form.get("pty") == "yes" else at)


# ---- prediction ----


async def predict(request: Request, form: Form) -> Response:
    """The size that a model needs, as a fragment with the filled fields, or the sentence why there is none."""
    site = site_of(request)
    given = {name: form.get(name, "") for name in ("gpus", "mem")}
    try:
        found = await _predict_size(request, form)
    except (ValueError, RefusedError) as error:
        html = site.templates.render("live/size.html", given=given, refusal=str(error), refusals={}, found=None)
        return Response(html, media_type="text/html")
    if found["in_range"] and found["utilisation"]:
        milli = math.ceil(found["utilisation"]["value"] * MILLI_PER_DEVICE / _STEP_MILLI) * _STEP_MILLI
        given["gpus"] = format_gpus(min(MILLI_PER_DEVICE, max(_STEP_MILLI, milli)))
    high = -(-found["memory_bytes"]["high"] // _STEP_BYTES) * _STEP_BYTES
    given["mem"] = f"{high >> 20}M"
    found["memory"] = {name: format_bytes(value) for name, value in found["memory_bytes"].items()}
    html = site.templates.render("live/size.html", given=given, refusal="", refusals={}, found=found)
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
        text = form.get("model_batch", "").strip()
        batch = read_field("batch", text, lambda given: _BATCH.convert(given, None, None)) if text else 0
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
