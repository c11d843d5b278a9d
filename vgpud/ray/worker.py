"""`python -m vgpud.ray.worker SIZE COMMAND...`: makes a pending slice and becomes a Ray worker in it.

Put before a worker's interpreter by plugin.py. The process id stays, so Ray sees its worker. A connection that holds
the slice stays open in the worker, so the slice ends with it, however it ends. CUDA is refused in a worker that has
lost its slice: it would run without limits beside others.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from vgpud.client import held_slice
from vgpud.errors import CliError, ExitCode, VgpudError
from vgpud.libraries import environment
from vgpud.ray import size as sizes
from vgpud.ray import slices

#: for a daemon that restarts; Ray gives a worker 60 s to start
PATIENCE_S = 30.0


def main(arguments: Sequence[str]) -> None:
    """Does not return: becomes the command, or exits with a sentence."""
    if len(arguments) < 2:
        print("usage: python -m vgpud.ray.worker SIZE COMMAND...", file=sys.stderr)
        sys.exit(ExitCode.USAGE)
    try:
        variables = _prepare(sizes.read(json.loads(arguments[0])))
    except (VgpudError, ValueError) as error:
        print(f"vgpu: this worker gets no slice: {error}", file=sys.stderr)
        sys.exit(ExitCode.ENGINE)
    os.execvpe(arguments[1], list(arguments[1:]), variables)


def _prepare(size: sizes.Size) -> dict[str, str]:
    """Makes the slice and holds it; the environment of the programs in it. Raises VgpudError."""
    made = _make_slice(size)
    variables = environment.for_slice(os.environ, made.node, made.item, made.node.simulated)
    variables["CUDA_VISIBLE_DEVICES"] = slices.visible(os.environ.get("CUDA_VISIBLE_DEVICES"), made.uuids)
    try:
        held = held_slice.connect(made.item.attach_socket)
    except (OSError, CliError) as error:
        raise VgpudError(f"slice {made.item.name} cannot be held: {error}") from error
    held.set_inheritable(True)
    held.detach()  # stays open until this process, and what it forks, have ended
    return variables | {"VGPU_MODE": "closed"}


def _make_slice(size: sizes.Size) -> slices.Made:
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return slices.make(size)
        except VgpudError as error:
            if error.exit_code != ExitCode.UNREACHABLE or time.monotonic() >= until_s:
                raise
        time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1:])
