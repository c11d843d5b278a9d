"""`vgpu env`: the site's environments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vgpud.cli.common.completions import complete_environment
from vgpud.cli.common.options import LazyGroup, Settings, pass_settings
from vgpud.cli.common.watching import ListCommand

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb
    from vgpud.view.fit import Grid
    from vgpud.view.slices import View


@click.group("env", cls=LazyGroup, short_help="Environments of the site: images and commands with defaults.")
def env() -> None:
    """Environments of the site: named images and commands, with the defaults of their jobs.

    An administrator writes them (docs/environments.md). `vgpu submit --environment NAME` runs a job in one.
    """


@env.command("ls", cls=ListCommand, short_help="List the environments that you may use.")
@pass_settings
def ls(settings: Settings) -> None:
    """List the environments that you may use: what they run, and the size of a job that asks for none."""
    from vgpud.cli.common.client import Client
    from vgpud.cli.common.output import emit, say
    from vgpud.client import calls

    with Client(settings) as client:
        answer = client.send(calls.environments())
    rows = [_view(one) for one in answer.environments]
    data = {"environments": rows, "problem": answer.problem or None}
    emit(settings, data, [row["name"] for row in rows], lambda: _grid(rows))
    if answer.problem:
        say(answer.problem)
    elif not rows and settings.output == "table":
        say("this site has no environments for you: an administrator writes them (`vgpu docs environments`)")


@env.command("show", short_help="Show all of an environment.")
@click.argument("name", shell_complete=complete_environment)
@pass_settings
def show(settings: Settings, name: str) -> None:
    """Show what a job in environment NAME gets, unless it says otherwise."""
    from vgpud.cli.common.output import dump, print_lines
    from vgpud.cli.jobs.container_options import find_environment
    from vgpud.view.text import plain

    found = find_environment(settings, name)
    assert found
    row = _view(found)
    if settings.output == "table":
        print_lines(f"{key + ':':<14} {plain(text)}" for key, text in _describe(row))
    elif settings.output == "name":
        print(name)
    else:
        dump(settings, {"environment": row})


def _view(one: pb.Environment) -> View:
    spec = one.defaults
    share = spec.slice
    return {
        "name": one.name,
        "description": one.description or None,
        "image": spec.image or None,
        "command": list(spec.command),
        "gpus_milli": share.gpus_milli or None,
        "mem_bytes": share.mem_max_bytes if share.HasField("mem_max_bytes") else None,
        "cpu_milli": spec.cpu_milli or None,
        "ram_bytes": spec.ram_bytes or None,
        "time_limit_ns": spec.time_limit.ToNanoseconds() if spec.HasField("time_limit") else None,
        "queue": spec.queue or None,
        "volumes": list(spec.volumes),
        "ports": list(spec.ports),
        "registry": spec.registry or None,
        "environment": dict(sorted(spec.environment.items())),
        "members": list(one.members),
    }


def _describe(row: View) -> list[tuple[str, str]]:
    """(label, text) of what is set."""
    import shlex

    from vgpud.core.units import format_bytes, format_gpus
    from vgpud.view.spans import format_span

    sizes = [
        ("gpus", "gpus_milli", format_gpus),
        ("mem", "mem_bytes", format_bytes),
        ("cpus", "cpu_milli", format_gpus),
    ]
    sizes += [("ram", "ram_bytes", format_bytes), ("time limit", "time_limit_ns", format_span)]
    lines = [("name", row["name"]), ("description", row["description"] or ""), ("image", row["image"] or "")]
    lines += [("command", shlex.join(row["command"]))]
    lines += [(label, show(row[key]) if row[key] else "") for label, key, show in sizes]
    lines += [("queue", row["queue"] or "")]
    lines += [(key, ", ".join(row[key])) for key in ("volumes", "ports")]
    lines += [("registry", row["registry"] or "")]
    lines += [("variables", ", ".join(f"{name}={text}" for name, text in row["environment"].items()))]
    lines += [("members", ", ".join(row["members"]) or "every user")]
    return [(label, text) for label, text in lines if text]


def _grid(rows: list[View]) -> Grid:
    import shlex

    from vgpud.core.units import format_bytes, format_gpus
    from vgpud.view.fit import Grid
    from vgpud.view.spans import format_span

    titles = ("ENVIRONMENT", "GPUS", "MEM", "TIME-LIMIT", "RUNS", "DESCRIPTION")
    grid = Grid(titles, first_to_go=("TIME-LIMIT", "MEM"), own_line_columns=("RUNS", "DESCRIPTION"))
    for row in rows:
        grid.rows.append(
            (
                row["name"],
                format_gpus(row["gpus_milli"]) if row["gpus_milli"] else "-",
                format_bytes(row["mem_bytes"]) if row["mem_bytes"] else "-",
                format_span(row["time_limit_ns"]) if row["time_limit_ns"] else "-",
                row["image"] or shlex.join(row["command"]),
                row["description"] or "-",
            )
        )
    return grid
