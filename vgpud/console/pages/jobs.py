"""One job: state, reasons, output, curves, actions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from vgpud.console.live.board import Board
from vgpud.console.live.data import span
from vgpud.console.pages import bars, curves, output, slices
from vgpud.console.pages.job_number import JOB
from vgpud.console.web.site import Form, act, board_of, fragment, get, page, post
from vgpud.core.units import parse_bytes, parse_gpus
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view import job_tables, slice_tables
from vgpud.view.job_tables import LABELS
from vgpud.view.jobs import ENDED, job_view
from vgpud.view.slices import View, slice_view
from vgpud.view.spans import parse_span
from vgpud.view.text import plain


def _facts(answer: pb.ExplainJobResponse) -> list[View]:
    """Decisions with their times are a timeline, the newest first; what holds now is above it."""
    facts = [
        {
            "decision_time": fact.decision_time.ToJsonString() if fact.HasField("decision_time") else None,
            "label": LABELS.get(kind := words.FACT_KIND.to_word(fact.kind), kind),
            "kind": kind,
            "text": plain(fact.text),
        }
        for fact in answer.facts
    ]
    now = [fact for fact in facts if fact["decision_time"] is None]
    then = sorted(
        (fact for fact in facts if fact["decision_time"]), key=lambda fact: str(fact["decision_time"]), reverse=True
    )
    return [*now, *then]


def _milestones(job: View) -> list[tuple[str, str]]:
    """(moment, what happened) from the job's own times."""
    found = [(job["submit_time"], "submitted")]
    if job["start_time"]:
        run = f" (attempt {job['attempt']})" if job["attempt"] > 1 else ""
        found.append((job["start_time"], f"started{run}"))
    if job["end_time"]:
        found.append((job["end_time"], job["state"].replace("_", " ")))
    return [(at, text) for at, text in found if at]


async def _job(board: Board, job_id: int) -> dict[str, object]:
    answer = await board.api.explain(job_id)
    job = job_view(answer.job, board.simulated_indices)
    parts = [found for name in job["slices"] if (found := board.slice(name))]
    return {
        "job": job,
        "pairs": job_tables.job_pairs(job, slice_tables.now_utc()),
        "facts": _facts(answer),
        "milestones": _milestones(job),
        "slices": [slice_view(part, board.simulated_uuids) for part in parts],
        "waits": slices.waits,
        "colors": bars.colors(board.slices),
        "ended": job["state"] in ENDED,
    }


async def job_page(request: Request) -> Response:
    board, job_id = board_of(request), request.path_params["job_id"]
    tail = await output.read_tail(request)
    values = await _job(board, job_id)
    job = values["job"]
    has_run = isinstance(job, dict) and bool(job["start_time"])
    chosen = curves.choose(request, f"/job/{job_id}/curves.json", has_run=has_run)
    return page(request, "job.html", curves=chosen, **tail, **values)


def _run_s(job: pb.Job) -> tuple[int, int] | None:
    """Begin of the first run, and the end or the present, in seconds since 1970; None: it has not run."""
    if not job.HasField("start_time"):
        return None
    end_s = job.end_time.seconds if job.HasField("end_time") else time.time_ns() // 10**9
    return job.start_time.seconds, max(end_s, job.start_time.seconds)


async def job_curves(request: Request) -> Response:
    job_id = request.path_params["job_id"]
    return await curves.answer(request, "job", str(job_id), _run_s(await board_of(request).api.job(job_id)))


async def job_part(request: Request) -> Response:
    """The part of the page that changes, buttons too: asked for every two seconds, since reasons have no stream."""
    values = await _job(board_of(request), request.path_params["job_id"])
    return fragment(request, "live/job.html", **values)


# ---- actions ----


def parse_changes(form: Form) -> tuple[pb.JobSpec, list[str]]:
    """The fields of a job that its form changes. Raises ValueError, one sentence."""
    given = {name: text.strip() for name, text in form.items() if text.strip() != form.get(f"{name}_was", "")}
    spec, fields = pb.JobSpec(), []
    if given.get("gpus"):
        spec.slice.gpus_milli = parse_gpus(given["gpus"])
        fields.append("slice.gpus_milli")
    if given.get("mem"):
        spec.slice.mem_min_bytes = spec.slice.mem_max_bytes = parse_bytes(given["mem"])
        fields += ["slice.mem_min_bytes", "slice.mem_max_bytes"]
    if given.get("priority"):
        if not given["priority"].lstrip("-").isdigit() or len(given["priority"]) > 6:
            raise ValueError(f"priority {given['priority']!r} is not a whole number")
        spec.priority = int(given["priority"])
        fields.append("priority")
    if "time_limit" in given:
        if given["time_limit"]:
            spec.time_limit.CopyFrom(span(parse_span(given["time_limit"])))
        fields.append("time_limit")
    if not fields:
        raise ValueError("nothing was changed: write another size, priority or time limit")
    return spec, fields


async def change(request: Request, form: Form) -> Response:
    job_id = request.path_params["job_id"]

    async def work() -> None:
        await board_of(request).api.update_job(job_id, *parse_changes(form))

    return await act(request, work(), f"Job {job_id} was changed.", f"/job/{job_id}")


def _action(verb: str, done: str) -> Callable[[Request, Form], Awaitable[Response]]:
    async def action(request: Request, form: Form) -> Response:
        job_id = request.path_params["job_id"]
        api = board_of(request).api
        works: dict[str, Callable[[], Awaitable[None]]] = {
            "cancel": lambda: api.cancel(job_id, form.get("array") == "yes"),
            "hold": lambda: api.hold(job_id),
            "release": lambda: api.release(job_id),
            "requeue": lambda: api.requeue(job_id),
        }
        return await act(request, works[verb](), f"Job {job_id} {done}.", f"/job/{job_id}")

    return action


async def not_found(request: Request) -> Response:
    raise HTTPException(404, f"{request.path_params['job_id']} is not the number of a job.")


ROUTES = [
    get(JOB, job_page),
    get(f"{JOB}/part", job_part),
    *output.ROUTES,
    get(f"{JOB}/curves.json", job_curves),
    get("/job/{job_id}", not_found),
    post(f"{JOB}/change", change),
    post(f"{JOB}/cancel", _action("cancel", "was cancelled")),
    post(f"{JOB}/hold", _action("hold", "is held")),
    post(f"{JOB}/release", _action("release", "was released")),
    post(f"{JOB}/requeue", _action("requeue", "was queued again")),
]
