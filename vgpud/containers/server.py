"""Shell of the runtime socket: vgpu-runtime and its hooks report the creation, start and end of containers.

The peer's identity comes from the kernel. Only root and the daemon's own user are served, because requests name files
that are read with the daemon's rights, in a mount namespace that another user could have set up. Bundles are read and
edited in separate threads with a deadline, through the peer's root, so neither a slow disk nor another mount namespace
blocks the loop. The end of a container is detected by its first process's pidfd and its cgroup, with or without a hook.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import posixpath
import re
import socket
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from vgpud.containers import messages as wire
from vgpud.containers.disk_work import Work
from vgpud.containers.messages import Header, WireError
from vgpud.containers.restarts import Restarts
from vgpud.containers.steps import StepBackend, Steps, task_variables
from vgpud.containers.watch import ContainerWatch
from vgpud.core import origins
from vgpud.core.events import ContainerCreated, ContainerStarted
from vgpud.core.model import UID_MAX, Asker, Container, Denied, Slice
from vgpud.core.slices.claims import pod_of
from vgpud.core.units import parse_whole
from vgpud.errors import VgpudError
from vgpud.host import cgroups, processes, users
from vgpud.host.listeners import RUNTIME
from vgpud.libraries.tree import library_tree
from vgpud.oci import mount_points
from vgpud.oci.engine_name import engine_name, find_docker_folder
from vgpud.oci.owner import BY_ENGINE, find_owner_name
from vgpud.oci.prepare import Plan, Prepared, look, prepare
from vgpud.oci.request import Limits, Request, RequestError, parse_request
from vgpud.oci.rootfs import Root
from vgpud.paths import shared_attach_dir
from vgpud.slurm.request import ASKED, StepError

T = TypeVar("T")

log = logging.getLogger("vgpud.containers")

#: deadline for vgpu-runtime to send its request, and again to read the reply
REQUEST_S = RUNTIME.deadline_s
#: deadline for reading and editing a bundle: less than vgpu-runtime waits, so that the user gets the reason
WORK_S = 9.0
#: concurrent requests; the rest waits in the socket's backlog
REQUESTS_MAX = RUNTIME.all_max
#: concurrent requests of one process: half, although vgpu-runtime and a hook need only one each
PER_PROCESS_MAX = RUNTIME.share_max
#: containers that wait for their pod at a time: any pod can name a slice that is not for it
POD_WAITS_MAX = REQUESTS_MAX // 4
#: parts of 64 KiB discarded from a peer that is not served
UNREAD_MAX = 32
BACKLOG = 1024
#: bundles of podman, which gives a container the annotations of its image; their location is that of containers/storage
_PODMAN_BUNDLE = re.compile(r"-containers/[^/]+/userdata/?$")
NVIDIA_ALONE = (
    "the container asks for NVIDIA devices but for no share of them: set VGPU=1 (or less), or use another runtime"
)


@dataclass(frozen=True, slots=True)
class Site:
    """Values common to all containers of this node."""

    runtime: Path
    cache: Path
    driver: Path
    nvml: Path | None
    sim_dir: str  # "" on real devices
    nvidia_cdi_dirs: tuple[str, ...]
    mode: str
    limits: Limits
    owner: str  # whom it believes of who a container is for (oci/owner.py)

    @property
    def scratch(self) -> Path:
        return self.runtime / "containers"


class Backend(StepBackend, Protocol):
    """The daemon's side of the runtime socket. Called on the loop; methods that are not `async` must not block."""

    def site(self) -> Site: ...
    async def wait_for_pod(self, slice_name: str, pod: str) -> bool: ...
    def indices(self, slice_: Slice) -> tuple[int, ...]: ...
    def container_note(self, kind: str, container_id: str, text: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Peer:
    """The peer of a connection. `pidfd` and `root` (its root directory, O_PATH) are closed with the connection."""

    pid: int
    uid: int
    pidfd: int
    root: int

    @property
    def root_path(self) -> Path:
        return Path(f"/proc/self/fd/{self.root}")


class Refusal(Exception):
    """Ends a request with one line for the user."""


def slice_name(container_id: str) -> str:
    """The default name of a container's slice: c- and what `docker ps` shows, or a digest of an unusual id."""
    begin = container_id[:12]
    usual = len(container_id) >= 12 and all(c in "0123456789abcdef" for c in container_id)
    return f"c-{begin}" if usual else f"c-{hashlib.sha256(container_id.encode()).hexdigest()[:12]}"


def scratch_of(site: Site, container: Container) -> Path:
    """The directory of a container's own files: a new one each time that the same id is created."""
    return site.scratch / f"{container.created_wall_ns:x}-{container.container_id[:64]}"


class Containers:
    """The runtime socket and the watch over all containers of the node."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._loop = asyncio.get_running_loop()
        self._bundles = Work()
        self._restarts = Restarts(backend, self._bundles, self._spawn)
        self._watch = ContainerWatch(self._restarts.end)
        self._steps = Steps(backend, self._watch)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._listener: socket.socket | None = None
        self._accepting: asyncio.Task[Any] | None = None
        self._busy = asyncio.Semaphore(REQUESTS_MAX)
        self._asking: Counter[int] = Counter()  # requests in hand by pid
        self._pod_waits = 0
        self._path = self._private = Path()
        self._rights = (0o660, -1)

    # ---- life ----

    def start(self, path: Path, private: Path, mode: int, gid: int) -> None:
        """Listens at `path`, created at `private` first so that it never has wrong permissions. Raises OSError."""
        self._path, self._private, self._rights = path, private, (mode, gid)
        self._listen()
        self._spawn(self._sweep())

    def _listen(self) -> None:
        mode, gid = self._rights
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._private.unlink(missing_ok=True)
            sock.bind(str(self._private))
            self._private.chmod(mode)
            if gid >= 0:
                os.chown(self._private, -1, gid)
            sock.listen(BACKLOG)
            self._private.rename(self._path)
        except OSError:
            sock.close()
            raise
        self._listener = sock
        self._accepting = self._spawn(self._accept(sock))

    def repair(self) -> bool:
        """Reopens the socket if its file was removed; returns whether it was."""
        old, accepting = self._listener, self._accepting
        if old is None or self._path.exists():
            return False
        self._listen()
        self._retire(old, accepting)
        return True

    def _retire(self, listener: socket.socket, accepting: asyncio.Task[Any] | None) -> None:
        if accepting:
            accepting.cancel()  # it waits for the next connection with a place among the requests in hand
        self._loop.remove_reader(listener)
        listener.close()

    async def stop(self) -> None:
        """Ends every request; containers continue. The file stays, so that vgpu-runtime waits for the next daemon."""
        self._close_listener()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._watch.close()

    def _close_listener(self) -> None:
        if self._listener:
            self._retire(self._listener, self._accepting)
        self._listener = None

    def _spawn(self, work: Any) -> asyncio.Task[Any]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _sweep(self) -> None:
        """Removes the files of containers that ended while no daemon ran."""
        site = self._backend.site()
        kept = {scratch_of(site, container).name for container in self._watch.containers}
        # listed before the first request is served: later the list could include a new container's files
        await asyncio.to_thread(mount_points.remove, _others(site.scratch, kept))

    # ---- live containers ----

    def adopt(self, containers: Iterable[Container]) -> None:
        """Restores a former daemon's containers: live ones are watched again, ended ones are released."""
        containers = list(containers)
        for container in containers:
            if processes.start_time(container.pid) == container.pid_start:
                self._restarts.note_monitor(container.container_id, container.pid)
        self._watch.adopt(containers)

    def forget(self, container_id: str) -> None:
        """The core has removed the container: ends its watch and removes its files."""
        self._restarts.forget(container_id)
        container = self._watch.forget(container_id)
        if container:
            self._spawn(asyncio.to_thread(mount_points.remove, [scratch_of(self._backend.site(), container)]))

    # ---- requests ----

    async def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            await self._busy.acquire()
            try:
                sock, _ = await self._loop.sock_accept(listener)
            except OSError:  # out of descriptors, or closed: the rest stays in the backlog for a moment
                self._busy.release()
                await asyncio.sleep(0.1)
                continue
            except BaseException:
                self._busy.release()
                raise
            self._spawn(self._serve(sock)).add_done_callback(lambda _task: self._busy.release())

    async def _serve(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        pid, uid = processes.credentials(sock)
        self._asking[pid] += 1
        try:
            with sock, contextlib.suppress(OSError, asyncio.TimeoutError):
                if uid not in (0, os.geteuid()):
                    await self._refuse(sock, _foreign_text(uid))
                elif self._asking[pid] > PER_PROCESS_MAX:
                    text = f"pid {pid} has {PER_PROCESS_MAX} requests in progress, the limit of a process: wait for one"
                    await self._refuse(sock, text)
                else:
                    await self._converse(sock, uid)
        finally:
            self._asking[pid] -= 1
            if not self._asking[pid]:
                del self._asking[pid]

    async def _refuse(self, sock: socket.socket, text: str) -> None:
        """Refuses a peer that is not served, without reading its request."""
        self._backend.container_note("container.refused", "", text)
        await asyncio.wait_for(self._loop.sock_sendall(sock, wire.refusal(text)), REQUEST_S)
        with contextlib.suppress(BlockingIOError):  # unread bytes at the close would discard the reply
            for _ in range(UNREAD_MAX):
                if not sock.recv(1 << 16):
                    break

    async def _converse(self, sock: socket.socket, uid: int) -> None:
        header: Header | None = None
        try:
            received = await asyncio.wait_for(self._receive(sock), REQUEST_S)
            header = received[0]
            with _peer(sock, uid) as peer:
                answer = await self._answer(peer, *received)
        except (WireError, Refusal, RequestError, StepError) as error:
            name = header.container_id if header else ""
            self._backend.container_note("container.refused", name, str(error))
            answer = wire.refusal(str(error))
        except (OSError, asyncio.TimeoutError):  # vgpu-runtime has gone, or sent nothing at all
            raise
        except Exception:
            log.exception("a request of vgpu-runtime failed")
            answer = wire.refusal("vgpud failed: see its log")
        # A vgpu-runtime that does not read its reply ends, and its container with it: its pidfd is watched.
        await asyncio.wait_for(self._loop.sock_sendall(sock, answer), REQUEST_S)

    async def _receive(self, sock: socket.socket) -> tuple[Header, bytes]:
        """Reads a whole request. Raises WireError, and OSError if vgpu-runtime has gone."""
        raw = bytearray()
        parts = None
        while parts is None:
            raw += await self._receive_part(sock, has_begun=bool(raw))
            parts = wire.split(bytes(raw))
        header, body = wire.parse_header(parts[0]), bytearray(parts[1])
        while len(body) < header.body_bytes:
            body += await self._receive_part(sock)
        if len(body) > header.body_bytes:
            raise WireError(f"{len(body) - header.body_bytes} bytes come after the body")
        return header, bytes(body)

    async def _receive_part(self, sock: socket.socket, has_begun: bool = True) -> bytes:
        part = await self._loop.sock_recv(sock, 1 << 16)
        if not part and not has_begun:
            raise ConnectionResetError  # no request: `vgpu doctor` checks that the daemon is there
        if not part:
            raise WireError("the request is incomplete")
        return part

    async def _answer(self, peer: Peer, header: Header, body: bytes) -> bytes:
        if header.operation == "create":
            return await self._create(peer, header, body)
        if header.operation == wire.STEP_BEGIN:
            made = await self._steps.begin(body, peer.pid)
            if made is None:
                return wire.reply(wire.OK, ASKED)
            lines = await self._work("preparing the step", task_variables, made, self._backend.site())
            return wire.reply(wire.OK, lines)
        if header.operation == wire.STEP_END:
            return wire.reply(wire.OK, await self._steps.end(body))
        state = wire.parse_state(body)
        if header.operation == "started":
            return await self._handle_start(peer, state)
        self._restarts.end(state.container_id, "stopped")
        return wire.reply(wire.OK)

    async def _work(self, what: str, work: Callable[..., T], *arguments: Any) -> T:
        """Runs a call that may wait for a disk in a thread. Raises Refusal if it takes too long or fails."""
        try:
            return await self._bundles.run(WORK_S, work, *arguments)
        except asyncio.TimeoutError as error:
            raise Refusal(f"{what} takes longer than {WORK_S:.0f} s: see the disk that the container is on") from error
        except (OSError, VgpudError) as error:
            raise Refusal(f"{what}: {error}") from error

    async def _create(self, peer: Peer, header: Header, body: bytes) -> bytes:
        if self._watch.runs(header.container_id):
            raise Refusal(
                f"container {header.container_id[:80]!r} is already running: end it first, or choose another id"
            )
        site = self._backend.site()

        def read() -> tuple[Request | None, bool, str, str, Asker | None]:
            found = _read_request(body, site, header.bundle)
            if not found[0]:
                return *found, "", None
            name = engine_name(body, header.container_id, header.bundle, peer.root_path)
            return *found, name, _find_owner(body, header.container_id, header.bundle, peer, site)

        asked, nvidia, cgroup, name, owner = await self._work("reading config.json", read)
        if asked is None and nvidia:
            raise Refusal(NVIDIA_ALONE)
        if asked is None:
            return wire.reply(wire.PASS)
        begun = processes.start_time(peer.pid)
        event = _make_creation_event(header.container_id, name, asked, peer.uid, peer.pid, begun, (cgroup,), body)
        event = replace(event, owner=owner)
        made = await self._admit_container(event)
        container = self._backend.container(header.container_id)
        if isinstance(made, Denied) or container is None:
            raise Refusal(
                made.message if isinstance(made, Denied) else "the slice could not be created: see vgpud's log"
            )
        watched = self._watch.begin(container, os.dup(peer.pidfd))
        try:
            prepared = await self._prepare(peer, header, body, site, made, container)
        except BaseException:  # cancelled as well: the daemon stops, and vgpu-runtime asks the next one
            if self._watch.is_current(watched):
                self._backend.end_container(container.container_id, "it could not be prepared")
            raise
        if not self._watch.is_current(watched):
            raise Refusal("the container was ended, or created again, during its preparation")
        for warning in prepared.warnings:
            self._backend.container_note("container.warning", container.container_id, warning)
        return wire.reply(wire.CONFIG, prepared.config)

    async def _prepare(
        self, peer: Peer, header: Header, body: bytes, site: Site, slice_: Slice, container: Container
    ) -> Prepared:
        indices = self._backend.indices(slice_)

        def work() -> Prepared:
            plan = Plan(
                attach_dir=site.runtime / "slices" / slice_.name,
                tree=library_tree(site.cache, site.driver, site.nvml, bool(site.sim_dir)),
                scratch=scratch_of(site, container),
                uuids=tuple(share.device_uuid for share in slice_.shares),
                indices=indices,
                sim_dir=site.sim_dir,
                cdi_dirs=site.nvidia_cdi_dirs,
                front=header.front,
                mode=site.mode,
            )
            # also without a file in it: by its directory vgpu-runtime knows the container while vgpud is away
            plan.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
            return prepare(body, header.bundle, peer.root_path, plan)

        return await self._work("preparing the container", work)

    async def _handle_start(self, peer: Peer, state: wire.OciState) -> bytes:
        """createRuntime hook: the container's first process exists and waits for the reply."""
        started = processes.start_time(state.pid)
        if not started:
            raise Refusal(f"pid {state.pid} of the container does not exist: run vgpud in the host's pid namespace")
        cgroup = cgroups.own_path(cgroups.paths_of(state.pid), cgroups.paths_of(peer.pid))
        if self._backend.container(state.container_id) is None:
            await self._adopt_started_container(peer, state, started, cgroup)
        answer = await self._backend.start_container(ContainerStarted(state.container_id, state.pid, started, cgroup))
        container = self._backend.container(state.container_id)
        if isinstance(answer, Denied) or container is None:
            raise Refusal(answer.message if isinstance(answer, Denied) else "the container has ended")
        self._watch.begin(container, processes.open_process(state.pid, started))
        self._restarts.note_monitor(container.container_id, peer.pid)
        return wire.reply(wire.OK)

    async def _adopt_started_container(self, peer: Peer, state: wire.OciState, pid_start: int, cgroup: str) -> None:
        """A container without vgpu-runtime: the hook of one of vgpud's CDI devices has called."""
        if not cgroup:
            text = "the container has no cgroup of its own, which identifies its programs: do not disable cgroups,"
            raise Refusal(f"{text} or use the runtime vgpu instead of the CDI device")
        path = posixpath.join(state.bundle, "config.json")
        site = self._backend.site()

        # (the request, whether it has one of our devices, its name, config.json, its user)
        def read() -> tuple[Request | None, bool, str, bytes, Asker | None]:
            with Root.at(peer.root_path) as root:
                raw = root.read(path, wire.BODY_BYTES_MAX)
            if raw is None:
                raise Refusal(
                    f"{path} does not exist or is not a regular file: the engine gave its hook another bundle"
                )
            name = engine_name(raw, state.container_id, state.bundle, peer.root_path)
            has_device = _has_mount(raw, str(shared_attach_dir(site.runtime)))
            owner = _find_owner(raw, state.container_id, state.bundle, peer, site) if has_device else None
            return _read_request(raw, site, state.bundle)[0], has_device, name, raw, owner

        asked, by_device, name, raw, owner = await self._work("reading config.json", read)
        if not by_device:
            raise Refusal("the container's slice was removed while the container was created: start it again")
        if asked is None:
            raise Refusal("the container has a vgpu device, but no request: do not set VGPU=none beside the device")
        paths = cgroups.paths_of(state.pid)
        event = _make_creation_event(state.container_id, name, asked, peer.uid, state.pid, pid_start, paths, raw)
        event = replace(event, owner=owner)
        made = await self._admit_container(event)
        if isinstance(made, Denied):
            raise Refusal(made.message)
        container = self._backend.container(state.container_id)
        if container:
            arguments = raw, state.bundle, peer.root_path, scratch_of(site, container)
            await self._work("noting its mount points", mount_points.note_for, *arguments)

    async def _admit_container(self, event: ContainerCreated) -> Slice | Denied:
        """The container's slice. A pod that has been added to a Kubernetes claim is known once the DRA driver, notified
        by the refusal's event, has read the claim again: kubelet does not report further pods to it."""
        made = await self._backend.create_container(event)
        if not isinstance(made, Denied) or made.field != "pod" or self._pod_waits >= POD_WAITS_MAX:
            return made
        self._pod_waits += 1
        try:
            comes = await self._backend.wait_for_pod(event.join, event.pod)
        finally:
            self._pod_waits -= 1
        return await self._backend.create_container(event) if comes else made


def _read_request(raw: bytes, site: Site, bundle: str) -> tuple[Request | None, bool, str]:
    """(a config.json's request to vgpud, whether it requests devices from NVIDIA instead, its cgroup path). Raises
    RequestError."""
    env, annotations, cgroup, nvidia = look(raw)
    limits = replace(site.limits, from_image=bool(_PODMAN_BUNDLE.search(bundle)))
    return parse_request(env, annotations, limits), nvidia, cgroup


def _find_owner(raw: bytes, container_id: str, bundle: str, peer: Peer, site: Site) -> Asker | None:
    """The user that a container of root's engine is for, as far as the site believes it; None: the engine's. Raises
    RequestError. May wait for a name service."""
    if peer.uid != 0 or site.owner == BY_ENGINE:
        return None
    is_podman = bool(_PODMAN_BUNDLE.search(bundle))
    named, source = find_owner_name(raw, container_id, peer.root_path, site.owner, from_image=is_podman)
    if named:
        uid = parse_whole(named, UID_MAX)
        user = users.find_by_uid(uid) if uid is not None else users.find(named)
        if user is None:
            raise RequestError(f"{source}={named}: this machine has no such user: name one that it has, or none")
    else:
        session_uid = processes.login_uid(peer.pid) if is_podman else None  # of dockerd it says who started dockerd
        user = users.find_by_uid(session_uid) if session_uid else None
    return Asker(user.uid, (user.gid, *user.gids), admin=user.uid == 0) if user else None


def _has_mount(raw: bytes, source: str) -> bool:
    """Whether a config.json mounts a directory of the host: the given one is mounted by vgpud's CDI devices only."""
    mounts = json.loads(raw).get("mounts") or []
    return any(isinstance(mount, dict) and mount.get("source") == source for mount in mounts)


def _make_creation_event(
    container_id: str,
    engine_name: str,
    request: Request,
    caller_uid: int,
    pid: int,
    pid_start: int,
    paths: Iterable[str],
    raw_config: bytes,
) -> ContainerCreated:
    return ContainerCreated(
        container_id=container_id,
        engine_name=engine_name,
        spec=request.spec,
        join=request.join,
        origin=origins.Container(request.name or slice_name(container_id)),
        queue=request.queue,
        open_queue=request.open_queue,
        caller_uid=caller_uid,
        pid=pid,
        pid_start=pid_start,
        uid=str(uuid.uuid4()),
        wall_ns=time.time_ns(),
        pod=pod_of(paths),
        engine_dir=find_docker_folder(raw_config, container_id),
    )


@contextlib.contextmanager
def _peer(sock: socket.socket, uid: int) -> Any:
    """The peer, which was alive when checked. Raises Refusal."""
    pid, _uid = processes.credentials(sock)
    held: list[int] = []
    try:
        try:
            held.append(processes.peer_pidfd(sock, pid))
            held.append(os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
            foreign = not processes.shares_pids(pid)
        except OSError as error:
            text = f"vgpud cannot inspect vgpu-runtime (pid {pid}: {error.strerror}):"
            raise Refusal(f"{text} run vgpud as root in the host's pid namespace") from error
        if processes.has_ended(held[0]):
            raise Refusal("vgpu-runtime ended during its request")
        if foreign:  # its pids would mean other processes here
            text = "the engine has its own pid namespace, so vgpud cannot identify its containers:"
            raise Refusal(f"{text} run the engine with the host's pids (docker run --pid=host)")
        yield Peer(pid, uid, *held)
    finally:
        for fd in held:
            os.close(fd)


def _foreign_text(uid: int) -> str:
    """The refusal of a user whose engines are not served here."""
    served = f"uid {os.geteuid()} and root" if os.geteuid() else "root"
    text = f"this vgpud serves the engines of {served}, not those of uid {uid}: start a vgpud as that user,"
    return f"{text} and run `vgpu setup podman` as that user again"


def _others(directory: Path, names_to_keep: set[str]) -> list[Path]:
    try:
        return [entry for entry in directory.iterdir() if entry.name not in names_to_keep]
    except FileNotFoundError:
        return []
