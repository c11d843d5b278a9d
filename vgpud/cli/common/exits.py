"""The exit codes of `vgpu` in words: the epilog of `vgpu --help`, and which gRPC status becomes which code."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import click

from vgpud.errors import CliError, ExitCode, VgpudError

#: code -> what it says to a script; the table of docs/cli.md has the same words
EXIT_CODES: dict[ExitCode, str] = {
    ExitCode.OK: "done",
    ExitCode.OTHER: "general error",
    ExitCode.USAGE: "usage error (invalid option or value)",
    ExitCode.UNREACHABLE: "the daemon does not answer",
    ExitCode.NOT_FOUND: "no such slice, device, job or queue",
    ExitCode.DENIED: "not allowed",
    ExitCode.NO_CAPACITY: "no capacity, or over a quota",
    ExitCode.TIMED_OUT: "timed out (--timeout, or gpu drain --deadline)",
    ExitCode.CONFLICT: "conflict: name taken, or slice, job or queue in the wrong state for this",
    ExitCode.DEVICE_REFUSED: "a device cannot be shared (MPS, exclusive mode, MIG without instances)",
}

RUN_CODES = (
    "vgpu run and vgpu sim run exit with the command's own code, 128+N if signal N ended it; 125 if vgpu itself failed "
    "(nothing was started), 126 if the command cannot be executed, 127 if it was not found. vgpu submit --wait and "
    "--pty, vgpu job wait and attach exit with the job's code, for several jobs with the greatest; a job without a "
    "code gives 124 if it reached its time limit and 130 if it was cancelled; 125 if vgpu itself failed."
)


def error_word(exit_code: int) -> str:
    """The `code` of an error in json: the exit code as a word."""
    if exit_code == ExitCode.ENGINE:
        return "failed"
    return ExitCode(exit_code).name.lower() if exit_code in list(ExitCode) else ExitCode.OTHER.name.lower()


@contextmanager
def failures_are_125(but: Collection[int] = ()) -> Iterator[None]:
    """Failures of vgpu itself exit with 125, as docker's do: other codes are a program's. `but`: except these."""
    try:
        yield
    except click.ClickException as error:
        if error.exit_code not in but:
            error.exit_code = int(ExitCode.ENGINE)  # type: ignore[misc]  # click declares it on the class
        raise
    except CliError as error:
        if error.exit_code not in but:
            error.exit_code = ExitCode.ENGINE
        raise
    except (VgpudError, OSError) as error:
        raise CliError(str(error), ExitCode.ENGINE) from error


def epilog() -> str:
    """The table of exit codes as `vgpu --help` shows it (\\b: click keeps the lines)."""
    lines = [f"{code:>4}  {text}" for code, text in EXIT_CODES.items()]
    return "\b\nExit codes:\n" + "\n".join(lines) + "\n\n" + RUN_CODES
