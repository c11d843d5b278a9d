"""`vgpu console`: the pages in the browser, and the one-time link that logs a user in."""

from __future__ import annotations

import os
from pathlib import Path

import click

from vgpud.cli.common.options import LazyGroup, Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Whole
from vgpud.core.model import UID_MAX
from vgpud.errors import CliError, ExitCode

_PATH = click.Path(path_type=Path)


@click.group("console", cls=LazyGroup, short_help="Serve and open the console in the browser.")
def console() -> None:
    """Devices, slices, jobs and quotas in the browser. Needs `pip install vgpud[console]`.

    \b
    vgpu console serve                 on 127.0.0.1, for the users of this machine
    vgpu console open                  log in: opens a link that works once, for a minute
    """


@console.command("serve", cls=VgpuCommand, short_help="Serve the pages until Ctrl-C.")
@click.option("--listen", metavar="HOST:PORT", help="Address, or unix:PATH (default: 127.0.0.1:8377).")
@click.option("--url", metavar="URL", help="How browsers reach it, behind a proxy or a tunnel (default: the address).")
@click.option("--certificate", type=_PATH, metavar="FILE", help="TLS certificate; needed for other machines.")
@click.option("--key", type=_PATH, metavar="FILE", help="Key of the certificate.")
@click.option(
    "--password-file", type=_PATH, metavar="FILE", help="Names and passwords of local users, as htpasswd -B writes it."
)
@click.option("--oidc-issuer", metavar="URL", help="Log in with this OpenID provider; names are those of local users.")
@click.option("--oidc-client-id", metavar="ID", help="What the provider calls this console.")
@click.option(
    "--oidc-client-secret-file",
    type=_PATH,
    metavar="FILE",
    help="The secret that the provider gave, mode 0640 or less.",
)
@click.option(
    "--oidc-claim", metavar="NAME", help="Claim that is the name of a local user (default: preferred_username)."
)
@click.option(
    "--oidc-least-uid",
    type=Whole(1, UID_MAX),
    metavar="UID",
    help="Refuse names of users with smaller uids, which are the system's (default: 1000).",
)
@click.option("--user", metavar="NAME", help="User who serves pages, if root starts it (default: uid 65534).")
@click.option(
    "--session-domain",
    metavar="NAME",
    help="Serve sessions at host names of their own, session-7.NAME, which must lead here: docs/sessions.md.",
)
@click.option("--node", "nodes", multiple=True, metavar="NAME=URL", help="Another node's console, for a menu of nodes.")
@click.option("--runtime-dir", type=_PATH, metavar="DIR", help="Directory of console.sock (default: vgpud's).")
@pass_settings
def serve(settings: Settings, /, runtime_dir: Path | None, **option_values: object) -> int:
    """Serve the console until Ctrl-C. Started by root it is for every user, otherwise for you alone.

    Every page is made with the rights of its user: the daemon sees that user at its socket. Other machines reach it
    over TLS only. `vgpu docs console` says how to log in, and `vgpu docs security/console` what it protects.
    """
    from vgpud import paths
    from vgpud.cli.common.output import say
    from vgpud.client.target import parse_target, unix_path

    _check_installed("console", ("starlette", "uvicorn", "jinja2", "bcrypt", "python_multipart"))
    if option_values["oidc_issuer"]:
        _check_installed("oidc", ("httpx", "jwt", "cryptography"))
    from vgpud.console import main

    socket_path = unix_path(parse_target(settings.host))
    if socket_path is None:
        raise CliError(
            "the console acts for users at the daemon's unix socket: give --host unix:///PATH", ExitCode.USAGE
        )
    options = main.Serve(socket_path, **{name: value for name, value in option_values.items() if value})  # type: ignore[arg-type]
    return main.serve(
        options,
        runtime_dir or paths.runtime_dir(),
        lambda url: say(f"the console is at {url}; `vgpu console open` logs you in"),
    )


def _check_installed(extra: str, modules: tuple[str, ...]) -> None:
    import importlib.util

    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise CliError(f"the console needs {', '.join(missing)}: pip install 'vgpud[{extra}]'", ExitCode.USAGE)


@console.command("open", cls=VgpuCommand, short_help="Log in to the console: print or open a one-time link.")
@click.option("--print", "only_print", is_flag=True, help="Print the link and open no browser.")
@click.option("--runtime-dir", type=_PATH, metavar="DIR", help="Directory of console.sock (default: yours, or root's).")
@pass_settings
def open_(settings: Settings, only_print: bool, runtime_dir: Path | None) -> None:
    """Print a link that logs you in once, within a minute, as the user who runs this. Open it if there is a browser.

    From another machine: ssh -L 8377:127.0.0.1:8377 NODE, and there `vgpu console open --print`.
    """
    from vgpud.cli.common.console_address import find_socket_path
    from vgpud.cli.common.output import emit, say
    from vgpud.console.login import wire
    from vgpud.console.login.broker import link

    socket_path = find_socket_path(runtime_dir)
    try:
        url = link(socket_path, settings.timeout_s)
    except ValueError as error:
        raise CliError(str(error), ExitCode.DENIED) from error
    except (OSError, wire.GoneError, wire.NotMessageError) as error:
        text = (
            f"no console answers at {socket_path}: start it with `vgpu console serve`, or systemctl start vgpud-console"
        )
        raise CliError(text, ExitCode.UNREACHABLE) from error
    if settings.output == "table":
        print(url, flush=True)
    else:
        emit(settings, {"url": url}, [url], lambda: None)  # type: ignore[arg-type,return-value]
    if only_print or not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return
    import webbrowser

    if not webbrowser.open(url):
        say("no browser could be opened: copy the link into one")
