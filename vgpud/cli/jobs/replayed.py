"""`vgpu whatif --replay FILE`: a recorded queue decided again, of a daemon or of `vgpu cluster run`."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

from vgpud.cli.common.options import Settings, global_names
from vgpud.errors import CliError

#: steps that differ: so many are named one by one
NAMED_MAX = 20
#: of a machine that gets events which never happened
_FAULTS = (AssertionError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


def show(settings: Settings, path: Path) -> None:
    """Prints whether the commands are the same. Raises CliError where they are not, TraceError, UsageError."""
    from vgpud.cli.common.output import emit, say
    from vgpud.simulate import replay
    from vgpud.simulate.trace import TraceError
    from vgpud.view.fit import Grid

    _check_alone()
    try:
        recording = replay.read(path)
        if not recording.steps:
            raise TraceError(f"{path} has no steps: nothing was recorded")
        different = list(replay.same_commands(recording))
        starts = sum(one[0] == "StartJob" for one in replay.recorded_decisions(recording))
    except _FAULTS as error:
        text = f"{path}: the queue cannot take what is recorded ({type(error).__name__}: {error})"
        raise TraceError(f"{text}: it must be whole, from its first line on") from error
    counts = {
        "steps": len(recording.steps),
        "events": sum(len(step.events) for step in recording.steps),
        "commands": sum(len(step.commands) for step in recording.steps),
        "starts": starts,
        "different": len(different),
    }
    row = [path.name, *map(str, counts.values())]
    titles = ("RECORDING", *(f">{title.upper()}" for title in counts))
    document = {"recording": path.name, **counts, "differences": different}
    emit(settings, document, [path.name], lambda: Grid(titles, [row]))
    for line in different[:NAMED_MAX]:
        say(line)
    if different:
        text = f"{len(different)} of {len(recording.steps)} steps of {path.name} are decided differently"
        raise CliError(f"{text}: was it recorded by this version of vgpu?")
    say("the replay gave the same commands in the same order")


def _check_alone() -> None:
    """A recording has its queues and nodes in it."""
    ctx = click.get_current_context()
    for option in ctx.command.params:
        given = ctx.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if given and option.name != "replay" and not global_names().intersection(option.opts):
            raise click.UsageError(f"{option.opts[0]} with --replay: a recording has all that is needed, leave it out")
