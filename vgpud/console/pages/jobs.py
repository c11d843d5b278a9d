"""The queue with its filters, and one job: state, reasons, log, curves, actions."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from vgpud.client import calls
from vgpud.console.live.board import Board
from vgpud.console.live.data import span
from vgpud.console.login import wire
from vgpud.console.login.client import RefusedError, read_tail
from vgpud.console.pages import bars, curves, slices
from vgpud.console.web import sse
from vgpud.console.web.site import Form, act, board_of, get, page, post, site_of, user_of
from vgpud.core.units import parse_bytes, parse_gpus
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view import job_tables, slice_tables
from vgpud.view.job_tables import LABELS
from vgpud.view.jobs import ENDED, job_view
from vgpud.view.slices import View, slice_view
from vgpud.view.spans import parse_span
from vgpud.view.text import plain
from vgpud.view.user_names import user_name

PER_PAGE = 50
#: of a log's end
LOG_BYTES = 64 * 1024
STATES = ("active", "pending", "held", "running", "suspended", "ended", "completed", "failed", "cancelled", "timed_out")
#: in this order in the list: what runs, what waits, what has ended
_RANK = {pb.JOB_STATE_RUNNING: 0, pb.JOB_STATE_SUSPENDED: 1, pb.JOB_STATE_PENDING: 2, pb.JOB_STATE_HELD: 3}


@dataclass(frozen=True)
class Filter:
    """What the queue page shows."""

    state: str
    user: str
    queue: str
    text: str
    page: int

    @staticmethod
    def of(request: Request) -> Filter:
        given = request.query_params
        state = given.get("state", "active")
        number = given.get("page", "1")
        return Filter(
            state if state in STATES else "active",
            given.get("user", "").strip(),
            given.get("queue", "").strip(),
            given.get("text", "").strip(),
            max(1, int(number) if number.isdigit() and len(number) < 7 else 1),
        )

    def takes(self, job: pb.Job) -> bool:
        state, ended = words.JOB_STATE.to_word(job.state), job.state in calls.ENDED
        if self.state == "active":
            fits = not ended
        elif self.state == "ended":
            fits = ended
        else:
            fits = state == self.state
        return (
            fits
            and self.user in ("", str(job.uid), user_name(job.uid))
            and self.queue in ("", job.spec.queue)
            and (not self.text or self.text in job.spec.name or self.text == str(job.job_id))
        )

    @property
    def needs_ended(self) -> bool:
        return self.state in ("ended", *ENDED)

    def query(self, number: int) -> str:
        fields = {"state": self.state, "user": self.user, "queue": self.queue, "text": self.text, "page": str(number)}
        return urlencode({name: value for name, value in fields.items() if value})


def _make_list_values(board: Board, job_filter: Filter, jobs: Sequence[pb.Job]) -> dict[str, object]:
    found = [job for job in jobs if job_filter.takes(job)]
    if job_filter.needs_ended:
        found.sort(key=lambda job: (-job.end_time.seconds, -job.job_id))
    else:
        found.sort(key=lambda job: (_RANK.get(job.state, 4), job.position or job.job_id, job.job_id))
    pages = max(1, -(-len(found) // PER_PAGE))
    number = min(job_filter.page, pages)
    now = slice_tables.now_utc()
    rows = []
    for job in found[(number - 1) * PER_PAGE : number * PER_PAGE]:
        view = job_view(job, board.simulated_indices)
        view["why"] = view["reason"] if view["state"] != "running" else ""
        view["time"] = job_tables.time_label(view, now)
        rows.append(view)
    return {"jobs": rows, "count": len(found), "number": number, "pages": pages, "chosen": job_filter, "board": board}


async def _jobs(board: Board, job_filter: Filter) -> Sequence[pb.Job]:
    if job_filter.needs_ended:
        return await board.api.jobs(ENDED if job_filter.state == "ended" else (job_filter.state,))
    await board.ready_jobs()
    return list(board.jobs.values())


async def queue(request: Request) -> Response:
    board, chosen = board_of(request), Filter.of(request)
    values = _make_list_values(board, chosen, await _jobs(board, chosen))
    values.pop("board")
    if request.headers.get("hx-request"):
        return Response(
            site_of(request).templates.render("live/queue_region.html", **values, board=board), media_type="text/html"
        )
    users = sorted({user_name(job.uid) for job in board.jobs.values()})
    return page(request, "queue.html", users=users, states=STATES, **values)


async def live_queue(request: Request) -> Response:
    board, site, chosen = board_of(request), site_of(request), Filter.of(request)
    await board.ready_jobs()

    def render() -> str:
        return site.templates.render("live/queue.html", **_make_list_values(board, chosen, list(board.jobs.values())))

    # estimated starts move while nothing changes: once in a while it is rendered all the same
    return sse.stream(request, ("queue", chosen), render, lambda b: (b.jobs_tick, b.tick // 10, b.problem), jobs=True)


# ---- one job ----


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
        "lines": job_tables.job_lines(job, slice_tables.now_utc())[1:],
        "facts": _facts(answer),
        "milestones": _milestones(job),
        "slices": [slice_view(part, board.simulated_uuids) for part in parts],
        "waits": slices.waits,
        "colors": bars.colors(board.slices),
        "ended": job["state"] in ENDED,
    }


async def job_page(request: Request) -> Response:
    board, job_id = board_of(request), request.path_params["job_id"]
    log, note = await _log(request, job_id)
    values = await _job(board, job_id)
    job = values["job"]
    has_run = isinstance(job, dict) and bool(job["start_time"])
    chosen = curves.choose(request, f"/job/{job_id}/curves.json", has_run=has_run)
    return page(request, "job.html", log=log, log_note=note, curves=chosen, **values)


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
    """The part of the page that changes: asked for every two seconds, since reasons have no stream. In another state
    than the page was made in a job has other buttons: then all of the page is asked for again."""
    job_id = request.path_params["job_id"]
    values = await _job(board_of(request), job_id)
    job = values["job"]
    again = isinstance(job, dict) and request.query_params.get("state", job["state"]) != job["state"]
    html = site_of(request).templates.render("live/job.html", **values)
    return Response(html, media_type="text/html", headers={"hx-refresh": "true"} if again else {})


async def _log(request: Request, job_id: int) -> tuple[str, str]:
    """The end of the job's log, and a remark: why there is none, or that the beginning is left out."""
    job = await board_of(request).api.job(job_id)
    if not job.log:
        return "", "The job has no log yet."
    try:
        fd = await site_of(request).broker.read_as(user_of(request), job.uid, job.log)
    except (RefusedError, wire.GoneError, TimeoutError) as error:
        return "", f"{job.log}: {error}"
    data, size = read_tail(fd, LOG_BYTES)
    return _render_log(data), f"the last {len(data)} of {size} bytes" if size > len(data) else f"{size} bytes"


def _render_log(data: bytes) -> str:
    """The text as a terminal shows it: of a progress bar, which returns to the line's beginning, the last state."""
    lines = data.decode(errors="replace").replace("\r\n", "\n").split("\n")
    return "\n".join(line.rpartition("\r")[2] for line in lines)


async def log_part(request: Request) -> Response:
    text, note = await _log(request, request.path_params["job_id"])
    html = site_of(request).templates.render("live/log.html", log=text, log_note=note)
    return Response(html, media_type="text/html")


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


class _JobId(Convertor[int]):
    """A number that a message can hold: others are no job's, and a page says so."""

    regex = "[0-9]{1,18}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("job_id", _JobId())
ROUTES = [
    get("/queue", queue),
    get("/live/queue", live_queue),
    get("/job/{job_id:job_id}", job_page),
    get("/job/{job_id:job_id}/part", job_part),
    get("/job/{job_id:job_id}/log", log_part),
    get("/job/{job_id:job_id}/curves.json", job_curves),
    get("/job/{job_id}", not_found),
    post("/job/{job_id:job_id}/change", change),
    post("/job/{job_id:job_id}/cancel", _action("cancel", "was cancelled")),
    post("/job/{job_id:job_id}/hold", _action("hold", "is held")),
    post("/job/{job_id:job_id}/release", _action("release", "was released")),
    post("/job/{job_id:job_id}/requeue", _action("requeue", "was queued again")),
]
