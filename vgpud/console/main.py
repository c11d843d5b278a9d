"""`vgpu console serve`: sockets first, then two processes. This one keeps its rights and becomes the broker; the other
one gives them up and serves the pages."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import pwd
import re
import shutil
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from vgpud import paths
from vgpud.console.login import agent, shares_file, wire
from vgpud.console.login.broker import LEAST_UID, Broker, Settings, link_socket_path
from vgpud.console.login.openid import OPENID_PATH, Client, is_safe_url
from vgpud.core.units import PORT_MAX, parse_whole
from vgpud.errors import DeniedError, ExitCode, VgpudError
from vgpud.host import listeners

BACKLOG = 128
DEFAULT_LISTEN = "127.0.0.1:8377"
#: of the process that serves pages, where the console is started by root: the user without rights
DEFAULT_UID = 65534
_DOMAIN = re.compile("[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
#: of a client's secret
SECRET_CHARS_MAX = 4096
_ANY = ("0.0.0.0", "::")


class ConsoleUsageError(VgpudError):
    """Options that do not fit together; one line with the fix."""

    exit_code = ExitCode.USAGE


@dataclass(frozen=True)
class Serve:
    """Options of `vgpu console serve`."""

    api_socket: str
    listen: str = DEFAULT_LISTEN  # HOST:PORT, or unix:PATH
    url: str = ""  # how browsers reach it; "" = from `listen`
    certificate: Path | None = None
    key: Path | None = None
    password_file: Path | None = None
    user: str = ""  # name; "" = DEFAULT_UID
    session_domain: str = ""  # below which sessions have host names of their own
    nodes: tuple[str, ...] = ()  # consoles of other nodes, NAME=URL
    oidc_issuer: str = ""  # URL of an OpenID provider
    oidc_client_id: str = ""
    oidc_client_secret_file: Path | None = None  # None = a public client
    oidc_claim: str = "preferred_username"  # the claim that is the name of a local user
    oidc_least_uid: int = LEAST_UID  # of users that the provider may vouch for


def _make_inner(runtime: Path) -> Path:
    """A folder for the web server's own sockets, inside of one that only this user may enter.

    Where services share the web server's uid, many processes have it: they cannot get there. The web server reaches it
    by a descriptor that it opens before it gives its rights up. Raises VgpudError.
    """
    outer = runtime / "console"
    inner = outer / "sockets"
    shutil.rmtree(outer, ignore_errors=True)  # of a console that was killed
    paths.make_private_dir(outer)
    try:
        outer.chmod(0o700)
        inner.mkdir(exist_ok=True)
        inner.chmod(0o777)  # the outer one decides; as a service this process may give no file away
    except OSError as error:
        raise paths.cannot_make(inner, error) from error
    return inner


def _address(listen: str) -> tuple[str, int]:
    host, colon, text = listen.rpartition(":")
    port = parse_whole(text, PORT_MAX)
    if not colon or port is None:
        raise ConsoleUsageError(f"{listen[:80]!r} is no address: write HOST:PORT, or unix:PATH")
    return host.strip("[]") or "127.0.0.1", port


def _is_private(listen: str) -> bool:
    """Whether only this machine's users reach it."""
    if listen.startswith("unix:"):
        return True
    host, _ = _address(listen)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check(options: Serve) -> None:
    """Raises ConsoleUsageError."""
    if bool(options.certificate) != bool(options.key):
        raise ConsoleUsageError("--certificate and --key belong together: give both")
    if not _is_private(options.listen) and not options.certificate:
        raise ConsoleUsageError(
            f"{options.listen} is reached by other machines: give --certificate and --key, or listen on 127.0.0.1"
        )
    _nodes(options.nodes)
    if options.session_domain and not _DOMAIN.fullmatch(options.session_domain):
        text = f"--session-domain {options.session_domain[:80]!r} is no name of a domain: write sessions.example.org"
        raise ConsoleUsageError(f"{text}, for which session-7.sessions.example.org leads to this console")
    _check_provider(options)
    if options.password_file and not options.certificate:
        raise ConsoleUsageError("--password-file needs --certificate and --key: passwords are sent over TLS only")


def _check_provider(options: Serve) -> None:
    if bool(options.oidc_issuer) != bool(options.oidc_client_id):
        raise ConsoleUsageError("--oidc-issuer and --oidc-client-id belong together: give both")
    if options.oidc_client_secret_file and not options.oidc_issuer:
        raise ConsoleUsageError("--oidc-client-secret-file is for a provider: give --oidc-issuer and --oidc-client-id")
    if options.oidc_issuer and not is_safe_url(options.oidc_issuer):
        raise ConsoleUsageError(f"--oidc-issuer {options.oidc_issuer!r}: write its URL, which begins with https://")


def _provider_client(options: Serve, url: str) -> Client:
    """Raises ConsoleUsageError."""
    secret, path = "", options.oidc_client_secret_file
    if path:
        try:
            if path.stat().st_mode & 0o027:
                raise ConsoleUsageError(f"{path} can be read or written by others: chmod 640 {path}")
            secret = path.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConsoleUsageError(f"cannot read {path}: {error}") from error
        if not secret or len(secret) > SECRET_CHARS_MAX:
            raise ConsoleUsageError(f"{path} has no secret: write the one that the provider gave, in one line")
    redirect_url = f"{url}{OPENID_PATH}/callback"
    return Client(options.oidc_issuer, options.oidc_client_id, secret, redirect_url, options.oidc_claim)


@dataclass(frozen=True)
class _ProviderPart:
    """The process for an OpenID provider, as the other two see it."""

    pid: int
    web: socket.socket
    broker: socket.socket


def _start_provider(options: Serve, url: str, others: Sequence[socket.socket]) -> _ProviderPart:
    """Forks the process that speaks with the provider. `others`: sockets that are not its. Raises ConsoleUsageError."""
    client = _provider_client(options, url)
    web, its_web = wire.pair()
    broker, its_broker = wire.pair()
    parent_pid = os.getpid()
    pid = os.fork()
    if pid:
        its_web.close()
        its_broker.close()
        return _ProviderPart(pid, web, broker)
    try:
        from vgpud.console.login import provider

        for sock in (*others, web, broker):
            sock.close()
        if os.geteuid() == 0:
            agent.become(_uid(options.user))
        agent.close_to_others()
        agent.die_with_parent(parent_pid)
        os.chdir("/")
        provider.serve(client, its_web, its_broker)
    finally:
        os._exit(int(ExitCode.OTHER))


def _nodes(node_options: Sequence[str]) -> list[tuple[str, str]]:
    """(name, URL) of other nodes' consoles. Raises ConsoleUsageError."""
    found = []
    for text in node_options:
        name, equals, url = text.partition("=")
        parts = urlsplit(url)
        if not name or not equals or parts.scheme not in ("http", "https") or not parts.netloc:
            raise ConsoleUsageError(f"--node {text!r}: write NAME=URL, for example n2=https://n2:8377")
        found.append((name, url))
    return found


def _listener(listen: str) -> socket.socket:
    """The socket of browsers. Raises DeniedError."""
    try:
        if listen.startswith("unix:"):
            return _unix_listener(Path(listen.removeprefix("unix:")), socket.SOCK_STREAM)
        host, port = _address(listen)
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
        sock.listen(BACKLOG)
        return sock
    except OSError as error:
        raise DeniedError(f"cannot listen on {listen}: {error.strerror}; choose another --listen") from error


def _unix_listener(path: Path, kind: socket.SocketKind) -> socket.socket:
    """Open to every user: who it is decides the log-in, or the kernel."""
    path.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, kind)
    sock.bind(str(path))
    path.chmod(0o666)
    sock.listen(BACKLOG)
    return sock


def _url(options: Serve, listener: socket.socket) -> str:
    if options.url:
        return options.url.rstrip("/")
    scheme = "https" if options.certificate else "http"
    if listener.family == socket.AF_UNIX:
        return f"{scheme}://localhost:{DEFAULT_LISTEN.rpartition(':')[2]}"
    host, port = listener.getsockname()[:2]
    shown = socket.getfqdn() if host in _ANY else f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}"


def _hosts(url: str, private: bool) -> frozenset[str]:
    """Names that a request may be for."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    name = host[: host.rfind("]") + 1] if host.startswith("[") else host.partition(":")[0]
    return frozenset({name.lower()} | ({"localhost", "127.0.0.1", "[::1]"} if private else set()))


def serve(options: Serve, runtime: Path, announce: object = None) -> int:
    """Runs until it is stopped. Returns the exit code. Raises VgpudError, one line with the fix."""
    check(options)
    paths.make_private_dir(runtime, 0o755)
    listener = _listener(options.listen)
    socket_path = link_socket_path(runtime)
    url = _url(options, listener)
    try:
        link_socket = _unix_listener(socket_path, socket.SOCK_SEQPACKET)
    except OSError as error:
        raise DeniedError(f"cannot listen on {socket_path}: {error.strerror}; choose another --runtime-dir") from error
    link_socket.setblocking(False)
    inner = _make_inner(runtime)
    ours, its = wire.pair()
    openid = _start_provider(options, url, (listener, link_socket, ours, its)) if options.oidc_issuer else None
    parent_pid = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = int(ExitCode.OTHER)
        try:
            for sock in (ours, link_socket, *([openid.broker] if openid else [])):
                sock.close()
            status = _web(options, listener, its, url, inner, openid.web if openid else None, parent_pid)
        finally:
            os._exit(status)
    its.close()
    listener.close()
    if openid:
        openid.web.close()
    if callable(announce):
        announce(url)
    try:
        shares = runtime / shares_file.FILE_NAME
        own = {DEFAULT_UID, _uid(options.user)} if os.geteuid() == 0 else set()
        least_uid = options.oidc_least_uid
        settings = Settings(options.api_socket, url, options.password_file, shares, least_uid, frozenset(own))
        return Broker(settings, ours, link_socket, pid, openid.broker if openid else None).run()
    finally:
        if openid:
            _end(openid.pid)
        link_socket.close()
        socket_path.unlink(missing_ok=True)
        shutil.rmtree(inner.parent, ignore_errors=True)
        if options.listen.startswith("unix:"):
            Path(options.listen.removeprefix("unix:")).unlink(missing_ok=True)


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(pid, signal.SIGKILL)  # it has nothing to finish
        os.waitpid(pid, 0)


def _web(
    options: Serve,
    listener: socket.socket,
    broker: socket.socket,
    url: str,
    inner: Path,
    provider: socket.socket | None,
    parent_pid: int,
) -> int:
    """The web server, without rights from the moment that it has read what it needs."""
    import uvicorn

    from vgpud.console import app as application
    from vgpud.console.browsers import browser_protocol
    from vgpud.console.login.client import Broker as BrokerClient
    from vgpud.console.login.provider_client import ProviderClient
    from vgpud.console.sessions.own_hosts import Domain

    made = application.Options(
        hosts=_hosts(url, _is_private(options.listen)),
        secure=bool(options.certificate),
        passwords=options.password_file is not None,
        private=_is_private(options.listen),
        domain=Domain(options.session_domain, url),
        has_tls=url.startswith("https:"),
        folder=Path(f"/proc/self/fd/{os.open(inner, os.O_PATH | os.O_DIRECTORY)}"),
        nodes=_nodes(options.nodes),
        provider=ProviderClient(provider, str(urlsplit(options.oidc_issuer).hostname)) if provider else None,
        cluster_dir=paths.runtime_dir(uid=0) / "cluster",
    )
    app = application.make(BrokerClient(broker), made)
    config = uvicorn.Config(
        app,
        log_level="error",  # what is no HTTP is its sender's fault, and they would fill the log
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        loop="asyncio",
        http=browser_protocol(listeners.CONSOLE.deadline_s, app.state.sessions.takes, app.state.tunnels.open),
        ws="none",
        timeout_graceful_shutdown=2,
        timeout_keep_alive=30,
    )
    config.load()
    bounded = listeners.BoundedListener(listener, listeners.CONSOLE)
    if os.geteuid() == 0:
        agent.become(_uid(options.user))
    agent.close_to_others()
    agent.die_with_parent(parent_pid)
    os.chdir("/")
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.Server(config).run(sockets=[bounded])
    return int(ExitCode.OK)


def _uid(name: str) -> int:
    if not name:
        return DEFAULT_UID
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError as error:
        raise ConsoleUsageError(f"there is no user {name!r} to serve the pages: give one with --user") from error
