"""`vgpu service ls`, `show`, `logs` and `url`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.watching import ListCommand
from vgpud.errors import CliError, ExitCode
from vgpud.view.fit import Cell, Grid

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

_STYLES = {"healthy": "green", "unhealthy": "red", "asleep": "yellow", "draining": "cyan"}


def _status_of(settings: Settings, job: pb.Job) -> dict[str, Any]:
    """What its balancer says; {}: it says nothing to this user."""
    from dataclasses import replace

    from vgpud.cli.services.balancer import ask, balancer_of

    try:
        return ask(balancer_of(replace(settings, timeout_s=min(settings.timeout_s, 2.0)), job.job_id).status())
    except CliError:
        return {}


def _row(job: pb.Job, status: dict[str, Any]) -> dict[str, Any]:
    from vgpud.view.services import service_row

    return service_row(job, status, os.getuid())


@click.command("ls", cls=ListCommand, short_help="List services.")
@pass_settings
def ls(settings: Settings) -> None:
    """List your services; for admins, those of all users."""
    from vgpud.cli.common.output import emit, say
    from vgpud.cli.services.balancer import check_installed, find_jobs
    from vgpud.core.jobs.session import BALANCER
    from vgpud.view.user_names import user_name

    jobs = find_jobs(settings, BALANCER, own=False)
    if jobs:
        check_installed()
    rows = [_row(job, _status_of(settings, job)) for job in jobs]

    def grid() -> Grid:
        titles = ("NAME", "USER", ">HEALTHY", "ADDRESS", "STATE")
        cells = [
            (
                row["name"],
                user_name(row["uid"]),
                "-" if row["replicas"] is None else f"{row['healthy']}/{row['replicas']}",
                row["url"] or "-",
                row["state"],
            )
            for row in rows
        ]
        return Grid(titles, list(cells), first_to_go=("USER",), own_line_columns=("STATE",), names=("NAME",))

    emit(settings, {"services": rows}, [row["name"] for row in rows], grid)
    if not rows and settings.output == "table":
        say("no service runs: `vgpu service start --gpus 0.5 -- COMMAND` starts one")


@click.command("show", cls=ListCommand, short_help="Show a service and its replicas.")
@click.argument("name", metavar="NAME")
@pass_settings
def show(settings: Settings, name: str) -> None:
    """Show service NAME: its address, and what each replica does. UNDER-WAY: the requests that it is answering now."""
    from vgpud.cli.common.output import dump, print_grid, print_lines
    from vgpud.cli.services.balancer import ask, need_balancer
    from vgpud.view.services import health_text

    balancer = need_balancer(settings, name)
    status = ask(balancer.status())
    row = _row(balancer.job, status)
    if settings.output == "name":
        print(name)
        return
    if settings.output != "table":
        dump(settings, {"service": {**row, **status}})
        return
    lines = [f"{name}  {row['url'] or 'no address yet'}  {health_text(row)}"]
    if row["state"]:
        lines.append(f"  {row['state']}")
    if status["waiting"]:
        lines.append(f"  requests that wait for a replica: {status['waiting']}")
    print_lines(lines)
    titles = (">JOB", ">GENERATION", "STATE", ">UNDER-WAY", "WHY")
    cells = [
        (
            str(one["job_id"]),
            str(one["generation"]),
            Cell(one["state"], _STYLES.get(one["state"], "")),
            str(one["outstanding"]),
            "" if one["state"] == "asleep" else one["reason"],
        )
        for one in status["replicas"]
    ]
    print_grid(settings, Grid(titles, list(cells), own_line_columns=("WHY",)))


@click.command("logs", cls=VgpuCommand, short_help="Show the output of a replica.")
@click.argument("name", metavar="NAME")
@click.argument("job_id", type=click.IntRange(min=1), required=False, metavar="[JOB]")
@click.option("--balancer", "of_balancer", is_flag=True, help="What the balancer has done, instead of a replica.")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the replica has ended.")
@click.option("-n", "--lines", type=click.IntRange(min=0), default=None, metavar="N", help="Only the last N lines.")
@pass_settings
def logs(settings: Settings, name: str, job_id: int | None, of_balancer: bool, follow: bool, lines: int | None) -> None:
    """Show the output of a replica of service NAME: of JOB, or of the newest one, also if it has ended."""
    from vgpud.cli.jobs.wait import show_log
    from vgpud.services.shell.folder import folder_of

    if of_balancer:
        from vgpud.cli.services.balancer import find_balancer

        found = find_balancer(settings, name)
        if found is not None:
            show_log(settings, found.job.job_id, follow, lines, 0)
            return
        _print_file(folder_of(name).balancer_log, name)
        return
    if job_id is None:
        numbers = [int(path.stem) for path in folder_of(name).path.glob("*.log") if path.stem.isdigit()]
        if not numbers:
            raise CliError(f"no replica of service {name} has written anything yet", ExitCode.NOT_FOUND)
        job_id = max(numbers)
    show_log(settings, job_id, follow, lines, 0)


def _print_file(path: Path, name: str) -> None:
    try:
        print(path.read_text(errors="replace"), end="")
    except FileNotFoundError:
        raise CliError(f"there is no service {name}: `vgpu service ls` lists yours", ExitCode.NOT_FOUND) from None


@click.command("url", cls=VgpuCommand, short_help="Print the address of a service, or its token.")
@click.argument("name", metavar="NAME")
@click.option("--token", "shows_token", is_flag=True, help="Print the token that requests show it.")
@pass_settings
def url(settings: Settings, name: str, shows_token: bool) -> None:
    """Print the address of service NAME, or with --token what its clients send: `Authorization: Bearer TOKEN`.

    \b
    curl -H "Authorization: Bearer $(vgpu service url chat --token)" $(vgpu service url chat)/v1/models
    """
    from vgpud.cli.common.output import dump
    from vgpud.cli.services.balancer import ask, need_balancer
    from vgpud.view.services import url_of

    balancer = need_balancer(settings, name)
    record, status = ask(balancer.record()), ask(balancer.status())
    address = url_of(status)
    if not address:
        raise CliError(f"service {name} has no address yet: {status['trouble']}", ExitCode.CONFLICT)
    if settings.output in ("table", "name"):
        print(record.token if shows_token else address, flush=True)
    else:
        dump(settings, {"url": address, "token": record.token, "is_public": record.is_public})
