"""`vgpu cert`: certificates for users of other machines, issued beside the daemon's configuration."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.watching import ListCommand
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.certs.register import Issued, Register

F = TypeVar("F", bound=Callable[..., Any])

#: as in vgpud.certs.issue, whose import needs `cryptography`
SERVER_DAYS, USER_DAYS, DAYS_MAX = 365, 30, 397


@click.group("cert", cls=LazyGroup, short_help="Issue and revoke certificates for users of other machines.")
def cert() -> None:
    """Issue and revoke the certificates with which users of other machines connect.

    \b
    vgpu cert init --name gpu1.example.org    once, on the daemon's machine
    vgpud serve --listen 0.0.0.0:7443         or listen = "0.0.0.0:7443" in its configuration
    vgpu cert user alice                      writes alice.json, for alice alone
    vgpu context add gpu1 alice.json --host gpu1.example.org:7443      alice, on her machine

    Run it as the user that vgpud runs as.
    """


_tls_dir = click.option(
    "--tls-dir",
    type=click.Path(path_type=Path),
    help="Directory of the certificates (default: tls_dir of the daemon's configuration).",
)


def _days(default: int) -> Callable[[F], F]:
    return click.option(
        "--days", type=click.IntRange(1, DAYS_MAX), default=default, show_default=True, help="How long it is valid."
    )


def _register(tls_dir: Path | None) -> Register:
    from vgpud.certs.register import Register

    if tls_dir is None:
        from vgpud import config

        tls_dir = config.load(None).tls
    return Register(tls_dir.absolute())


def _issuing() -> Any:
    try:
        from vgpud.certs import issue
    except ImportError as error:
        if (error.name or "").split(".")[0] != "cryptography":
            raise
        text = "certificates are made with the package cryptography: run `pip install 'vgpud[remote]'`"
        raise CliError(text) from error
    return issue


@cert.command("init", short_help="Make the authority and the server's certificate.")
@click.option(
    "--name", "names", multiple=True, metavar="HOST", help="Name or address of this machine; repeat for several."
)
@click.option("--renew", is_flag=True, help="Renew the server's certificate; users keep theirs.")
@_days(SERVER_DAYS)
@_tls_dir
@pass_settings
def init(settings: Settings, names: tuple[str, ...], renew: bool, days: int, tls_dir: Path | None) -> None:
    """Make this site's authority, which is valid for ten years, and the server's certificate.

    Without --name the server's certificate is for this host's names and the loopback addresses. Back up the directory.
    Whoever has its authority.key can issue certificates, but the daemon admits only those in its list.
    """
    from vgpud.cli.common.output import emit, say
    from vgpud.view.fit import Grid

    register = _register(tls_dir)
    chosen = names if names or renew else tuple(dict.fromkeys((socket.getfqdn(), socket.gethostname(), *_LOOPBACK)))
    issued = _issuing().init(register, chosen, days, renew)
    data = {"directory": str(register.directory), "certificate": _view(issued)}
    emit(settings, data, [register.directory], lambda: Grid(_TITLES, [_row(issued)]))
    if settings.output == "table":
        say(f"it is in {register.directory}: `vgpu cert user NAME` issues a certificate for a user of this machine")


_LOOPBACK = ("localhost", "127.0.0.1", "::1")


@cert.command("user", short_help="Issue a certificate for a user.")
@click.argument("name")
@click.argument("credentials", metavar="[FILE]", required=False, type=click.Path(path_type=Path))
@_days(USER_DAYS)
@_tls_dir
@pass_settings
def user(settings: Settings, name: str, credentials: Path | None, days: int, tls_dir: Path | None) -> None:
    """Issue a certificate for the local user NAME, written with its key to FILE (default: NAME.json, mode 0600).

    Whoever has the file may do what NAME may do here: send it where only NAME reads, and delete your copy.
    """
    from vgpud.cli.common.output import emit, say
    from vgpud.host import users
    from vgpud.view.fit import Grid

    found = users.find(name)
    if found is None:
        raise CliError(f"there is no user {name!r} on this machine: create the user first", ExitCode.NOT_FOUND)
    where = credentials or Path(f"{name}.json")
    issued = _issuing().user(_register(tls_dir), found, days, where)
    data = {"file": str(where), "certificate": _view(issued)}
    emit(settings, data, [where], lambda: Grid(_TITLES, [_row(issued)]))
    if settings.output == "table":
        say(f"{where}: give it to {name} alone, for `vgpu context add NAME {where.name} --host HOST:PORT`")


@cert.command("ls", cls=ListCommand, short_help="List certificates.")
@_tls_dir
@pass_settings
def ls(settings: Settings, tls_dir: Path | None) -> None:
    """List all certificates that were issued, the newest last."""
    from vgpud.cli.common.output import emit
    from vgpud.view.fit import Grid

    found = sorted(_register(tls_dir).read_certificates().values(), key=lambda issued: issued.not_before_s)
    data = {"certificates": [_view(issued) for issued in found]}
    emit(settings, data, [issued.serial for issued in found], lambda: Grid(_TITLES, [_row(issued) for issued in found]))


@cert.command("revoke", short_help="Revoke a user's certificates.")
@click.argument("what", metavar="NAME|SERIAL")
@_tls_dir
@pass_settings
def revoke(settings: Settings, what: str, tls_dir: Path | None) -> None:
    """Revoke all certificates of the user NAME, or the one with this serial number.

    New connections with it are refused from now on, and open ones end within seconds. The daemon notices by itself.
    """
    from vgpud.cli.common.output import emit
    from vgpud.view.fit import Grid

    found = _register(tls_dir).revoke(what, time.time_ns() / 1e9)
    data = {"certificates": [_view(issued) for issued in found]}
    emit(settings, data, [issued.serial for issued in found], lambda: Grid(_TITLES, [_row(issued) for issued in found]))


_TITLES = ("KIND", "NAME", "STATE", "UNTIL", "SERIAL")


def _row(certificate: Issued) -> list[str]:
    from vgpud.certs.register import when

    return [
        certificate.kind,
        certificate.name,
        certificate.state(time.time_ns() / 1e9),
        when(certificate.not_after_s),
        certificate.serial,
    ]


def _view(certificate: Issued) -> dict[str, Any]:
    from vgpud.certs.register import stamp

    return {
        "kind": certificate.kind,
        "name": certificate.name,
        "uid": certificate.uid if certificate.uid >= 0 else None,
        "serial": certificate.serial,
        "sha256": certificate.sha256,
        "state": certificate.state(time.time_ns() / 1e9),
        "not_before": stamp(certificate.not_before_s),
        "not_after": stamp(certificate.not_after_s),
        "revoke_time": stamp(certificate.revoked_s) if certificate.revoked_s else None,
    }
