"""The programs of sessions: who may open which, and connections to their ports."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request

from vgpud.client import calls
from vgpud.console.live.data import Api
from vgpud.console.login.client import User
from vgpud.console.sessions.address import Address
from vgpud.console.web.site import site_of, user_of
from vgpud.core.jobs import session
from vgpud.errors import CliError, ExitCode
from vgpud.host import listeners
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view.job_tables import state_words
from vgpud.view.user_names import named_users

#: what is known of a session is asked for again after this time
KNOWN_S = 2.0
KNOWN_MAX = 1024
#: of what is read at once, from either side
PIECE_BYTES = 64 * 1024
#: a browser that sends nothing of a body that it has begun, and a side that takes nothing of what is passed on
SILENT_S = 60.0
_WAITING = (pb.JOB_STATE_PENDING, pb.JOB_STATE_SUSPENDED)
#: how often the use of a session is reported at most
REPORT_S = 20.0
#: how often it is looked whether a user is still logged in whose stream or WebSocket is open
LOOK_S = 10.0


@dataclass(frozen=True, slots=True)
class Program:
    """A session that runs: where it listens, and how it is shown its token."""

    job_id: int
    uid: int
    port: int
    token: tuple[str, str]  # a header
    base: bytes  # the path below which it serves
    is_watched: bool = False  # it ends or pauses when it is not used
    is_published: bool = False  # by the engine of its container, as root
    inner_base: bytes = b""  # the path below which it serves at its own port, where that is another one; b"" = the same
    title: str = ""  # for sentences; "" = session JOB

    def inner_path(self, path: bytes) -> bytes:
        """The path that the program gets of a request for `path`."""
        return self.inner_base + path.removeprefix(self.base) if self.inner_base else path

    @property
    def name(self) -> str:
        return self.title or f"session {self.job_id}"


class NotOpenError(Exception):
    """One sentence for the page. `status`: of HTTP; `is_awaited`: it may open by itself."""

    def __init__(self, sentence: str, status: int, is_awaited: bool = False) -> None:
        super().__init__(sentence)
        self.status = status
        self.is_awaited = is_awaited


class Programs:
    """What is known of sessions, for a moment, by user."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, Address], tuple[float, Program]] = OrderedDict()
        self._reported_s: OrderedDict[int, float] = OrderedDict()  # when the use of a session was last reported

    async def report_use(self, api: Api, program: Program) -> None:
        """A request for it: it is not idle. Only now and then, and a daemon that is away learns of the next one."""
        now_s = time.monotonic()
        if not program.is_watched or now_s - self._reported_s.get(program.job_id, -REPORT_S) < REPORT_S:
            return
        self._reported_s[program.job_id] = now_s
        self._reported_s.move_to_end(program.job_id)
        while len(self._reported_s) > KNOWN_MAX:
            self._reported_s.popitem(last=False)
        await _report(api, program.job_id)

    async def find(self, api: Api, user: User, address: Address) -> Program:
        """The user's session. Asked with the user's own rights. Raises NotOpenError."""
        key, job_id = (user.uid, address), address.job_id
        at_s, known = self._known.get(key, (0.0, None))
        if known and time.monotonic() - at_s < KNOWN_S:
            return known
        try:
            job = await api.job(job_id)
        except CliError as error:
            if known and error.exit_code == ExitCode.UNREACHABLE:  # a session outlives the daemon
                return known
            away = error.exit_code == ExitCode.UNREACHABLE
            raise NotOpenError(error.message, 503 if away else 404, is_awaited=away) from error
        self._known.pop(key, None)
        if job.uid == user.uid and job.spec.HasField("idle_after") and job.state in _WAITING:
            await _report(api, job_id)  # it may wait for nothing but this
        found = _program_of(job, user, address)
        self._known[key] = time.monotonic(), found
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return found


async def _report(api: Api, job_id: int) -> None:
    with contextlib.suppress(CliError):
        await api.report_session_use(job_id)


def _program_of(job: pb.Job, user: User, address: Address) -> Program:
    """Raises NotOpenError."""
    if not job.spec.session or job.spec.session in session.OF_SERVICES:
        raise NotOpenError(f"job {job.job_id} is not a session", 404)
    if job.uid != user.uid:
        raise NotOpenError(f"session {job.job_id} is another user's: only they may open it", 403)
    words_now = state_words(words.JOB_STATE.to_word(job.state), named_users(job.reason))
    if job.state in calls.ENDED:
        raise NotOpenError(f"session {job.job_id} {words_now}", 410)
    if job.spec.session == session.SHELL:
        text = f"session {job.job_id} is a terminal and has no page: `vgpu session open {job.job_id}` joins it"
        raise NotOpenError(text, 404)
    if address.port_name and address.port_name not in job.spec.session_ports:
        raise NotOpenError(f"session {job.job_id} has no port {address.port_name}", 404)
    token = job.spec.environment.get(session.TOKEN)
    if not job.HasField("session_port") or not token:
        raise NotOpenError(f"session {job.job_id} {words_now}", 503, is_awaited=True)
    port = job.named_ports[address.port_name] if address.port_name else job.session_port
    shown = session.present_token(session.WEB if address.port_name else job.spec.session, token)
    is_watched, is_published = job.spec.HasField("idle_after"), bool(job.spec.image)
    return Program(job.job_id, job.uid, port, shown, address.base, is_watched, is_published)


async def connect(program: Program) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the program of the session's own user. Raises NotOpenError."""
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection("127.0.0.1", program.port, limit=PIECE_BYTES),
            listeners.CONSOLE_SESSIONS.deadline_s,
        )
    except (OSError, asyncio.TimeoutError) as error:
        raise NotOpenError(f"{program.name} is running, its program starts", 503, is_awaited=True) from error
    try:
        check_owner(program, writer.transport)
    except NotOpenError:
        close(writer)
        raise
    return reader, writer


def check_owner(program: Program, transport: asyncio.BaseTransport) -> None:
    """Whether the program at the other end is the session's user's. Raises NotOpenError."""
    own = transport.get_extra_info("sockname")
    found = listeners.server_uid(program.port, own[:2], is_published=program.is_published) if own else None
    if not listeners.may_serve(found, program.uid, is_published=program.is_published):
        text = f"{program.name} does not listen at its port {program.port}"
        text += "" if found is None else f": uid {found} does"
        raise NotOpenError(f"{text}; stop it and start another one", 502)


def close(writer: asyncio.StreamWriter) -> None:
    """What has been written may still be taken, for a while."""
    writer.close()
    asyncio.get_running_loop().call_later(SILENT_S, writer.transport.abort)


async def wait_for_log_out(request: Request, take_use: Callable[[], Awaitable[bool]] | None = None) -> None:
    """Until the user of this request is no longer logged in. `take_use`: whether the user has done something since the
    last call; what is merely open does not keep a log-in alive."""
    user = user_of(request)
    await asyncio.sleep(LOOK_S)
    while True:
        is_use = await take_use() if take_use else False
        if not await site_of(request).broker.is_in(user, is_use=is_use):
            return
        await asyncio.sleep(LOOK_S)
