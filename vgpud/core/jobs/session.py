"""Sessions: jobs whose program serves a page on a port of its own, and the jobs of services, which do so too. Pure.

What is said to the program, how its token is presented to it, and the address below which it serves. The token is in
the environment only: the words of a command are read by every user of the machine.
"""

from __future__ import annotations

from collections.abc import Sequence

JUPYTER, CODE, RSTUDIO, SHELL, WEB = "jupyter", "code", "rstudio", "shell", "web"
#: jobs of a service: the one that keeps it and has its address, and those that answer its requests
BALANCER, REPLICA = "balancer", "replica"
OF_SERVICES = (BALANCER, REPLICA)
#: what listens at the port; WEB is any program that listens where its environment says; SHELL is a terminal without a
#: page
PROGRAMS = (JUPYTER, CODE, RSTUDIO, SHELL, WEB, *OF_SERVICES)
_BALANCER = ("-m", "vgpud.services")
#: of all variables of a session
PREFIX = "VGPU_SESSION_"
#: the same as PORT, TOKEN and HOST for the program of a replica
SERVICE_PORT, SERVICE_TOKEN, SERVICE_HOST = "VGPU_SERVICE_PORT", "VGPU_SERVICE_TOKEN", "VGPU_SERVICE_HOST"
#: in a balancer's environment: the record of a service that its folder does not have yet
SERVICE_RECORD = "VGPU_SERVICE_RECORD"
PORT, BASE, TOKEN = "VGPU_SESSION_PORT", "VGPU_SESSION_BASE", "VGPU_SESSION_TOKEN"
#: where a program listens: on loopback, or at all addresses of a container, whose port is led to loopback
HOST, LOOPBACK, ALL_ADDRESSES = "VGPU_SESSION_HOST", "127.0.0.1", "0.0.0.0"
#: Jupyter's programs with a page; the first one is started where none is named
_JUPYTERS = ("lab", "notebook", "server", "nbclassic")
#: in an image the user may have none
_WITH_HOME = '[ -w "${HOME:-/}" ] || { HOME=$(mktemp -d) && export HOME; }; '
_AT_HOST = f'"${{{HOST}:-{LOOPBACK}}}"'
_JUPYTER = (
    f'{_WITH_HOME}JUPYTER_TOKEN="${TOKEN}" exec jupyter "$@" --no-browser --ServerApp.ip={_AT_HOST}'
    f' --ServerApp.port="${PORT}" --ServerApp.port_retries=0 --ServerApp.base_url="${BASE}"'
    " --ServerApp.allow_remote_access=True"  # the console has checked the host's name, and the token is asked for
)
#: `code` takes its token from a file; mktemp makes it for its user alone
_CODE = (
    f'{_WITH_HOME}file=$(mktemp) && printf %s "${TOKEN}" >"$file" && exec code serve-web'
    f' --host {_AT_HOST} --port "${PORT}" --server-base-path "${BASE}" --connection-token-file "$file" "$@"'
)

#: the gate's text, then the options of RStudio Server
_RSTUDIO = (
    f"{_WITH_HOME}command -v python3 >/dev/null ||"
    " { echo 'vgpu: rstudio needs python3, which checks the token of a session: install it' >&2; exit 127; };"
    ' exec python3 -c "$@"'
)
#: the user's own, as a log-in starts it
_SHELL = 'exec "${SHELL:-/bin/sh}" -l "$@"'


def base_path(job_id: int, port_name: str = "") -> str:
    """Below which the session's program serves, at the console as at its own port."""
    return f"/session/{job_id}-{port_name}/" if port_name else f"/session/{job_id}/"


def variable(name: str, port_name: str) -> str:
    """The variable PORT or BASE of a further port."""
    return f"{name}_{port_name.upper()}"


def program_of(command: Sequence[str]) -> str:
    """One of PROGRAMS, by the command's first word."""
    return command[0] if command[0] in (JUPYTER, CODE, RSTUDIO, SHELL) else WEB


def complete_command(command: Sequence[str], gate: str = "") -> tuple[str, ...]:
    """The command with the options that have the program listen where it should; WEB's as it is. `gate`: the text of
    vgpud/host/session_gate.py, which RSTUDIO is started by."""
    first, *rest = command
    if first == JUPYTER:
        chosen = rest if rest and rest[0] in _JUPYTERS else [_JUPYTERS[0], *rest]
        return ("sh", "-c", _JUPYTER, JUPYTER, *chosen)
    if first == SHELL:
        return ("sh", "-c", _SHELL, SHELL, *rest)
    if first == RSTUDIO:
        return ("sh", "-c", _RSTUDIO, RSTUDIO, gate, *rest)
    return ("sh", "-c", _CODE, CODE, *rest) if first == CODE else (first, *rest)


def balancer_command(python: str, folder: str) -> tuple[str, ...]:
    """As a balancer is submitted. What is started for it, the daemon decides."""
    return (python, *_BALANCER, folder)


def is_balancer(command: Sequence[str]) -> bool:
    return tuple(command[1:-1]) == _BALANCER and command[-1].startswith("/")


def present_token(program: str, token: str) -> tuple[str, str]:
    """The header of a request that shows the program its token; a Cookie header is one cookie more."""
    if program == JUPYTER:
        return "authorization", f"token {token}"
    return ("cookie", f"vscode-tkn={token}") if program == CODE else ("authorization", f"Bearer {token}")


def direct_url(program: str, job_id: int, port: int, token: str, port_name: str = "") -> str:
    """The page at the session's own port, for the user on the same machine."""
    name = "tkn" if program == CODE else "token"
    return f"http://127.0.0.1:{port}{base_path(job_id, port_name)}?{name}={token}"
