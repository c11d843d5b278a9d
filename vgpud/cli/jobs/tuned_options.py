"""`vgpu submit --gpus auto`: the size that `vgpu tune` has found for the command."""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings
from vgpud.cli.jobs.elastic_options import AUTO
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.core.tune.match import Applied

_WITHOUT = "--gpus auto takes the size from `vgpu tune` of a command on this node: write --gpus N"


def refuse_elsewhere(option_values: dict[str, Any]) -> None:
    """For a submission to a cluster. Raises UsageError for --gpus auto."""
    if option_values["gpus"] == AUTO:
        raise click.UsageError(_WITHOUT)


def fill_from_tune(
    settings: Settings, option_values: dict[str, Any], command: Sequence[str]
) -> tuple[str, Sequence[str]]:
    """Sets gpus, and class, mem and variables where they are not given, of `option_values` if gpus is AUTO: by the kept
    tuning of this command. With --predict or --predict-run gpus becomes None, as these derive it.

    Returns the line to be printed, and the command without placeholders. Raises UsageError, CliError.
    """
    if option_values["gpus"] != AUTO:
        return "", command
    if option_values["predict"] or option_values["predict_run"]:
        option_values["gpus"] = None
        return "", command
    if option_values["image"] or option_values["environment"] or option_values["workers"] or not command:
        raise click.UsageError(_WITHOUT)
    applied = _find(settings, option_values, command)
    row, mem_bytes = applied.row, applied.row.mem_bytes
    option_values["gpus"] = row.candidate.gpus_milli
    if option_values["service_class"] is None and row.candidate.service_class != "batch":
        option_values["service_class"] = row.candidate.service_class
    if mem_bytes and not any(option_values[name] is not None for name in ("mem", "mem_min", "mem_max")):
        option_values["mem"] = mem_bytes
    own = {name for name, _ in option_values["env"]}
    option_values["env"] = (*option_values["env"], *(pair for pair in applied.variables if pair[0] not in own))
    when = datetime.datetime.fromtimestamp(applied.record.unix_s, datetime.timezone.utc).astimezone()
    mem = f", --mem {mem_bytes >> 20}M" if option_values["mem"] == mem_bytes and mem_bytes else ""
    text = f"{row.candidate.describe()}{mem}: by `vgpu tune`, {applied.record.name} of {when:%Y-%m-%d %H:%M}"
    return text, applied.command


def _find(settings: Settings, option_values: dict[str, Any], command: Sequence[str]) -> Applied:
    """The newest tuning of this command, here, on such a device. Raises CliError."""
    from vgpud.cli.common import kept_tunes
    from vgpud.cli.predict.run import find_device_name
    from vgpud.core.tune.match import apply_record

    directory = os.path.join(os.getcwd(), option_values["directory"] or "")
    records, _ = kept_tunes.load_all()
    for record in records:
        if os.path.realpath(record.directory) != os.path.realpath(directory):
            continue
        applied = apply_record(record, command)
        if applied is None:
            continue
        device = find_device_name(settings, option_values["devices"])
        if device != record.device:
            text = f"tuning {record.name} was on {record.device}, and the daemon has {device}: run `vgpu tune` again"
            raise CliError(text, ExitCode.NOT_FOUND)
        return applied
    text = "--gpus auto: no tuning of this command in this directory is kept: run `vgpu tune -- COMMAND` first"
    raise CliError(f"{text}, or add --predict-run or --predict MODEL", ExitCode.NOT_FOUND)
