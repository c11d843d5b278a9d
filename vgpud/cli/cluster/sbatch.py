"""A job given to sbatch, or shown as its command line: `vgpu cluster submit` and `vgpu submit --cluster`."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from vgpud.cli.cluster.places import status
from vgpud.cli.common.options import Settings
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.cluster.shell.sbatch import Submission


@dataclass(frozen=True, slots=True)
class Run:
    """Where it goes, and how. partition None: that of the controller whose run directory this is."""

    partition: str | None
    run_dir: Path | None
    dry_run: bool = False
    wait: bool = False  # for its end, and with its exit code
    quiet: bool = False


def submit(settings: Settings, job: Submission, run: Run) -> int:
    """Prints Slurm's number of the job; returns the exit code. Raises CliError, UsageError."""
    from vgpud.cluster.shell import sbatch

    for name, value in job.comment_fields:
        if any(letter.isspace() for letter in value):
            raise click.UsageError(f"{name} {value!r} has a space: write one word")
    try:
        sbatch.gres(job.gpus_milli, job.gpu_model)
    except sbatch.NoGresError as error:
        raise click.UsageError(f"--gpus: {error}") from error
    partition = run.partition or _partition(run.run_dir)
    if run.dry_run:
        click.echo(sbatch.as_shell(partition, job))
        return 0
    return _run(settings, sbatch.command_line(partition, job), sbatch.script(job), dict(job.variables), run)


def _partition(run_dir: Path | None) -> str:
    """That of the controller on this host."""
    from vgpud.cluster.shell.published import NoControllerError

    try:
        return str(status(run_dir)["partition"])
    except NoControllerError as error:
        raise CliError(f"name the --partition: {error}", ExitCode.UNREACHABLE) from error


def _run(settings: Settings, words: list[str], script: str, variables: dict[str, str], run: Run) -> int:
    """With `wait` sbatch ends with the job, after it has printed its number."""
    from vgpud.oci.request import OF_JOBS

    pipe = subprocess.PIPE
    inherited = {name: value for name, value in os.environ.items() if name not in OF_JOBS}  # this may be in a job
    try:
        process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, env={**inherited, **variables})
    except FileNotFoundError as error:
        raise CliError("sbatch was not found: install Slurm's client programs", ExitCode.UNREACHABLE) from error
    except OSError as error:
        raise CliError(f"sbatch cannot be run: {error.strerror}", ExitCode.UNREACHABLE) from error
    with process:
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(script)
            process.stdin.close()
        except BrokenPipeError:
            pass  # it has refused the options already
        key = process.stdout.readline().strip().partition(";")[0]  # NUMBER;CLUSTER in a federation
        if key:
            _tell(settings, key, run)
        code = process.wait()
    if not key:
        raise CliError(f"sbatch refused it (exit code {code})")
    return code if code >= 0 else 128 - code


def _tell(settings: Settings, key: str, run: Run) -> None:
    from vgpud.cli.common.output import dump, say

    if settings.output in ("json", "yaml"):
        dump(settings, {"job_ids": [key]})
        return
    print(key, flush=True)
    if settings.output == "table" and not run.quiet:
        say(f"job {key} is in Slurm: `vgpu explain --cluster {key}` says why it waits")
