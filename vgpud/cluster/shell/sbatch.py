"""A job as a command line of sbatch: what `vgpu submit --cluster` and `vgpu cluster submit` run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from vgpud.core.jobs.program_name import program_name
from vgpud.core.units import MILLI_PER_DEVICE
from vgpud.slurm.comment import COMMENT_WORD

#: option without a value
FLAG = "yes"


class NoGresError(ValueError):
    """A size that Slurm cannot be asked for; the text is one line with the fix."""


@dataclass(frozen=True, slots=True)
class Submission:
    """What a user asks for. Empty texts: not said."""

    command: tuple[str, ...]
    gpus_milli: int = MILLI_PER_DEVICE
    gpu_model: str = ""
    nodes: int = 1
    options: tuple[tuple[str, str], ...] = ()  # of sbatch: name, value or FLAG
    comment_fields: tuple[tuple[str, str], ...] = ()  # model, skew, duration: for the comment
    variables: tuple[tuple[str, str], ...] = ()  # of the job's environment, beside those of the caller


def gres(gpus_milli: int, model: str = "") -> str:
    """Raises NoGresError."""
    whole, rest = divmod(gpus_milli, MILLI_PER_DEVICE)
    if whole and rest:
        text = f"Slurm cannot give a job whole GPUs and a part of one ({gpus_milli / MILLI_PER_DEVICE:g})"
        raise NoGresError(f"{text}: ask for {whole} or {whole + 1}, or for less than one")
    if whole:
        return f"gpu:{model}:{whole}" if model else f"gpu:{whole}"
    return f"shard:{model}:{rest}" if model else f"shard:{rest}"


def command_line(partition: str, job: Submission) -> list[str]:
    """sbatch with its options; the job's script is on its standard input. Raises NoGresError."""
    words = ["sbatch", "--parsable", f"--partition={partition}", f"--gres={gres(job.gpus_milli, job.gpu_model)}"]
    words += [f"--nodes={job.nodes}", "--ntasks-per-node=1"] if job.nodes > 1 else []
    words += [f"--{name}" if value == FLAG else f"--{name}={value}" for name, value in job.options if value]
    if not dict(job.options).get("job-name"):  # sbatch would take its own: the script is on its standard input
        words.append(f"--job-name={program_name(job.command) or 'job'}")
    said = " ".join(f"{name}={value}" for name, value in job.comment_fields if value)
    return [*words, f"--comment={COMMENT_WORD} {said}"] if said else words


def script(job: Submission) -> str:
    """Runs the command as it is; over several nodes once on each. An array's index is in the same variable as on one
    node."""
    options = dict(job.options)
    cpus = options.get("cpus-per-task")  # srun does not take it over from sbatch since 22.05
    srun = ("srun", f"--cpus-per-task={cpus}") if cpus else ("srun",)
    command: Sequence[str] = (*srun, *job.command) if job.nodes > 1 else job.command
    index = "export VGPU_ARRAY_INDEX=$SLURM_ARRAY_TASK_ID\n" if options.get("array") else ""
    return f"#!/bin/sh\n{index}exec {shlex.join(command)}\n"


def as_shell(partition: str, job: Submission) -> str:
    """The same for a shell: what is typed to submit it."""
    variables = "".join(f"{name}={shlex.quote(value)} " for name, value in job.variables)
    text, end = script(job), "END"
    while end in text.split("\n"):
        end += "_"
    return f"{variables}{shlex.join(command_line(partition, job))} <<'{end}'\n{text}{end}"
