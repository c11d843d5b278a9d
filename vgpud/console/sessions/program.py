"""The programs of sessions: who may open which, and connections to their ports."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from dataclasses import dataclass

from starlette.requests import Request

from vgpud.client import calls
from vgpud.console.live.data import Api
from vgpud.console.login.client import User
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
#: how often it is looked whether a user is still logged in whose stream or WebSocket is open
LOOK_S = 10.0


@dataclass(frozen=True, slots=True)
class Program:
    """A session that runs: where it listens, and how it is shown its token."""

    job_id: int
    uid: int
    port: int
    token: tuple[str, str]  # a header

    @property
    def base(self) -> bytes:
        """The path below which it serves."""
        return session.base_path(self.job_id).encode()


class NotOpenError(Exception):
    """One sentence for the page. `status`: of HTTP; `is_awaited`: it may open by itself."""

    def __init__(self, sentence: str, status: int, is_awaited: bool = False) -> None:
        super().__init__(sentence)
        self.status = status
        self.is_awaited = is_awaited


class Programs:
    """What is known of sessions, for a moment, by user."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[int, int], tuple[float, Program]] = OrderedDict()

    async def find(self, api: Api, user: User, job_id: int) -> Program:
        """The user's session. Asked with the user's own rights. Raises NotOpenError."""
        key = user.uid, job_id
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
        found = _program_of(job, user)
        self._known[key] = time.monotonic(), found
        while len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return found


def _program_of(job: pb.Job, user: User) -> Program:
    """Raises NotOpenError."""
    if not job.spec.session or job.spec.session in session.OF_SERVICES:
        raise NotOpenError(f"job {job.job_id} is not a session", 404)
    if job.uid != user.uid:
        raise NotOpenError(f"session {job.job_id} is another user's: only they may open it", 403)
    words_now = state_words(words.JOB_STATE.to_word(job.state), named_users(job.reason))
    if job.state in calls.ENDED:
        raise NotOpenError(f"session {job.job_id} {words_now}", 410)
    token = job.spec.environment.get(session.TOKEN)
    if not job.HasField("session_port") or not token:
        raise NotOpenError(f"session {job.job_id} {words_now}", 503, is_awaited=True)
    shown = session.present_token(job.spec.session, token)
    return Program(job.job_id, job.uid, job.session_port, shown)


async def connect(program: Program) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection to the program of the session's own user. Raises NotOpenError."""
    try:
        reader, writer = await asyncio.wait_for(
            asyncio.open_connection("127.0.0.1", program.port, limit=PIECE_BYTES),
            listeners.CONSOLE_SESSIONS.deadline_s,
        )
    except (OSError, asyncio.TimeoutError) as error:
        raise NotOpenError(f"session {program.job_id} is running, its program starts", 503, is_awaited=True) from error
    own = writer.get_extra_info("sockname")
    found = listeners.server_uid(program.port, own[:2]) if own else None
    if found != program.uid:
        close(writer)
        text = f"session {program.job_id} does not listen at its port {program.port}"
        text += "" if found is None else f": uid {found} does"
        raise NotOpenError(f"{text}; stop it and start another one", 502)
    return reader, writer


def close(writer: asyncio.StreamWriter) -> None:
    """What has been written may still be taken, for a while."""
    writer.close()
    asyncio.get_running_loop().call_later(SILENT_S, writer.transport.abort)


async def wait_for_log_out(request: Request) -> None:
    """Until the user of this request is no longer logged in."""
    user = user_of(request)
    await asyncio.sleep(LOOK_S)
    while await site_of(request).broker.user(user.cookie, user.source) is not None:
        await asyncio.sleep(LOOK_S)
