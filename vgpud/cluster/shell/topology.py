"""Slurm's topology.conf (topology/tree): the switches above each node."""

from __future__ import annotations

from pathlib import Path

from vgpud.cluster.shell.text import SlurmTextError, host_names
from vgpud.errors import ExitCode, VgpudError
from vgpud.userfiles.bounded import read_text

FILE_BYTES_MAX = 4 << 20
_HEIGHT_MAX = 16


class TopologyError(VgpudError):
    """An invalid file: its line, and the remedy."""

    exit_code = ExitCode.USAGE


def read(path: Path) -> dict[str, tuple[str, ...]]:
    """By node: its switch, the one above that, and so on. Raises TopologyError, FileError."""
    above: dict[str, str] = {}
    at: dict[str, str] = {}
    for number, line in enumerate(read_text(path, FILE_BYTES_MAX).splitlines(), 1):
        words = [word.partition("=") for word in line.partition("#")[0].split()]
        said = {name.lower(): value for name, _, value in words}
        if not said:
            continue
        if "switchname" not in said or not said.keys() & {"nodes", "switches"}:
            raise TopologyError(f"{path}:{number}: write SwitchName=NAME Nodes=... or SwitchName=NAME Switches=...")
        name = said["switchname"]
        try:
            at.update(dict.fromkeys(host_names(said.get("nodes", "")), name))
            above.update(dict.fromkeys(host_names(said.get("switches", "")), name))
        except SlurmTextError as error:
            raise TopologyError(f"{path}:{number}: {error}") from error
    return {node: _upwards(path, switch, above) for node, switch in at.items()}


def _upwards(path: Path, switch: str, parents: dict[str, str]) -> tuple[str, ...]:
    found = [switch]
    while found[-1] in parents:
        found.append(parents[found[-1]])
        if len(found) > _HEIGHT_MAX:
            raise TopologyError(f"{path}: switch {switch} is above itself: see its lines Switches=")
    return tuple(found)
