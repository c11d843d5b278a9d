"""`vgpu backup` and `vgpu restore`: the daemon's state in one file, and back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.config import Config
    from vgpud.store.manual_backup import Contents

F = TypeVar("F", bound=Callable[..., Any])


def _place(function: F) -> F:
    """--state-dir and --config."""
    options = [
        click.option(
            "--state-dir",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Directory of the state database (default: the configuration's).",
        ),
        click.option(
            "--config",
            "config_path",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The daemon's configuration (default: the one that `vgpud serve` reads).",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@click.command("backup", cls=VgpuCommand, short_help="Copy the daemon's state to a file while it runs.")
@click.argument("copy", metavar="FILE", type=click.Path(path_type=Path))
@_place
@pass_settings
def backup(settings: Settings, copy: Path, state_dir: Path | None, config_path: Path | None) -> None:
    """Copy the daemon's state to the new FILE: slices, jobs, queues, quotas, reservations, accounting and events.

    The daemon may run meanwhile and need not be told. Copying vgpud.sqlite3 itself loses what is still in its log. Run
    it as the user that vgpud runs as. FILE has the environments of jobs that have not ended: keep it as you keep
    passwords. Not in it: the configuration, certificates, and output of jobs.

    \b
    vgpu backup /backup/vgpud-$(date +%F).sqlite3
    """
    from vgpud.store import manual_backup

    config = _config(settings, state_dir, config_path)
    contents = manual_backup.make(config.state.absolute(), copy.absolute())
    _show(settings, copy, contents, {})


@click.command("restore", cls=VgpuCommand, short_help="Put a copy of the state back while no daemon runs.")
@click.argument("copy", metavar="FILE", type=click.Path(path_type=Path))
@_place
@pass_settings
def restore(settings: Settings, copy: Path, state_dir: Path | None, config_path: Path | None) -> None:
    """Replace the daemon's state with FILE, a copy made by `vgpu backup` or kept in the state directory
    (vgpud.sqlite3.backup-*, made before an upgrade; vgpud.sqlite3.replaced-*, by this command).

    Stop the daemon first. FILE is checked before anything is changed, and the state that it replaces is kept beside it.
    Jobs that had not ended when FILE was made are started or continued by the daemon, even if they have ended since
    then. Running jobs that FILE does not know are ended. In slices that FILE does not know, running programs keep
    their shares and new ones are refused.

    \b
    systemctl stop vgpud
    vgpu restore /backup/vgpud-2026-01-31.sqlite3
    systemctl start vgpud
    """
    from vgpud.cli.common.output import say
    from vgpud.host.private_files import make_state_dir
    from vgpud.store import restore as restoring

    config = _config(settings, state_dir, config_path)
    directory = config.state.absolute()
    for changed in make_state_dir(directory, config.runtime):
        say(changed)
    restored = restoring.restore(directory, copy.absolute())
    _show(settings, copy, restored.contents, {"replaced": restored.old_copy and str(restored.old_copy)})
    if settings.output == "table":
        if restored.old_copy:
            say(f"the state that it replaces is kept as {restored.old_copy}")
        if jobs := restored.contents.jobs:
            say(f"the daemon starts or continues {jobs} job{'' if jobs == 1 else 's'} that had not ended at that time")


def _config(settings: Settings, state_dir: Path | None, config_path: Path | None) -> Config:
    """Raises CliError where it is not of the daemon that --host, VGPU_HOST or the context names."""
    from vgpud import config, paths
    from vgpud.client import contexts
    from vgpud.client.target import parse_target, unix_path

    found = config.load(config_path, state_dir=None if state_dir is None else str(state_dir))
    if state_dir or config_path:
        return found
    named = settings.host or os.environ.get("VGPU_HOST")
    context = None if named else contexts.current()
    target = context.host if context else parse_target(named or f"unix://{paths.grpc_socket(found.runtime)}")
    if unix_path(target) != str(paths.grpc_socket(found.runtime)):
        text = f"the state directory {found.state} is not of the daemon at {target}"
        fix = (
            "give that daemon's --state-dir or --config on its machine, or leave --host, VGPU_HOST and the context out"
        )
        raise CliError(f"{text}: {fix}", ExitCode.USAGE)
    return found


def _show(settings: Settings, copy: Path, contents: Contents, extra_fields: dict[str, Any]) -> None:
    from vgpud.certs.register import stamp, when
    from vgpud.cli.common.output import emit
    from vgpud.view.fit import Grid

    made_s = contents.made_wall_ns / 1e9
    data: dict[str, Any] = {
        "file": str(copy),
        "database_version": contents.version,
        "release": contents.release or None,
        "node": contents.node or None,
        "create_time": stamp(made_s) if made_s else None,
        "slices": contents.slices,
        "queues": contents.queues,
        "jobs": contents.jobs,
    }
    row = [str(copy), when(made_s) if made_s else "-", contents.node or "-", contents.release or "-"]
    row += [str(number) for number in (contents.slices, contents.queues, contents.jobs)]
    titles = ("FILE", "MADE", "NODE", "RELEASE", ">SLICES", ">QUEUES", ">JOBS")
    emit(settings, data | extra_fields, [copy], lambda: Grid(titles, [row], first_to_go=("NODE", "RELEASE", "QUEUES")))
