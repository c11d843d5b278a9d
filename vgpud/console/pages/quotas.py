"""Queues and their quotas, usage and reports, and what another policy would have made of the last month."""

from __future__ import annotations

import csv
import io
import tempfile
import time
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from starlette.requests import Request
from starlette.responses import Response

from vgpud.console.live.data import span
from vgpud.console.pages import commands
from vgpud.console.web.site import Form, act, board_of, get, page, post
from vgpud.core.model import WEIGHT_MAX
from vgpud.core.placement import registry as placements
from vgpud.core.policy import registry as policies
from vgpud.core.units import MILLI_PER_DEVICE, parse_gpus, parse_whole
from vgpud.errors import CliError
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.jobs import queue_view, usage_view
from vgpud.view.spans import parse_span
from vgpud.view.usage_csv import csv_rows

SPANS = ("1d", "7d", "30d", "90d", "all")
BY = ("user", "queue", "job")
#: rows of a report on a page; CSV has all
ROWS_SHOWN = 500
WHATIF_SINCE = "30d"
_NS = 1_000_000_000


# ---- quotas ----


async def quotas(request: Request) -> Response:
    queues = [queue_view(queue) for queue in await board_of(request).api.queues()]
    capacity = sum(MILLI_PER_DEVICE for device in board_of(request).devices if device.offered)
    return page(
        request,
        "quotas.html",
        queues=queues,
        capacity=max(1, capacity),
        policies=policies.NAMES,
        placements=placements.NAMES,
    )


def queue_of(form: Form) -> tuple[pb.Queue, list[str]]:
    """The fields of a quota form. An empty field is reset to its default. Raises ValueError, one sentence."""
    name = form.get("name", "").strip()
    if not name:
        raise ValueError("a queue needs a name")
    queue, fields = pb.Queue(name=name), ["guarantee_milli", "limit_milli", "weight", "policy", "placement", "members"]
    for field in ("guarantee", "limit"):
        if form.get(field, "").strip():
            setattr(queue, f"{field}_milli", _gpus(form[field].strip(), field))
    if form.get("weight", "").strip():
        weight = parse_whole(form["weight"].strip(), WEIGHT_MAX)
        if not weight:
            raise ValueError(f"weight {form['weight'][:40]!r} is not a whole number from 1 to {WEIGHT_MAX}")
        queue.weight = weight
    for field in ("policy", "placement"):
        if form.get(field, "").strip():
            setattr(queue, field, form[field].strip())
    if form.get("min_run", "").strip():
        queue.min_run.CopyFrom(_min_run(form["min_run"].strip()))
        fields.append("min_run")
    queue.members.extend(word for word in form.get("members", "").replace(",", " ").split())
    if form.get("parent", "").strip():
        queue.parent = form["parent"].strip()
        fields.append("parent")
    return queue, fields


def _min_run(text: str) -> Duration:
    try:
        return span(parse_span(text))
    except ValueError as error:
        raise ValueError(f"min run: {error}") from error


def _gpus(text: str, field: str) -> int:
    """GPUs of a whole cluster, which may have more than a node."""
    whole, point, part = text.partition(".")
    if not (whole.isascii() and whole.isdigit() and len(whole) <= 6):
        raise ValueError(f"{field} {text!r} is not a number of GPUs: write for example 0, 0.5 or 16")
    return int(whole) * MILLI_PER_DEVICE + (parse_gpus(f"0.{part}", zero=True) if point else 0)


async def set_quota(request: Request, form: Form) -> Response:
    async def work() -> None:
        await board_of(request).api.set_queue(*queue_of(form))

    return await act(request, work(), f"Queue {form.get('name', '')} was saved.", "/quotas")


async def remove_quota(request: Request, form: Form) -> Response:
    name = form.get("name", "")
    return await act(request, board_of(request).api.delete_queue(name), f"Queue {name} was removed.", "/quotas")


# ---- usage ----


def since_ns(text: str) -> int | None:
    """The moment so long ago; None: everything that is kept."""
    return None if text == "all" else time.time_ns() - parse_span(text)


def _parse_usage_query(request: Request) -> tuple[str, str]:
    by, since = request.query_params.get("by", "user"), request.query_params.get("since", "30d")
    return by if by in BY else "user", since if since in SPANS else "30d"


async def usage(request: Request) -> Response:
    by, since = _parse_usage_query(request)
    rows = [usage_view(row) for row in await board_of(request).api.usage(since_ns(since), by)]
    rows.sort(key=lambda row: row["gpu_seconds_granted"], reverse=True)
    most = max((row["gpu_seconds_granted"] for row in rows), default=0) or 1
    return page(
        request,
        "usage.html",
        rows=rows[:ROWS_SHOWN],
        left_out=max(0, len(rows) - ROWS_SHOWN),
        most=most,
        by=by,
        since=since,
        spans=SPANS,
        bys=BY,
    )


async def usage_csv(request: Request) -> Response:
    by, since = _parse_usage_query(request)
    rows = [usage_view(row) for row in await board_of(request).api.usage(since_ns(since), by)]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(csv_rows(rows, by))
    headers = {"content-disposition": f'attachment; filename="usage-{by}-{since}.csv"'}
    return Response(out.getvalue(), media_type="text/csv", headers=headers)


# ---- what if ----


async def whatif(request: Request) -> Response:
    given = {"policy": "fifo", "compare": "2d-las(3250,7200)", "devices": str(max(1, len(board_of(request).devices)))}
    return page(request, "whatif.html", given=given, policies=policies.NAMES, runs=None, refusal="", jobs=0)


async def run_whatif(request: Request, form: Form) -> Response:
    given = {name: form.get(name, "").strip() for name in ("policy", "compare", "devices")}
    values = {"given": given, "policies": policies.NAMES}
    try:
        found = await _simulate_jobs(request, given)
    except (ValueError, CliError) as error:
        sentence = error.message if isinstance(error, CliError) else str(error)
        return page(request, "whatif.html", runs=None, refusal=sentence, jobs=0, **values)
    return page(request, "whatif.html", runs=found["runs"], refusal="", jobs=found["jobs"], **values)


async def _simulate_jobs(request: Request, form_values: dict[str, str]) -> dict[str, object]:
    """What `vgpu whatif` says of the user's jobs of the last month; of all users' for admins."""
    if not parse_whole(form_values["devices"], 4096):
        raise ValueError(f"{form_values['devices'][:40]!r} is not a number of devices: write for example 8")
    rows = [usage_view(row) for row in await board_of(request).api.usage(since_ns(WHATIF_SINCE), "job")]
    lines = list(csv_rows([row for row in rows if "job_id" in row], "job"))
    if len(lines) < 2:
        raise ValueError("no job of the last month that you may see: there is nothing to simulate")
    with tempfile.TemporaryDirectory(prefix="vgpu-console-trace-") as folder:
        trace = Path(folder) / "month.csv"
        with trace.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)
        compare = ["--compare", form_values["compare"]] if form_values["compare"] else []
        options = ["--cluster", f"1x{form_values['devices']}", "--policy", form_values["policy"], "--sort", *compare]
        found: dict[str, object] = await commands.run(["whatif", "--trace", str(trace), *options])
        return found


ROUTES = [
    get("/quotas", quotas),
    post("/quotas/set", set_quota),
    post("/quotas/remove", remove_quota),
    get("/usage", usage),
    get("/usage.csv", usage_csv),
    get("/whatif", whatif),
    post("/whatif", run_whatif),
]
