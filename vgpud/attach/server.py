"""Shell of the attach sockets: one SEQPACKET socket per slice, through which its programs get their pages (DESIGN D4).

A further socket is shared by containers that cannot be given a slice's own directory; there the cgroup determines the
slice. The identity of a peer comes from the kernel (SO_PEERCRED, a pidfd and the cgroup), never from the message.
A native thread (thread.py) accepts, and answers plain first attaches by rules that the core has made. It hands every
other connection over to this module, also those of programs that ran on while the daemon was restarted (RESUME). The
module is notified of the thread's attachments afterwards.

Nothing here waits for a peer: every socket is non-blocking, a silent peer is dropped at a deadline, and each table has
a maximum. A process is gone when its pidfd has fired and its socket is at end: a forked child keeps that descriptor, as
it keeps the driver's. A socket that ends while the process lives frees everything but the charge for its memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from vgpud.attach.messages import (
    ABI_VERSION,
    MODES,
    REQUEST_BYTES,
    Pages,
    Refusal,
    clean_text,
    ffi,
    held_of,
    lib,
    named_of,
    parse_request,
    reply_bytes,
    slice_reply_bytes,
    usage_bytes,
)
from vgpud.attach.thread import AttachThread
from vgpud.core.model import Denied, Device, Process, Slice
from vgpud.core.slices.attach_rules import Rules
from vgpud.core.slices.bounds import format_account
from vgpud.host import cgroups
from vgpud.host import processes as host_processes
from vgpud.host.user_namespaces import account_uid

BACKLOG = 1024
#: where a socket is made ready; no longer than its own name, as paths of sockets are short
NEW_SOCKET = ".attach.new"
#: the listener that finds the slice by the peer's cgroup
SHARED = ""
#: of the attach thread's news, how many are looked at before everything else has its turn
NEWS_AT_ONCE = 8
#: new rules are made this long after the first change, and at most this part of the time is spent on them
RULES_DELAY_S, RULES_PART = 0.005, 0.1


@dataclass(frozen=True, slots=True)
class Greeting:
    """A validated attach message and its sender."""

    slice_name: str
    process_id: int
    pid: int
    uid: int
    account: str
    container_id: str
    program: str
    is_resumed: bool = False
    holder: bool = False
    held: tuple[tuple[bytes, int], ...] = ()  # what a resuming process claims, by the 16 bytes of a device's UUID
    serial: int = 0  # of the slice whose pages it has been given already; 0: it waits for the answer
    named_uuids: tuple[bytes, ...] = ()  # as held: the devices in its CUDA_VISIBLE_DEVICES, for a pending slice


@dataclass(frozen=True, slots=True)
class Attachment:
    """The core's attachment: the reply to the process, and what the arbiters are to believe it holds."""

    process: Process
    slice: Slice
    held: dict[str, int]
    devices: dict[str, Device]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a slice uses now, by its devices in their order."""

    used_bytes: list[int]
    busy_milli: list[int]  # device time in the last second, of all there was
    processes: list[tuple[int, int, int, int]]  # (process_id, which device, bytes, of these in the ledger)


class Backend(Protocol):
    """What the daemon does for the sockets. Called on the loop, must not wait."""

    def attach(self, greeting: Greeting) -> Attachment | Denied: ...
    def slice_in(self, cgroups: tuple[str, ...]) -> str: ...
    def container_id(self, cgroups: tuple[str, ...]) -> str: ...
    def account(self, account_uid: int, cgroups: tuple[str, ...]) -> str: ...
    def rules(self) -> tuple[Rules, Mapping[str, Device]]: ...
    def arbiter(self, device: str) -> Any: ...
    def look(
        self, slice_name: str, uid: int, cgroups: tuple[str, ...], raw_uuids: tuple[bytes, ...] | None = None
    ) -> Attachment | Denied: ...
    def usage(self, attachment: Attachment) -> Usage: ...
    def remove_process(self, process_id: int) -> None: ...
    def note_disconnect(self, process_id: int) -> None: ...
    def note_process_end(self, process_id: int) -> None: ...
    def note_refusal(self, slice_name: str, pid: int, why: str) -> None: ...
    def join(
        self, serial: int, process_id: int, device: str, pages: tuple[Any, Any, Any], bell: int, held: int
    ) -> None: ...
    def leave(self, process_id: int, device: str) -> None: ...
    def disconnect(self, serial: int, process_id: int, device: str) -> None: ...


@dataclass(eq=False, slots=True)
class Peer:
    """One connection: attached (process_id set) until it is gone, or asking once."""

    slice_name: str
    sock: socket.socket
    pid: int
    uid: int
    cgroups: tuple[str, ...]
    pidfd: int
    pid_namespace: str = ""  # "": the one that we see all pids of
    own_pid: int = 0  # what it is called in there
    account: str = ""  # the user that the connection counts for in the core
    process_id: int = 0
    serial: int = 0  # of its slice
    library_copy: int = 0
    abi_version: int = ABI_VERSION  # that it speaks
    holder: bool = False
    pages: Pages | None = None
    devices: tuple[str, ...] = ()
    at_end: bool = False
    dead: bool = False

    def pid_for(self, asker: Peer) -> int:
        """The process's pid in the asker's pid namespace; 0: it is not visible there, or the namespace is not known."""
        if not asker.pid_namespace:
            return self.pid
        return self.own_pid if self.pid_namespace == asker.pid_namespace else 0


@dataclass(slots=True)
class Listener:
    sock: socket.socket
    path: Path
    name: int  # as the attach thread calls it


class Tenants:
    """All attach sockets of the node. `directory`: where each slice has its own directory with attach.sock; `shared`:
    the directory of the one for containers that are known by their cgroup."""

    def __init__(self, directory: Path, shared: Path, node: str, mode: str, backend: Backend) -> None:
        self._directory = directory
        self._shared = shared
        self._node = node
        self.mode = mode
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._listeners: dict[str, Listener] = {}
        self._by_name: dict[int, tuple[str, Listener]] = {}
        self._peers: dict[int, Peer] = {}
        # process ids are unique over restarts: the clock moves on by a millisecond far sooner than a daemon can see
        # 65536 processes
        self._thread = AttachThread(node, (time.monotonic_ns() // 1_000_000) << 16, backend.arbiter)
        self._loop.add_reader(self._thread.news_fd(), self._hear)
        self._rules_timer: asyncio.TimerHandle | None = None
        self._rules_cost_s = 0.0

    def set_mode(self, mode: str) -> None:
        """What tenants do without the daemon, attached ones included."""
        with self.settle_attachments():
            self.mode = mode
            for peer in self._peers.values():
                if peer.pages:
                    peer.pages.header.mode = MODES[mode]

    # ---- sockets ----

    def open(self, slice_name: str) -> None:
        """Listens for the programs of a slice (SHARED: of any); a stale socket is replaced. Raises OSError."""
        path = (self._directory / slice_name if slice_name else self._shared) / "attach.sock"
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        made = path.with_name(NEW_SOCKET)  # takes the old one's place in one step: a program that starts finds a socket
        made.unlink(missing_ok=True)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        try:
            sock.bind(str(made))
            made.chmod(0o666)  # permission goes by uid, and users in containers have any
            sock.listen(BACKLOG)
            if path.is_dir() and not path.is_symlink():
                path.rmdir()  # docker makes one where a file that it shall mount is missing
            made.replace(path)
            name = self._thread.listen(sock.fileno())
        except OSError:
            sock.close()
            made.unlink(missing_ok=True)
            raise
        self._listeners[slice_name] = listener = Listener(sock, path, name)
        self._by_name[name] = slice_name, listener
        self.renew_rules()

    def close(self, slice_name: str, *, keep_file: bool = False) -> None:
        """Stops listening; the file stays when the daemon only stops, so that containers' mounts stay good."""
        listener = self._listeners.pop(slice_name, None)
        if listener is None:
            return
        self._retire(listener)
        if not keep_file:
            listener.path.unlink(missing_ok=True)
            listener.path.with_name(NEW_SOCKET).unlink(missing_ok=True)  # of a daemon that was killed
            with contextlib.suppress(OSError):  # something else lies there, or it is mounted: not ours to remove
                listener.path.parent.rmdir()

    def left_over(self, slice_names: Container[str]) -> list[str]:
        """Slices of a former daemon that are not among these, nor open: their sockets exist."""
        try:
            names = sorted(path.parent.name for path in self._directory.glob("*/attach.sock") if path.is_socket())
        except OSError:
            return []
        return [name for name in names if name not in slice_names and name not in self._listeners]

    def _retire(self, listener: Listener) -> None:
        self._thread.unlisten(listener.name)
        del self._by_name[listener.name]
        listener.sock.close()

    def find_lost_sockets(self) -> list[str]:
        """Slices whose socket file was removed."""
        return [name for name, listener in self._listeners.items() if not listener.path.exists()]

    def reopen(self, slice_name: str) -> bool:
        """Listens at a new file; attached programs continue. False: the slice has ended meanwhile.

        Raises OSError: the old listener is kept then.
        """
        old = self._listeners.get(slice_name)
        if old is None:
            return False
        self.open(slice_name)
        self._retire(old)
        return True

    def close_all(self) -> None:
        """The daemon stops: every connection ends (the tenants then coast), every socket file stays."""
        self._thread.stop()
        if self._rules_timer:
            self._rules_timer.cancel()
        self._loop.remove_reader(self._thread.news_fd())
        self._hear_all()
        for name in list(self._listeners):
            self.close(name, keep_file=True)
        for process_id in list(self._peers):
            self.drop(process_id)

    # ---- the attach thread ----

    @contextlib.contextmanager
    def settle_attachments(self) -> Iterator[None]:
        """What the thread has admitted is known to the core, and it admits nothing until new rules are made."""
        with self._thread.pause_attachments():
            self._hear_all()
            self.forget_rules()
            yield

    def forget_rules(self) -> None:
        """What was allowed may not be any more: the thread hands everything over until there are new rules."""
        self._thread.clear()
        self.renew_rules()

    def renew_rules(self) -> None:
        """More may be allowed than the thread knows: it gets new rules in a moment."""
        if self._rules_timer is None:
            delay_s = max(RULES_DELAY_S, self._rules_cost_s / RULES_PART)
            self._rules_timer = self._loop.call_later(delay_s, self._load_rules)

    def _load_rules(self) -> None:
        self._rules_timer = None
        begin = time.monotonic()
        with self._thread.pause_attachments():
            rules, devices = self._backend.rules()
            listeners = {name: listener.name for name, listener in self._listeners.items()}
            self._thread.load(rules, devices, self.mode, listeners, listeners.pop(SHARED, 0))
        self._rules_cost_s = time.monotonic() - begin

    def _hear(self) -> None:
        """News of the thread: a connection that it hands over, then everything else, or some attachments."""
        for _ in range(NEWS_AT_ONCE):
            news = self._thread.take()
            if news is None or not self._take_news(news):
                return

    def _hear_all(self) -> None:
        while (news := self._thread.take()) is not None:
            self._take_news(news)

    def _take_news(self, news: Any) -> bool:
        """Whether it was an attachment, which costs less than any other news."""
        slice_name, listener = self._by_name.get(news.listener, (SHARED, None))
        if news.kind == lib.VG_ATTACH_SERVER_ATTACHED:
            self._register_admitted(news)
            return True
        if news.kind == lib.VG_ATTACH_SERVER_FAULT:  # out of descriptors: the rest is in the backlog for a moment
            text = f"cannot accept: {os.strerror(news.error)}; raise LimitNOFILE"
            self._backend.note_refusal(slice_name, 0, text)
        elif news.kind == lib.VG_ATTACH_SERVER_CLOSED:
            text = f"{self._describe_account(news.account)} has {news.count} connections that have sent nothing"
            text += ": one was closed"
            self._backend.note_refusal(slice_name, 0, text)
        elif listener:
            self._greet(socket.socket(fileno=news.socket_fd), slice_name)
        else:
            os.close(news.socket_fd)  # the slice has ended meanwhile
        return False

    def _describe_account(self, number: int) -> str:
        try:
            return format_account(self._thread.account(number)[0])
        except KeyError:  # of a container that has ended, or of processes that could not be identified
            return "a program that has ended or cannot be seen from here"

    def _register_admitted(self, news: Any) -> None:
        """A process that has its answer. It is revoked when the core refuses it after all."""
        found = self._thread.slice_of(news.slice_id)
        account, inside = self._thread.account(news.account)
        namespace, own_pid = host_processes.own_pid(news.pid)
        if host_processes.has_ended(news.pidfd):  # its pid may be another's by now
            namespace, own_pid = "?", 0
        sock = socket.socket(fileno=news.socket_fd)
        peer = Peer(found.name, sock, news.pid, news.uid, (), news.pidfd, namespace, own_pid, account=account)
        peer.process_id, peer.serial, peer.library_copy = news.process_id, news.slice_id, news.library_copy
        peer.pages, peer.devices = Pages.from_news(news), tuple(share.device_uuid for share in found.shares)
        self._peers[peer.process_id] = peer
        program = clean_text(bytes(ffi.buffer(news.program)))
        container_id = account.removeprefix("container ") if inside else ""
        answer = self._backend.attach(
            Greeting(
                found.name, peer.process_id, peer.pid, peer.uid, account, container_id, program, serial=peer.serial
            )
        )
        if isinstance(answer, Denied):
            self._backend.note_refusal(found.name, peer.pid, answer.message)
            self.drop(peer.process_id)
            return
        self._watch_end(peer)

    # ---- greeting ----

    def _peer(self, sock: socket.socket, slice_name: str) -> Peer | None:
        """The peer, None when it cannot be identified: what is read by its pid was read while it lived."""
        pid, uid = host_processes.credentials(sock)
        try:
            pidfd = host_processes.peer_pidfd(sock, pid)
        except OSError:  # died meanwhile, or lives where we cannot see it
            self._backend.note_refusal(
                slice_name, pid, f"no such process as pid {pid} here: run vgpud in the host's pid namespace"
            )
            return None
        inside, (namespace, own_pid) = cgroups.paths_of(pid), host_processes.own_pid(pid)
        payer = account_uid(pid, uid)
        if host_processes.has_ended(pidfd):
            os.close(pidfd)
            return None
        name = slice_name or self._backend.slice_in(inside)
        account = self._backend.account(payer, inside)
        return Peer(name, sock, pid, uid, inside, pidfd, namespace, own_pid, account)

    def _greet(self, sock: socket.socket, slice_name: str) -> None:
        """A connection whose message has come, or that has ended. Whose it is costs ten times as much to find out as to
        read the message, so that is not asked for what is no message."""
        sock.setblocking(False)
        request: Any = None
        try:
            raw = sock.recv(REQUEST_BYTES + 1)
            if raw:
                request = parse_request(raw)
        except OSError:  # it has gone
            pass
        except Refusal as refusal:
            self._refuse(sock, slice_name, host_processes.credentials(sock)[0], refusal)
            sock.close()
            return
        peer = None if request is None else self._peer(sock, slice_name)
        if request is None or peer is None:
            sock.close()
            return
        try:
            peer.abi_version = request.abi_version
            if request.resume == lib.VG_ATTACH_QUERY:
                self._answer_query(peer, named_of(request))
            else:
                self._admit(peer, request)
        except Refusal as refusal:
            self._refuse(sock, peer.slice_name, peer.pid, refusal, peer.abi_version)
            self._close_peer(peer)

    def _refuse(
        self, sock: socket.socket, slice_name: str, pid: int, refusal: Refusal, abi_version: int = ABI_VERSION
    ) -> None:
        self._backend.note_refusal(slice_name, pid, str(refusal))
        with contextlib.suppress(OSError):  # it has gone, or its buffer is full
            sock.send(reply_bytes(self._node, self.mode, refusal.status, str(refusal), abi_version))

    def _answer_query(self, peer: Peer, raw_uuids: tuple[bytes, ...]) -> None:
        found = self._backend.look(peer.slice_name, peer.uid, peer.cgroups, raw_uuids)
        if isinstance(found, Denied):
            raise Refusal.of(found)
        self._send(peer, self._yes(peer, found), [])
        self._send(peer, self._usage(peer, found), [])
        self._close_peer(peer)

    def _usage(self, asker: Peer, attachment: Attachment) -> bytes:
        """Present usage of the slice and its attached processes: the second message to a peer that only asks."""
        now = self._backend.usage(attachment)
        # a pid may have several lives here: one row for all
        rows: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        for process_id, device, used_bytes, ledger_bytes in now.processes:
            other = self._peers.get(process_id)
            pid = other.pid_for(asker) if other else 0
            if other and pid:
                key = other.pid, pid, device
                rows.setdefault(key, []).append((used_bytes, ledger_bytes))
        return usage_bytes(now.used_bytes, now.busy_milli, rows)

    def _admit(self, peer: Peer, request: Any) -> None:
        held = held_of(request)
        resumed, holder = request.resume == lib.VG_ATTACH_RESUME, request.resume == lib.VG_ATTACH_HOLD
        peer.library_copy = request.library_copy
        with self.settle_attachments():
            self._replace_old(peer, resumed)
            answer = self._backend.attach(self._greeting(peer, request, held))
        if isinstance(answer, Denied):
            raise Refusal.of(answer)
        peer.process_id, peer.serial, peer.holder = answer.process.process_id, answer.slice.serial, holder
        self._peers[peer.process_id] = peer
        self._thread.know(peer.pid)
        try:
            fds = [] if holder else self._give_pages(peer, answer)
        except OSError as error:
            text = f"attach: the daemon is out of resources ({error.strerror}): see its log and LimitNOFILE"
            self._backend.note_refusal(peer.slice_name, peer.pid, text)
            self._send(peer, self._no(peer, lib.VG_ATTACH_FULL, text), [])
            self._backend.remove_process(peer.process_id)
            return
        if not self._send(peer, self._yes(peer, answer), fds):
            self._backend.remove_process(peer.process_id)
            return
        if peer.pages:
            peer.pages.close_sent()
        self._watch_end(peer)

    def _greeting(self, peer: Peer, request: Any, held: tuple[tuple[bytes, int], ...]) -> Greeting:
        return Greeting(
            peer.slice_name,
            self._thread.next_id(),
            peer.pid,
            peer.uid,
            peer.account,
            self._backend.container_id(peer.cgroups),
            clean_text(bytes(ffi.buffer(request.program))),
            request.resume == lib.VG_ATTACH_RESUME,
            request.resume == lib.VG_ATTACH_HOLD,
            held,
            named_uuids=named_of(request),
        )

    def _watch_end(self, peer: Peer) -> None:
        self._loop.add_reader(peer.sock, self._at_end, peer)
        self._loop.add_reader(peer.pidfd, self._mark_dead, peer)

    def _replace_old(self, peer: Peer, is_resumed: bool) -> None:
        """A process is attached once for each copy of the shim in it (dlmopen makes further ones): an attachment that
        it has left, by exec or after losing the connection, ends when it attaches again."""
        for old in [p for p in self._peers.values() if p.pid == peer.pid and not p.holder]:
            again = is_resumed and (old.slice_name, old.library_copy) == (peer.slice_name, peer.library_copy)
            if old.at_end or again:
                self._backend.remove_process(old.process_id)

    def _give_pages(self, peer: Peer, answer: Attachment) -> list[int]:
        shares = answer.slice.shares
        peer.pages = pages = Pages(len(shares), MODES[self.mode], peer.abi_version)
        for index, share in enumerate(shares):
            device = share.device_uuid
            held = answer.held.get(device, 0)
            self._backend.join(answer.slice.serial, peer.process_id, device, pages.of(index), pages.bells[index], held)
            peer.devices += (device,)
        return [*pages.fds, *pages.bells]

    def _yes(self, peer: Peer, answer: Attachment) -> bytes:
        process_id = answer.process.process_id
        return slice_reply_bytes(self._node, self.mode, process_id, answer.slice, answer.devices, peer.abi_version)

    def _no(self, peer: Peer, status: int, text: str) -> bytes:
        return reply_bytes(self._node, self.mode, status, text, peer.abi_version)

    def _send(self, peer: Peer, message: bytes, fds: list[int]) -> bool:
        try:
            if fds:
                socket.send_fds(peer.sock, [message], fds)
            else:
                peer.sock.send(message)
        except OSError:  # it has gone, or its buffer is full: either way it gets nothing more
            return False
        return True

    # ---- the end ----

    def _at_end(self, peer: Peer) -> None:
        """The socket is readable after the greeting: at end, or the peer sends something unexpected."""
        self._loop.remove_reader(peer.sock)
        peer.at_end = True
        if not peer.dead and not peer.holder and not host_processes.has_ended(peer.pidfd):
            self._disconnect(peer)
        self._check_gone(peer)

    def _disconnect(self, peer: Peer) -> None:
        """The process lives on without us: it keeps no place, no pages and no descriptors here but its pidfd."""
        for device in peer.devices:
            self._backend.disconnect(peer.serial, peer.process_id, device)
        peer.sock.close()
        self._free_pages(peer)
        self._backend.note_disconnect(peer.process_id)

    def _mark_dead(self, peer: Peer) -> None:
        self._loop.remove_reader(peer.pidfd)
        peer.dead = True
        self._check_gone(peer)

    def _check_gone(self, peer: Peer) -> None:
        if peer.at_end and (peer.dead or peer.holder):
            self._backend.note_process_end(peer.process_id)

    def dead(self) -> list[int]:
        """The ids of processes that have ended and are kept, since a child holds their socket. From any thread."""
        return [peer.process_id for peer in list(self._peers.values()) if peer.dead]

    def drop(self, process_id: int) -> None:
        """Takes a process from the arbiters and closes its connection; its pages are freed. Unknown: no effect."""
        peer = self._peers.pop(process_id, None)
        if peer is None:
            return
        for device in peer.devices:
            self._backend.leave(process_id, device)
        self._thread.forget(peer.pid)
        self._close_peer(peer)

    def _close_peer(self, peer: Peer) -> None:
        if peer.sock.fileno() >= 0:
            self._loop.remove_reader(peer.sock)
            peer.sock.close()
        if peer.pidfd >= 0:
            self._loop.remove_reader(peer.pidfd)
            os.close(peer.pidfd)
            peer.pidfd = -1
        self._free_pages(peer)

    @staticmethod
    def _free_pages(peer: Peer) -> None:
        if peer.pages:
            peer.pages.close()
            peer.pages = None
