"""The terminal of a job of `vgpu submit --pty` in the browser: its output as server-sent events, its keys by forms.

So the console needs no protocol of its own for it: the same log-in, token and limits hold as for every page and form.
A terminal is the call AttachJob with the user's own rights; the daemon decides who may join.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from vgpud.console.live.data import Api
from vgpud.console.login.client import User
from vgpud.console.pages.job_number import JOB
from vgpud.console.web.site import Form, Site, board_of, get, page, post, site_of, user_of
from vgpud.console.web.sse import ALIVE_S
from vgpud.core.jobs.terminal import INPUT_BYTES_MAX, SIZE_MAX
from vgpud.core.units import parse_whole
from vgpud.errors import CliError, ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view.job_tables import state_words
from vgpud.view.jobs import ENDED
from vgpud.view.user_names import named_users

#: terminals of one user in the browser, and messages that wait to be sent to one of them
TERMINALS_MAX, WAITING_MAX = 16, 64
#: what the daemon takes of one message; a form has as many as its size allows
_FORM_BYTES_MAX = 64 * 1024
_ID_BYTES = 16


@dataclass(eq=False)
class Viewer:
    """A page that shows a terminal. `key`: names it in the forms of its own session."""

    user: User
    job_id: int
    key: str = field(default_factory=lambda: secrets.token_urlsafe(_ID_BYTES))
    _waiting: asyncio.Queue[pb.AttachJobRequest] = field(default_factory=lambda: asyncio.Queue(WAITING_MAX))

    async def requests(self, as_admin: bool) -> AsyncIterator[pb.AttachJobRequest]:
        yield pb.AttachJobRequest(job_id=self.job_id, as_admin=as_admin)
        while True:
            yield await self._waiting.get()

    def send(self, requests: list[pb.AttachJobRequest]) -> bool:
        """All of them, or none where too many wait."""
        if self._waiting.qsize() + len(requests) > WAITING_MAX:
            return False
        for request in requests:
            self._waiting.put_nowait(request)
        return True


class Viewers:
    """All terminals that are shown."""

    def __init__(self) -> None:
        self._by_key: dict[str, Viewer] = {}

    def has_place(self, user: User) -> bool:
        return sum(viewer.user.uid == user.uid for viewer in self._by_key.values()) < TERMINALS_MAX

    @contextlib.contextmanager
    def show(self, viewer: Viewer) -> Iterator[None]:
        self._by_key[viewer.key] = viewer
        try:
            yield
        finally:
            del self._by_key[viewer.key]

    def find(self, key: str, user: User, job_id: int) -> Viewer | None:
        """Of the same session only."""
        viewer = self._by_key.get(key)
        return viewer if viewer and (viewer.user.cookie, viewer.job_id) == (user.cookie, job_id) else None


def _event(kind: str, data: str) -> bytes:
    return f"event: {kind}\ndata: {data}\n\n".encode()


def _bytes_event(kind: str, data: bytes) -> bytes:
    return _event(kind, base64.b64encode(data).decode())


def show_answer(answer: pb.AttachJobResponse) -> bytes:
    """An answer of the daemon's as an event of the page."""
    if answer.HasField("replay"):
        return _bytes_event("replay", answer.replay)
    if answer.HasField("job"):
        state = words.JOB_STATE.to_word(answer.job.state)
        text = f"job {answer.job.job_id} {named_users(state_words(state, answer.job.reason or None))}"
        return _event("end" if state in ENDED else "job", json.dumps(text))
    if answer.notice:
        return _event("note", json.dumps(named_users(answer.notice)))
    return _bytes_event("output", answer.output)


async def _events(site: Site, api: Api, viewers: Viewers, viewer: Viewer, as_admin: bool) -> AsyncIterator[bytes]:
    """Until the job has ended, another viewer has joined, the user has logged out or the page has gone."""
    answers = api.attach_job(viewer.requests(as_admin))
    coming: asyncio.Task[pb.AttachJobResponse] | None = None
    looked_s = time.monotonic()
    with viewers.show(viewer):
        yield _event("open", json.dumps(viewer.key))
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(answers))
                await asyncio.wait({coming}, timeout=ALIVE_S)
                if time.monotonic() - looked_s > ALIVE_S:
                    looked_s = time.monotonic()
                    if await site.broker.user(viewer.user.cookie, viewer.user.source, is_use=False) is None:
                        return
                if not coming.done():
                    yield b":\n\n"
                    continue
                answer, coming = coming.result(), None
                yield show_answer(answer)
        except StopAsyncIteration:
            yield _event("end", json.dumps("this page has left the terminal"))
        except CliError as error:
            if error.exit_code == ExitCode.UNREACHABLE:  # the page asks again, and the job has not noticed
                yield _event("note", json.dumps(error.message))
            else:
                yield _event("end", json.dumps(error.message))
        finally:
            if coming:
                coming.cancel()
                await asyncio.gather(coming, return_exceptions=True)
            await answers.aclose()  # type: ignore[attr-defined]


async def terminal_page(request: Request) -> Response:
    job = await board_of(request).api.job(request.path_params["job_id"])
    if not job.spec.terminal:
        raise HTTPException(404, f"Job {job.job_id} has no terminal: it was submitted without --pty.")
    as_admin = request.query_params.get("as_admin") == "yes"
    return page(request, "terminal.html", job_id=job.job_id, job_name=job.spec.name, as_admin=as_admin)


async def terminal_stream(request: Request) -> Response:
    site, user, job_id = site_of(request), user_of(request), request.path_params["job_id"]
    viewers: Viewers = request.app.state.viewers
    if not viewers.has_place(user):
        return Response(f"{TERMINALS_MAX} terminals are open, which is the limit: close some", 429)
    as_admin = request.query_params.get("as_admin") == "yes"
    events = _events(site, board_of(request).api, viewers, Viewer(user, job_id), as_admin)
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})


def parse_keys(form: Form) -> list[pb.AttachJobRequest]:
    """Messages of a form: keys in base64, or the size of the window. Raises ValueError, one sentence."""
    try:
        typed = base64.b64decode(form.get("keys", ""), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("keys are not base64") from error
    if len(typed) > _FORM_BYTES_MAX:
        raise ValueError(f"{len(typed)} bytes were typed: send at most {_FORM_BYTES_MAX} at once")
    found = [
        pb.AttachJobRequest(input=typed[at : at + INPUT_BYTES_MAX]) for at in range(0, len(typed), INPUT_BYTES_MAX)
    ]
    rows, columns = (parse_whole(form.get(name, ""), SIZE_MAX) for name in ("rows", "columns"))
    if rows and columns:
        found.append(pb.AttachJobRequest(size=pb.TerminalSize(rows=rows, columns=columns)))
    return found


async def terminal_keys(request: Request, form: Form) -> Response:
    """What was typed on a page, or the new size of its window."""
    viewers: Viewers = request.app.state.viewers
    viewer = viewers.find(form.get("terminal", ""), user_of(request), request.path_params["job_id"])
    if viewer is None:
        return Response("this page has left the terminal", 404)
    try:
        requests = parse_keys(form)
    except ValueError as error:
        return Response(str(error), 400)
    if not viewer.send(requests):
        return Response("the job takes no keys at present", 429)
    return Response(status_code=204)


ROUTES = [
    get(f"{JOB}/terminal", terminal_page),
    get(f"{JOB}/terminal/stream", terminal_stream),
    post(f"{JOB}/terminal/keys", terminal_keys),
]
