"""--cluster: a command over the queue of a Slurm cluster instead of one node's, and what makes no sense there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click
from click.core import ParameterSource

F = TypeVar("F", bound=Callable[..., Any])
#: of every command: what to write instead
_ALWAYS = {"host": "the controller's status is a file of this host: leave --host out, or name its --run-dir"}
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.DEFAULT_MAP)  # or in a job file


def cluster_option(text: str) -> Callable[[F], F]:
    """--cluster, keyword `over_cluster`. It is read before arguments, whose form may depend on it."""
    return click.option("--cluster", "over_cluster", is_flag=True, is_eager=True, help=f"{text} (`vgpu docs cluster`).")


def directory_option(name: str, text: str) -> Callable[[F], F]:
    """One of the controller's directories."""
    return click.option(name, type=click.Path(path_type=Path), metavar="DIR", help=text)


def run_dir_option(directory: str = "Directory") -> Callable[[F], F]:
    """--run-dir, keyword `run_dir`."""
    return directory_option("--run-dir", f"{directory} of the heartbeat and the status (default: /run/vgpud/cluster).")


def state_dir_option(directory: str = "Directory") -> Callable[[F], F]:
    """--state-dir, keyword `state_dir`."""
    return directory_option(
        "--state-dir", f"{directory} of the database (default: /var/lib/vgpud/cluster, for users in ~/.local/state)."
    )


def with_run_dir(text: str) -> Callable[[F], F]:
    """--cluster and --run-dir."""

    def add(function: F) -> F:
        return cluster_option(text)(run_dir_option("With --cluster: directory")(function))

    return add


def check(alternatives: Mapping[str, str], cluster_options: Collection[str] = ("run_dir",)) -> bool:
    """Whether --cluster was given. `alternatives`: keyword of an option that makes no sense there -> what to write
    instead; `cluster_options`: those that make sense nowhere else. Raises UsageError for one that was given."""
    ctx, remedies = click.get_current_context(), {**_ALWAYS, **alternatives}
    over_cluster = bool(ctx.params["over_cluster"])
    for option in _find_given_options(ctx):
        name = str(option.name)
        if over_cluster and name in remedies:
            raise click.UsageError(f"{_spelling(option)} with --cluster: {remedies[name]}")
        if not over_cluster and name in cluster_options:
            raise click.UsageError(
                f"{_spelling(option)} needs --cluster: add --cluster, or leave {_spelling(option)} out"
            )
    return over_cluster


def _find_given_options(ctx: click.Context) -> Iterator[click.Parameter]:
    return (one for one in ctx.command.params if one.name and ctx.get_parameter_source(one.name) in _GIVEN)


def _spelling(option: click.Parameter) -> str:
    return max(option.opts, key=len)
