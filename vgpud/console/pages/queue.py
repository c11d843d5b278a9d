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
from vgpud.console.web.site import board_of, fragment, get, page, render
from vgpud.core.units import parse_whole
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view import job_tables, slice_tables
from vgpud.view.jobs import ENDED, job_view
from vgpud.view.slices import View
from vgpud.view.user_names import user_name

PER_PAGE = 50
#: arrays that a page has open_arrays
OPEN_MAX = 20
_NUMBER_MAX = 999_999_999_999
STATES = ("active", "pending", "held", "running", "suspended", "ended", "completed", "failed", "cancelled", "timed_out")
#: in this order in the list: what runs, what waits, what has ended
_RANK = {pb.JOB_STATE_RUNNING: 0, pb.JOB_STATE_SUSPENDED: 1, pb.JOB_STATE_PENDING: 2, pb.JOB_STATE_HELD: 3}


@dataclass(frozen=True)
class Filter:
    """What the queue page shows. `open_arrays`: arrays whose jobs have rows of their own."""

    state: str
    user: str
    queue: str
    text: str
    page: int
    open_arrays: frozenset[int] = frozenset()

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
        fields["open"] = ",".join(map(str, sorted(self.open_arrays)))
        return urlencode({name: value for name, value in fields.items() if value}, safe=",")

    def fold(self, array_id: int) -> str:
        """The address of this page with this array folded, or open_arrays."""
        return replace(self, open_arrays=self.open_arrays ^ {array_id}).query(self.page)


Row = list[pb.Job]  # one job, or all of a folded array; one that is open_arrays has its jobs' rows below its own


def _make_rows(jobs: Sequence[pb.Job], open_arrays: frozenset[int]) -> Iterator[tuple[Row, bool]]:
    """(jobs of the row, whether it is one of an open_arrays array), in the jobs' order."""
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
            if job.array_id in open_arrays:
                yield from (([member], True) for member in members)


def _job_row(board: Board, job: pb.Job) -> View:
    view = job_view(job, board.simulated_indices)
    view["why"] = view["reason"] if view["state"] != "running" else ""
    view["time"] = job_tables.time_label(view, slice_tables.now_utc())
    return view


def _array_row(board: Board, jobs: Row, job_filter: Filter) -> View:
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
        "why": f"{why} ({others} wait for other reasons)" if others and not job_filter.needs_ended else why,
        "position": min((job.position for job in jobs if job.HasField("position")), default=None),
        "fold": job_filter.fold(array_id),
        "is_open": array_id in job_filter.open_arrays,
    }


def _make_list_values(board: Board, job_filter: Filter, jobs: Sequence[pb.Job]) -> dict[str, object]:
    found = [job for job in jobs if job_filter.takes(job)]
    if job_filter.needs_ended:
        found.sort(key=lambda job: (-job.end_time.seconds, -job.job_id))
    else:
        found.sort(key=lambda job: (_RANK.get(job.state, 4), job.position or job.job_id, job.job_id))
    rows = list(_make_rows(found, job_filter.open_arrays))
    pages = max(1, -(-len(rows) // PER_PAGE))
    number = min(job_filter.page, pages)
    shown: list[View] = []
    for row, is_member in rows[(number - 1) * PER_PAGE : number * PER_PAGE]:
        if len(row) > 1:
            shown.append(_array_row(board, row, job_filter))
        else:
            shown.append(_job_row(board, row[0]) | {"is_member": is_member})
    return {"jobs": shown, "count": len(found), "number": number, "pages": pages, "chosen": job_filter, "board": board}


async def _jobs(board: Board, job_filter: Filter) -> Sequence[pb.Job]:
    if job_filter.needs_ended:
        return await board.api.jobs(ENDED if job_filter.state == "ended" else (job_filter.state,))
    await board.ready_jobs()
    return list(board.jobs.values())


async def queue(request: Request) -> Response:
    board, job_filter = board_of(request), Filter.of(request)
    values = _make_list_values(board, job_filter, await _jobs(board, job_filter))
    values.pop("board")
    if request.headers.get("hx-request"):
        return fragment(request, "live/queue_region.html", **values)
    users = sorted({user_name(job.uid) for job in board.jobs.values()})
    return page(request, "queue.html", users=users, states=STATES, **values)


async def live_queue(request: Request) -> Response:
    board, job_filter = board_of(request), Filter.of(request)
    await board.ready_jobs()

    def render_list() -> str:
        values = _make_list_values(board, job_filter, list(board.jobs.values()))
        return render(request, "live/queue.html", **values)

    def state(now: Board) -> tuple[object, ...]:
        """Estimated starts move while nothing changes: once in a while it is rendered all the same."""
        return now.jobs_tick, now.tick // 10, now.problem

    return sse.stream(request, ("queue", job_filter), render_list, state, jobs=True)


ROUTES = [
    get("/queue", queue),
    get("/live/queue", live_queue),
]
