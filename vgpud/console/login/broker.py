"""The console's privileged process: it knows who has logged in, and starts a process for each of these users.

It speaks with three parties: the web server (requests that carry the browser's cookie), `vgpu console open` at a unix
socket (the kernel says who calls), and the agents. It reads nothing that a browser has sent but names, passwords and
tokens, and never loads the web server's code. A web server that is taken over can act only as users whose cookies it
has seen. No request ends this process, whatever is in it: it ends when the web server has.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import pwd
import secrets
import selectors
import signal
import socket
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpud.console.login import agent, passwords, shares_file, wire
from vgpud.console.login.failures import Attempt, Failures
from vgpud.console.login.sessions import Session, Sessions
from vgpud.console.login.shares import Share, ShareError, Shares
from vgpud.host import listeners, processes

log = logging.getLogger("vgpud.console")

TOKEN_BYTES = 32
#: no user's name and no address is longer: failures are remembered by them
NAME_CHARS_MAX = 256
#: shared links in an answer: more do not fit into a message
LISTED_MAX = 100
#: how often ended sessions are looked for
EXPIRE_EVERY_S = 10.0
#: requests that failed here are logged at most this often, since others cause them
LOG_EVERY_S = 10.0
#: how often it is looked whether a caller has been silent for too long, while there are any
CALLERS_EVERY_S = 0.5
#: what an agent for one request may take, longer than its client waits; and the web server to end
HELPER_S, WEB_END_S = 30.0, 10.0
_NS = 1_000_000_000


#: of people
LEAST_UID = 1000


@dataclass
class Settings:
    """What the broker must know."""

    api_socket: str  # the daemon's
    url: str  # of the console, as a browser reaches it
    password_file: Path | None = None
    shares_file: Path | None = None  # shared links that outlive a restart of the console
    oidc_least_uid: int = LEAST_UID  # of users that an OpenID provider may vouch for
    server_uids: frozenset[int] = frozenset()  # of no person: what the web server runs as, or would


@dataclass
class _Agent:
    pid: int
    sock: socket.socket


@dataclass
class Broker:
    """Answers until the web server has ended."""

    settings: Settings
    web: socket.socket
    link_socket: socket.socket  # listens for `vgpu console open`
    web_pid: int
    provider: socket.socket | None = None  # of the process that speaks with an OpenID provider
    sessions: Sessions = field(default_factory=lambda: Sessions(lambda: secrets.token_urlsafe(TOKEN_BYTES)))
    shares: Shares = field(default_factory=lambda: Shares(lambda: secrets.token_urlsafe(TOKEN_BYTES)))
    failures: Failures = field(default_factory=Failures)
    _agents: dict[int, _Agent] = field(default_factory=dict)
    _leaving: dict[int, float] = field(default_factory=dict)  # pids of agents that end, and when they are killed
    _callers: dict[socket.socket, tuple[int, float]] = field(default_factory=dict)  # uid, and when it must have spoken
    _places: listeners.Places = field(default_factory=lambda: listeners.Places(listeners.CONSOLE_OPEN))
    _stopping: bool = False
    _logged_s: float = -LOG_EVERY_S

    def run(self) -> int:
        """Returns the web server's exit code."""
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, self._stop)
        if self.settings.shares_file:
            shares_file.load(self.settings.shares_file, self.shares, _boot_ns())
        self._selector = selectors.DefaultSelector()
        self.web.setblocking(False)  # a web server that takes no answers holds nothing up
        self._selector.register(self.web, selectors.EVENT_READ)
        self._selector.register(self.link_socket, selectors.EVENT_READ)
        if self.provider:
            self.provider.setblocking(False)
            self._selector.register(self.provider, selectors.EVENT_READ)
        try:
            while self._turn():
                pass
        finally:
            for uid in list(self._agents):
                self._end_agent(uid)
        return self._reap()

    def _stop(self, *_: object) -> None:
        self._stopping = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.web_pid, signal.SIGTERM)

    def _reap(self) -> int:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.web_pid, signal.SIGTERM)
        until_s = time.monotonic() + WEB_END_S
        while not (ended := os.waitpid(self.web_pid, os.WNOHANG))[0] and time.monotonic() < until_s:
            time.sleep(0.02)
        if not ended[0]:  # stopped by another process of its user, perhaps
            os.kill(self.web_pid, signal.SIGKILL)
            ended = os.waitpid(self.web_pid, 0)
        status = ended[1]
        return 0 if self._stopping else os.waitstatus_to_exitcode(status)

    def _turn(self) -> bool:
        """One wait and what came. Returns False when the web server has closed."""
        for key, _ in self._selector.select(CALLERS_EVERY_S if self._callers else EXPIRE_EVERY_S):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            if sock is self.link_socket:
                self._accept()
            elif sock is self.web:
                try:
                    self._answer_web()
                except BlockingIOError:
                    continue
                except wire.GoneError:
                    return False
            elif sock is self.provider:
                self._answer_provider(sock)
            else:
                self._answer_caller(sock)
        for caller in [sock for sock, (_, until_s) in self._callers.items() if time.monotonic() > until_s]:
            self._drop(caller)
        self.sessions.expire(time.monotonic_ns())
        for uid in self._agents.keys() - self._active_uids():
            self._end_agent(uid)
        self._end_leaving()
        return True

    def _active_uids(self) -> set[int]:
        """Users who are logged in, or whose shared links are in use."""
        return self.sessions.uids() | self.shares.uids(_boot_ns())

    def _end_leaving(self) -> None:
        """Never waits: an agent is a process of its user, who may have stopped it, or may have it read what does not
        answer."""
        self._leaving = {pid: until_s for pid, until_s in self._leaving.items() if not _has_ended(pid)}
        for pid, until_s in self._leaving.items():
            if time.monotonic() >= until_s:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    # ---- `vgpu console open` ----

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            caller, _ = self.link_socket.accept()
            uid = processes.credentials(caller)[1]
            if not self._places.take(uid):
                caller.close()
                return
            caller.setblocking(False)
            self._callers[caller] = uid, time.monotonic() + listeners.CONSOLE_OPEN.deadline_s
            self._selector.register(caller, selectors.EVENT_READ)

    def _answer_caller(self, caller: socket.socket) -> None:
        """One request: a link for the user at the other end, or the console's address."""
        try:
            answers = {"link": self._link, "address": self._address}
            answers |= {"share": self._share, "shares": self._list_shares, "unshare": self._unshare}
            request = wire.receive(caller)
            wire.send(caller, answers[str(request["do"])](self._callers[caller][0], request))
        except Exception as error:  # the caller's fault, or ours: the others' sessions continue
            self._log(error)
        self._drop(caller)

    def _drop(self, caller: socket.socket) -> None:
        self._selector.unregister(caller)
        self._places.give_back(self._callers.pop(caller)[0])
        caller.close()

    def _link(self, uid: int, request: wire.Message) -> wire.Message:
        name = _name(uid)
        if name is None or (why := _why_not_for(uid)):
            return {"error": f"uid {uid} is no user of this host" if name is None else why}
        return {"url": f"{self.settings.url}/login?token={self.sessions.link(uid, name, time.monotonic_ns())}"}

    def _share(self, uid: int, request: wire.Message) -> wire.Message:
        """A link to a session, for this user's own: whose it is, the daemon says when the link is opened."""
        name = _name(uid)
        if name is None or (why := _why_not_for(uid)):
            return {"error": f"uid {uid} is no user of this host" if name is None else why}
        try:
            span_ns = int(request["span_s"]) * _NS
            made, secret = self.shares.make(uid, name, int(request["job_id"]), span_ns, _boot_ns())
        except ShareError as error:
            return {"error": str(error)}
        self._save_shares()
        return {"url": f"{self.settings.url}/share/{secret}", "share_id": made.share_id}

    def _list_shares(self, uid: int, request: wire.Message) -> wire.Message:
        """Root's are those of all users."""
        now_ns = _boot_ns()
        found = self.shares.of(None if uid == 0 else uid, now_ns)
        return {
            "shares": [
                {
                    "share_id": one.share_id,
                    "uid": one.uid,
                    "job_id": one.job_id,
                    "left_s": (one.until_ns - now_ns) // _NS,
                    "unused_s": (now_ns - one.used_ns) // _NS if one.used_ns >= 0 else None,
                }
                for one in found[: int(request.get("most", LISTED_MAX))]
            ]
        }

    def _unshare(self, uid: int, request: wire.Message) -> wire.Message:
        share_id = str(request["share_id"])[:NAME_CHARS_MAX]
        if not self.shares.revoke(None if uid == 0 else uid, share_id):
            return {"error": f"you have no link {share_id!r}: `vgpu session shares` lists yours"}
        self._save_shares()
        return {}

    def _save_shares(self) -> None:
        if self.settings.shares_file:
            try:
                shares_file.save(self.settings.shares_file, self.shares)
            except OSError as error:
                log.warning("shared links end with this console, they could not be saved: %s", error)

    def _address(self, uid: int, request: wire.Message) -> wire.Message:
        """Where the console is, and which daemon it shows: no secret."""
        return {"url": self.settings.url, "api_socket": self.settings.api_socket}

    # ---- an OpenID provider ----

    def _answer_provider(self, provider: socket.socket) -> None:
        """A link for a name that the provider has vouched for."""
        try:
            request = wire.receive(provider)
            wire.send(provider, self._link_by_name(str(request["name"])))
        except BlockingIOError:
            return
        except wire.GoneError:  # links and passwords go on without it
            log.error("the process for log-ins with the OpenID provider has ended: start the console again")
            self._selector.unregister(provider)
            provider.close()
            self.provider = None
        except Exception as error:
            self._log(error)

    def _link_by_name(self, name: str) -> wire.Message:
        """Never root's: whoever may name accounts at the provider would be root here."""
        user = _entry(name)
        if user is None:
            return {"error": f"{name[:NAME_CHARS_MAX]!r} is no user of this machine: the provider's names must be"}
        if user.pw_uid == 0:
            return {"error": "root does not log in with a provider: log in as yourself, or with vgpu console open"}
        if why := _why_not_for(user.pw_uid):
            return {"error": why}
        if user.pw_uid < self.settings.oidc_least_uid or user.pw_uid in self.settings.server_uids:
            text = f"{user.pw_name} is a user of the system: a provider's names are those of people"
            return {"error": f"{text}, whose uids begin at {self.settings.oidc_least_uid} (--oidc-least-uid)"}
        return {"token": self.sessions.link(user.pw_uid, user.pw_name, time.monotonic_ns())}

    # ---- the web server ----

    def _answer_web(self) -> None:
        """Answers one request, or refuses it. Raises GoneError when the web server has closed."""
        fd = -1
        try:
            answer, fd = self._answer(wire.receive(self.web))
        except (wire.GoneError, BlockingIOError):
            raise
        except Exception as error:
            self._log(error)
            answer = {"error": "the console could not answer this request"}
        try:
            wire.send(self.web, answer, fd)
        except (wire.GoneError, wire.NotMessageError) as error:
            self._log(error)  # that it has closed is what the next receive() says
        finally:
            if fd >= 0:
                os.close(fd)

    def _answer(self, request: wire.Message) -> tuple[wire.Message, int]:
        answers = {
            "session": self._session,
            "shared": self._shared,
            "alive": self._alive,
            "redeem": self._redeem,
            "password": self._password,
            "logout": self._logout,
            "agent": self._agent,
        }
        return answers[str(request["do"])](request)

    def _log(self, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s >= LOG_EVERY_S:
            self._logged_s = now_s
            log.warning("a request was refused: %s: %.200s", type(error).__name__, error)

    def _find_session(self, request: wire.Message) -> Session | None:
        is_use = bool(request.get("is_use", True))
        return self.sessions.get(str(request["cookie"]), time.monotonic_ns(), str(request["source"]), is_use=is_use)

    def _session(self, request: wire.Message) -> tuple[wire.Message, int]:
        """A user who was removed meanwhile has none."""
        found = self._find_session(request)
        if found is None or _name(found.uid) is None:
            return {}, -1
        return {"uid": found.uid, "name": found.name, "csrf": found.csrf}, -1

    def _alive(self, request: wire.Message) -> tuple[wire.Message, int]:
        return {"alive": int(request["uid"]) in self._active_uids()}, -1

    def _shared(self, request: wire.Message) -> tuple[wire.Message, int]:
        """The session that a shared link opens, and its user."""
        found = self.shares.find(str(request["secret"]), _boot_ns())
        if found is None or _name(found.uid) is None:
            return {}, -1
        return {"uid": found.uid, "name": found.name, "job_id": found.job_id}, -1

    def _redeem(self, request: wire.Message) -> tuple[wire.Message, int]:
        """Failures are not limited: a token of 256 bits is not guessed, and a limit would keep others out."""
        cookie = self.sessions.redeem_link(str(request["token"]), time.monotonic_ns(), str(request["source"]))
        if cookie is None:
            return {
                "error": "this link was used before or is older than a minute: vgpu console open makes a new one"
            }, -1
        return {"cookie": cookie}, -1

    def _password(self, request: wire.Message) -> tuple[wire.Message, int]:
        if self.settings.password_file is None:
            return {"error": "this console has no password file: log in with vgpu console open"}, -1
        name, now_ns = str(request["name"]), time.monotonic_ns()
        attempt = _attempt(_key(name), _key(request["address"]))
        wait_ns = self.failures.wait_ns(attempt, now_ns)
        if wait_ns:
            return _too_many(wait_ns), -1
        try:
            hashes = passwords.read(self.settings.password_file)
        except passwords.PasswordFileError:
            return {"error": "the console's password file cannot be used: its administrator finds why in the log"}, -1
        user = _entry(name) if passwords.matches(hashes, name, str(request["password"])) else None
        if user is None or os.geteuid() not in (0, user.pw_uid):
            self.failures.add(attempt, now_ns)
            return {"error": "the name or the password is wrong"}, -1
        self.failures.log_in(attempt)
        return {"cookie": self.sessions.open(user.pw_uid, name, now_ns)}, -1

    def _logout(self, request: wire.Message) -> tuple[wire.Message, int]:
        self.sessions.close(str(request["cookie"]))
        return {}, -1

    def _agent(self, request: wire.Message) -> tuple[wire.Message, int]:
        """The socket to the agent of the cookie's user, or of a shared link's; of a job's owner for root, who may act
        as every user."""
        found: Session | Share | None = self._find_session(request)
        if found is None and request.get("share"):
            found = self.shares.find(str(request["share"]), _boot_ns())
        if found is None:
            return {"error": "not logged in"}, -1
        if found.uid == 0 and isinstance(found, Share) and "uid" in request:
            return {"error": "a shared link acts for no other user"}, -1
        uid = int(request["uid"]) if found.uid == 0 and "uid" in request else found.uid
        if uid != found.uid:  # for one request of the web server's: it closes the socket, and the agent ends
            pid, sock = agent.start(uid, self.settings.api_socket, self._descriptors())
            self._leaving[pid] = time.monotonic() + HELPER_S
            return {"uid": uid}, sock.detach()
        known = self._agents.get(uid)
        if known is None or _has_ended(known.pid):
            pid, sock = agent.start(uid, self.settings.api_socket, self._descriptors())
            known = self._agents[uid] = _Agent(pid, sock)
        return {"uid": uid}, os.dup(known.sock.fileno())

    def _descriptors(self) -> list[int]:
        """What an agent must not keep."""
        agents = [known.sock.fileno() for known in self._agents.values()]
        own = [sock.fileno() for sock in (self.web, self.link_socket, self.provider) if sock]
        return [*own, *(c.fileno() for c in self._callers), *agents]

    def _end_agent(self, uid: int) -> None:
        known = self._agents.pop(uid)
        known.sock.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(known.pid, signal.SIGKILL)  # it has nothing to finish, and SIGTERM does not end what is stopped
        self._leaving[known.pid] = time.monotonic()


def _why_not_for(uid: int) -> str:
    """Why this console does nothing for this user; "": it does."""
    if uid == processes.stand_in_uid():
        return "the console cannot tell which user of another user namespace calls"
    if os.geteuid() not in (0, uid):
        return f"this console belongs to uid {os.geteuid()} and acts for no other user"
    return ""


def _boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _attempt(name: str, address: str) -> Attempt:
    """Behind a user of this machine may be a proxy, and behind its own addresses tunnels: neither is one person."""
    try:
        parsed = ipaddress.ip_network(address, strict=False).network_address
        shared = (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback
    except ValueError:
        shared = True  # "uid 1000", or a unix socket
    return Attempt(name, address, shared)


def _key(text: object) -> str:
    """What failures are remembered by: as short as a name, so that a stranger's words fill no memory here."""
    return str(text)[:NAME_CHARS_MAX]


def _too_many(wait_ns: int) -> wire.Message:
    return {"error": f"too many failed log-ins: try again in {-(-wait_ns // _NS)} s", "wait": True}


def _has_ended(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


def _name(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None


def _entry(name: str) -> Any:
    try:
        return pwd.getpwnam(name)
    except (KeyError, ValueError):
        return None


def link_socket_path(runtime: Path) -> Path:
    """The socket of `vgpu console open`."""
    return runtime / "console.sock"


def link(socket_path: Path, timeout_s: float) -> str:
    """A one-time link for the calling user, from the console at this socket. Raises OSError, GoneError,
    NotMessageError, ValueError (the console's refusal)."""
    return str(_ask(socket_path, timeout_s, "link")["url"])


def address(socket_path: Path, timeout_s: float) -> tuple[str, str]:
    """The URL of the console at this socket, and the path of its daemon's socket. Raises as link()."""
    answer = _ask(socket_path, timeout_s, "address")
    return str(answer["url"]), str(answer["api_socket"])


def share(socket_path: Path, timeout_s: float, job_id: int, span_s: int) -> tuple[str, str]:
    """A link that opens one session of the calling user's, and its id. Raises as link()."""
    answer = _ask(socket_path, timeout_s, "share", job_id=job_id, span_s=span_s)
    return str(answer["url"]), str(answer["share_id"])


def list_shares(socket_path: Path, timeout_s: float) -> list[wire.Message]:
    """The calling user's shared links: share_id, uid, job_id, left_s and unused_s, None = never used. Raises as
    link()."""
    return list(_ask(socket_path, timeout_s, "shares")["shares"])


def unshare(socket_path: Path, timeout_s: float, share_id: str) -> None:
    """Ends a shared link, at once. Raises as link()."""
    _ask(socket_path, timeout_s, "unshare", share_id=share_id)


def _ask(socket_path: Path, timeout_s: float, do: str, **fields: object) -> wire.Message:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(timeout_s)
        sock.connect(str(socket_path))
        _, owner, _ = processes.all_credentials(sock)
        if owner not in (0, os.geteuid()):
            raise ValueError(
                f"the console at {socket_path} belongs to uid {owner}, neither you nor root: do not use its links"
            )
        wire.send(sock, {"do": do, **fields})
        answer = wire.receive(sock)
    if "error" in answer:
        raise ValueError(answer["error"])
    return answer
