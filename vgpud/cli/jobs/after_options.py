"""The jobs that a job of `vgpu submit` comes after, and what they must do before it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from vgpud.cli.common.completions import complete_job
from vgpud.cli.jobs.quantities import JobIds, JobIdsOrNone

F = TypeVar("F", bound=Callable[..., Any])
NAMES = ("after", "after_ok", "after_fail", "after_any")


def after_options(function: F) -> F:
    """--after, --after-ok, --after-fail, --after-any; the last one has no value where it is about --after."""

    def option(name: str, text: str, **attributes: Any) -> Callable[[F], F]:
        kind = attributes.pop("type", JobIds())
        return click.option(name, type=kind, metavar="JOB[,JOB]", shell_complete=complete_job, help=text, **attributes)

    options = (
        option("--after", "Start when these have completed; 12-19: all jobs of that array."),
        option("--after-ok", "The same as --after."),
        option("--after-fail", "Start when these have ended without completing: failed, timed out or cancelled."),
        option(
            "--after-any",
            "Start when these have ended, with any result. Without a value: those of --after.",
            type=JobIdsOrNone(),
            is_flag=False,
            flag_value="",
        ),
    )
    for one in reversed(options):
        function = one(function)
    return function


def dependencies(option_values: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The jobs by the API's field: `after` must complete, `after_fail` fail, `after_end` end.

    Raises UsageError for a job that is named for several of these.
    """
    after, ok, fail, any_end = (option_values[name] for name in NAMES)
    is_any = any_end == ()  # the option without a value
    found = {
        "after": tuple(dict.fromkeys([*(() if is_any else after or ()), *(ok or ())])),
        "after_fail": fail or (),
        "after_end": (after or ()) if is_any else any_end or (),
    }
    seen: set[int] = set()
    for ids in found.values():
        if twice := seen.intersection(ids):
            raise click.UsageError(f"job {min(twice)} is to be waited for in several ways: name it once")
        seen.update(ids)
    return found
