"""`vgpu setup ENGINE`: registers the runtime `vgpu` with an engine, shows the changes beforehand, and undoes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from vgpud.cli.common.options import LazyGroup, Settings, pass_settings

F = TypeVar("F", bound=Callable[..., Any])


def _common(function: F) -> F:
    """--dry-run, --undo and --root."""
    options = [
        click.option("--dry-run", is_flag=True, help="Show the changes as a unified diff, without making them."),
        click.option("--undo", is_flag=True, help="Remove everything that setup added, and nothing else."),
        click.option(
            "--root",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            default=Path("/"),
            metavar="DIR",
            help="The host's root directory, where it is mounted (for setup from a container).",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _runtime_options(function: F) -> F:
    """--config, --prefix, --socket and --runtime."""
    options = [
        click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help="The engine's own file."),
        click.option(
            "--prefix",
            type=click.Path(path_type=Path, resolve_path=True),
            metavar="DIR",
            help="Directory of the installed files (default: /usr/lib/vgpu).",
        ),
        click.option("--socket", type=click.Path(path_type=Path), metavar="PATH", help="The daemon's runtime socket."),
        click.option("--runtime", default="", metavar="NAME", help="Low-level runtime (default: runc, or crun)."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _run(
    settings: Settings, engine: str, root: Path, dry_run: bool, prefix: Path | None = None, **choices: Any
) -> None:
    from vgpud.cli.common.output import say
    from vgpud.setup.engines import NEXT, SetupOptions, plan_engine
    from vgpud.setup.site import Site

    site = Site(root.resolve(), prefix)
    plan = plan_engine(engine, site, SetupOptions(**choices))
    if not dry_run:
        plan.apply(say)
    _show(settings, engine, plan, dry_run, choices["undo"])
    for note in plan.notes:
        say(note)
    if not plan.changes:
        say(f"{engine}: nothing to {'undo' if choices['undo'] else 'do'}")
    elif not dry_run and not choices["undo"]:
        say(NEXT[engine].format(front=site.front))


def _show(settings: Settings, engine: str, plan: Any, dry_run: bool, undo: bool) -> None:
    """Prints the diff of a dry run, or everything as data, on stdout; names are the paths that change."""
    if settings.output == "table":
        for change in plan.changes if dry_run else ():
            click.echo(change.diff or f"# {change.line}\n", nl=False)
    elif settings.output == "name":
        for path in dict.fromkeys(str(change.path) for change in plan.changes):
            click.echo(path)
    else:
        from vgpud.cli.common.output import dump

        rows = [{"kind": c.kind, "path": str(c.path), "text": c.line, "diff": c.diff} for c in plan.changes]
        data = {"engine": engine, "undo": undo, "dry_run": dry_run, "changes": rows, "notes": plan.notes}
        dump(settings, data)


@click.group("setup", cls=LazyGroup, short_help="Register vgpud with docker, podman, containerd or systemd.")
def setup() -> None:
    """Install vgpu-runtime under /usr/lib/vgpu and register it with an engine as the runtime `vgpu`.

    \b
    vgpu setup docker --dry-run
    sudo vgpu setup docker
    docker run --runtime=vgpu -e VGPU=0.5 IMAGE
    """


@setup.command("docker", short_help="Register the runtime in daemon.json.")
@_common
@_runtime_options
@click.option(
    "--set-as-default",
    "as_default",
    is_flag=True,
    help="Make it the default runtime of all containers, not only with --runtime=vgpu.",
)
@pass_settings
def docker(settings: Settings, /, **options: Any) -> None:
    """Register the runtime `vgpu` in docker's daemon.json and have a running dockerd reload it.

    The rest of the file is not changed; a copy of it is kept beside it. Containers keep running.
    """
    _run(settings, "docker", **options)


@setup.command("podman", short_help="Register the runtime in a drop-in of containers.conf.")
@_common
@_runtime_options
@pass_settings
def podman(settings: Settings, /, **options: Any) -> None:
    """Register the runtime `vgpu` in containers.conf.d/vgpu.conf: for root the system's, otherwise your own.

    For a user other than root everything is in the home directory (~/.local/lib/vgpu, ~/.config/containers).
    """
    _run(settings, "podman", **options)


@setup.command("containerd", short_help="Register the runtime in containerd's config.toml.")
@_common
@_runtime_options
@pass_settings
def containerd(settings: Settings, /, **options: Any) -> None:
    """Register the runtime `vgpu` for Kubernetes in containerd's config.toml (version 2 or 3).

    containerd reads the file when it starts; restarting it is left to you. Containers keep running.
    """
    _run(settings, "containerd", **options)


@setup.command("systemd", short_help="Install the unit vgpud.service and those of jobs.")
@_common
@pass_settings
def systemd(settings: Settings, /, **options: Any) -> None:
    """Install the unit vgpud.service for the vgpud that is installed beside this vgpu.

    `systemctl enable --now vgpud` starts it. Also installs vgpu-job.socket and vgpu-job@.service, by which systemd
    starts each job in its own unit, and vgpud-console.service, which stays off until it is enabled.
    """
    _run(settings, "systemd", **options)


@setup.command("cdi", short_help="Install vgpu-runtime for CDI devices alone.")
@_common
@click.option("--socket", type=click.Path(path_type=Path), metavar="PATH", help="The daemon's runtime socket.")
@pass_settings
def cdi(settings: Settings, /, **options: Any) -> None:
    """Install the programs that run when a container with a CDI device starts, and register nothing with an engine.

    Needed where the daemon itself runs in a container: its own files are not visible on the host.
    """
    _run(settings, "cdi", **options)
