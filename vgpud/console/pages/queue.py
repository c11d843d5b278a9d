"""The queue: jobs by filters, arrays folded into a row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from vgpud.client import calls
from vgpud.client.arrays import format_array
from vgpud.console.live.board import Board
from vgpud.console.web import sse
from vgpud.console.web.site import board_of, get, page, site_of
from vgpud.core.units import parse_whole
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view import job_tables, slice_tables
from vgpud.view.jobs import ENDED, job_view
from vgpud.view.slices import View
from vgpud.view.user_names import user_name

PER_PAGE = 50
#: arrays that a page has unfolded
OPEN_MAX = 20
_NUMBER_MAX = 999_999_999_999
STATES = ("active", "pending", "held", "running", "suspended", "ended", "completed", "failed", "cancelled", "timed_out")
#: in this order in the list: what runs, what waits, what has ended
_RANK = {pb.JOB_STATE_RUNNING: 0, pb.JOB_STATE_SUSPENDED: 1, pb.JOB_STATE_PENDING: 2, pb.JOB_STATE_HELD: 3}


@dataclass(frozen=True)
class Filter:
    """What the queue page shows. `unfolded`: arrays whose jobs have rows of their own."""

    state: str
    user: str
    queue: str
    text: str
    page: int
    unfolded: frozenset[int] = frozenset()

    @staticmethod
    def of(request: Request) -> Filter:
        given = request.query_params
        state = given.get("state", "active")
        opened = (parse_whole(word, _NUMBER_MAX) for word in given.get("open", "").split(",")[:OPEN_MAX])
        return Filter(
            state if state in STATES else "active",
            given.get("user", "").strip(),
            given.get("queue", "").strip(),
            given.get("text", "").strip(),
            max(1, parse_whole(given.get("page", "1"), _NUMBER_MAX) or 1),
            frozenset(number for number in opened if number),
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
        """The address of one of its pages."""
        fields = {"state": self.state, "user": self.user, "queue": self.queue, "text": self.text, "page": str(number)}
        fields["open"] = ",".join(map(str, sorted(self.unfolded)))
        return urlencode({name: value for name, value in fields.items() if value}, safe=",")

    def fold(self, array_id: int) -> str:
        """The address of this page with this array folded, or unfolded."""
        return replace(self, unfolded=self.unfolded ^ {array_id}).query(self.page)


Row = list[pb.Job]  # one job, or all of a folded array; one that is unfolded has its jobs' rows below its own


def _rows(jobs: Sequence[pb.Job], unfolded: frozenset[int]) -> Iterator[tuple[Row, bool]]:
    """(jobs of the row, whether it is one of an unfolded array), in the jobs' order."""
    arrays: dict[int, Row] = {}
    for job in jobs:
        if job.HasField("array_id"):
            arrays.setdefault(job.array_id, []).append(job)
    for job in jobs:
        members = arrays.get(job.array_id, []) if job.HasField("array_id") else []
        if len(members) < 2:
            yield [job], False
        elif job is members[0]:
            yield members, False
            if job.array_id in unfolded:
                yield from (([member], True) for member in members)


def _job_row(board: Board, job: pb.Job) -> View:
    view = job_view(job, board.simulated_indices)
    view["why"] = view["reason"] if view["state"] != "running" else ""
    view["time"] = job_tables.time_label(view, slice_tables.now_utc())
    return view


def _array_row(board: Board, jobs: Row, chosen: Filter) -> View:
    """An array in one row: how many of its jobs are in which state, and why most of those that wait do."""
    view = _job_row(board, jobs[0])
    states = Counter(words.JOB_STATE.to_word(job.state) for job in jobs)
    reasons = Counter(job.reason for job in jobs if job.reason and job.state != pb.JOB_STATE_RUNNING)
    why, number = reasons.most_common(1)[0] if reasons else ("", 0)
    others = sum(reasons.values()) - number
    array_id = jobs[0].array_id
    return view | {
        "states": list(states.items()),
        "label": f"{view['name']}[{format_array(sorted(job.array_index for job in jobs), 0)}]",
        "why": f"{why} ({others} wait for other reasons)" if others and not chosen.needs_ended else why,
        "position": min((job.position for job in jobs if job.HasField("position")), default=None),
        "fold": chosen.fold(array_id),
        "is_open": array_id in chosen.unfolded,
    }


def _make_list_values(board: Board, chosen: Filter, jobs: Sequence[pb.Job]) -> dict[str, object]:
    found = [job for job in jobs if chosen.takes(job)]
    if chosen.needs_ended:
        found.sort(key=lambda job: (-job.end_time.seconds, -job.job_id))
    else:
        found.sort(key=lambda job: (_RANK.get(job.state, 4), job.position or job.job_id, job.job_id))
    rows = list(_rows(found, chosen.unfolded))
    pages = max(1, -(-len(rows) // PER_PAGE))
    number = min(chosen.page, pages)
    shown: list[View] = []
    for row, is_member in rows[(number - 1) * PER_PAGE : number * PER_PAGE]:
        if len(row) > 1:
            shown.append(_array_row(board, row, chosen))
        else:
            shown.append(_job_row(board, row[0]) | {"is_member": is_member})
    return {"jobs": shown, "count": len(found), "number": number, "pages": pages, "chosen": chosen, "board": board}


async def _jobs(board: Board, chosen: Filter) -> Sequence[pb.Job]:
    if chosen.needs_ended:
        return await board.api.jobs(ENDED if chosen.state == "ended" else (chosen.state,))
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


ROUTES = [
    get("/queue", queue),
    get("/live/queue", live_queue),
]
