"""Completion of slices, jobs and queues in the shell. Asks the daemon, briefly; without it completes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from vgpud.cli.common.options import Settings
from vgpud.errors import CliError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _quiet(ctx: click.Context) -> Settings:
    settings = ctx.find_object(Settings) or Settings()
    settings.timeout_s = 1.0
    return settings


def complete_slice(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of slices with this prefix."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    try:
        with Client(_quiet(ctx)) as client:
            return [item.name for item in client.all(calls.slices()) if item.name.startswith(incomplete)]
    except CliError:
        return []


def complete_device(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The indices of devices with this prefix."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    try:
        with Client(_quiet(ctx)) as client:
            return [
                str(device.index) for device in client.all(calls.devices()) if str(device.index).startswith(incomplete)
            ]
    except CliError:
        return []


def complete_job(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """The numbers of jobs with this prefix, with names and states; of a list, only the last number is completed."""
    from click.shell_completion import CompletionItem

    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.v1alpha1 import words

    before, comma, begun = incomplete.rpartition(",")
    try:
        with Client(_quiet(ctx)) as client:
            jobs = [job for job in client.all(calls.jobs(include_ended=True)) if str(job.job_id).startswith(begun)]
    except CliError:
        return []
    return [
        CompletionItem(f"{before}{comma}{job.job_id}", help=f"{job.spec.name} {words.JOB_STATE.to_word(job.state)}")
        for job in jobs
    ]


def complete_environment(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of the site's environments with this prefix."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    try:
        with Client(_quiet(ctx)) as client:
            known = client.send(calls.environments()).environments
            return [one.name for one in known if one.name.startswith(incomplete)]
    except CliError:
        return []


def complete_queue(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The names of queues with this prefix."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    try:
        with Client(_quiet(ctx)) as client:
            return [queue.name for queue in client.all(calls.queues()) if queue.name.startswith(incomplete)]
    except CliError:
        return []
