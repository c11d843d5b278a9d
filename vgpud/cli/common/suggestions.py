"""What may be meant by a command or an option that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

import click

#: how much alike two names are at least, of 1
_LIKENESS = 0.6
_MAX = 3

#: words of `vgpu` that other programs have, or the daemon -> what is written here
WORDS_OF_OTHERS = {
    "daemon": ("`vgpud serve` (the daemon)",),
    "exec": ("`vgpu run --slice NAME -- COMMAND` (joins a slice)",),
    "help": ("`vgpu COMMAND --help`", "`vgpu docs` (the documents)"),
    "info": ("`vgpu status`", "`vgpu version`"),
    "install": ("`vgpu setup docker` (a container engine)", "`vgpu setup systemd` (the daemon)"),
    "kill": ("`vgpu slice rm NAME --force` (a slice)", "`vgpu job cancel JOB` (a job)"),
    "list": ("`vgpu status` (all)", "`vgpu slice ls` (slices)", "`vgpu job ls` (jobs)"),
    "log": ("`vgpu job logs JOB`", "`vgpu events`"),
    "logs": ("`vgpu job logs JOB`", "`vgpu events`"),
    "ls": ("`vgpu status` (all)", "`vgpu slice ls` (slices)", "`vgpu job ls` (jobs)"),
    "new": ("`vgpu run --gpus 0.5 -- COMMAND`", "`vgpu slice create NAME --gpus 0.5`"),
    "resize": ("`vgpu slice set NAME --gpus 0.5`",),
    "rm": ("`vgpu slice rm NAME` (a slice)", "`vgpu job cancel JOB` (a job)"),
    "serve": ("`vgpud serve` (the daemon)", "`vgpu console serve` (the console)"),
    "smi": ("`vgpu status`", "`vgpu top`"),
    "start": ("`vgpud serve` (the daemon)", "`vgpu run --gpus 0.5 -- COMMAND`", "`vgpu sim start` (without a GPU)"),
    "stop": ("`vgpu slice rm NAME` (a slice)", "`vgpu job cancel JOB` (a job)", "`vgpu sim stop` (without a GPU)"),
}


def resemble(name: str, valid_names: Iterable[str]) -> list[str]:
    """Up to three known names that a mistyped one may stand for: those that begin with it, then those spelt like it."""
    names = list(valid_names)
    longer = [each for each in names if len(name.strip("-")) > 1 and each.startswith(name)]
    return list(dict.fromkeys(longer + difflib.get_close_matches(name, names, _MAX, _LIKENESS)))[:_MAX]


def hint(suggestions: Iterable[str]) -> str:
    """The end of a message: ", did you mean A, B or C?"; "" without any."""
    *others, last = suggestions or [""]
    return f", did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""


def describe_unknown_option(error: click.NoSuchOption) -> str:
    """The line for an option that the command does not have."""
    names = [name for param in (error.ctx.command.params if error.ctx else []) for name in param.opts]
    similar = resemble(error.option_name, [name for name in [*names, "--help"] if name.startswith("--")])
    return f"No such option {error.option_name!r}{hint(similar)}"
