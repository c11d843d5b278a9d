"""The options of `vgpu submit` for notifications: at which events, and where."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.quantities import AnyParam
from vgpud.v1alpha1.words import NOTIFICATION_EVENT

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: as vgpud.core.jobs.model.NOTICES
EVENTS = ("start", "end", "failure")


class Events(AnyParam):
    """Events of a job, separated by commas."""

    name = "events"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        words = tuple(word.strip() for word in str(value).split(","))
        for word in words:
            if word not in EVENTS:
                self.fail(f"{word!r} is no event of a job: choose from {', '.join(EVENTS)}", param, ctx)
        return tuple(dict.fromkeys(words))


def notify_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --notify and the three ways."""
    options = (
        click.option(
            "--notify",
            type=Events(),
            metavar="EVENTS",
            help="Notify at start, end or failure, separated by commas (default: end).",
        ),
        click.option("--notify-mail", metavar="ADDRESS", help="... by mail."),
        click.option("--notify-webhook", metavar="URL", help="... by a POST of JSON."),
        click.option("--notify-command", metavar="COMMAND", help="... by this command, run as you, without a shell."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def fill_notification(spec: pb.JobSpec, option_values: Mapping[str, Any]) -> None:
    """Raises UsageError."""
    ways = [option_values[f"notify_{way}"] for way in ("mail", "webhook", "command")]
    if not any(ways):
        if option_values["notify"]:
            raise click.UsageError("--notify needs a way: --notify-mail, --notify-webhook or --notify-command")
        return
    spec.notification.events.extend(map(NOTIFICATION_EVENT.to_number, option_values["notify"] or ()))
    spec.notification.mail, spec.notification.webhook = ways[0] or "", ways[1] or ""
    spec.notification.command.extend(_words(ways[2]) if ways[2] else ())


def _words(command: str) -> list[str]:
    """The command in words, its program with its path: the job may end when the search path is another."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise click.UsageError(f"--notify-command {command!r}: {error}: close it") from error
    program = shutil.which(words[0]) if words else None
    if program is None:
        raise click.UsageError(f"--notify-command {command!r} names no program that can be run: write its path")
    return [os.path.abspath(program), *words[1:]]
