"""What the container tests ask of engines and of the system; deadlines are generous, since test machines are busy."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import engine
from tests.command_line import call
from vgpud.cli.demo.private_system import OwnSystem, PartError, wait_for
from vgpud.client import calls
from vgpud.errors import CliError

GIB = 1 << 30
Engine = engine.Docker | engine.Podman
#: VGPU=0.5 and 1 GiB, as most tests ask for it
HALF = ("-e", "VGPU=0.5", "-e", "VGPU_MEM=1g")
WAIT_S = 60.0


def at(programs: Path) -> tuple[str, ...]:
    """Options that mount the tests' programs at /programs."""
    return ("-v", f"{programs}:/programs:ro")


def view(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What `view` has printed. Fails with what the engine said when it did not run."""
    assert done.returncode == 0, done.stderr
    seen: dict[str, Any] = json.loads(done.stdout)
    return seen


def half_a_gpu_is_seen(answer: dict[str, Any]) -> None:
    """One device of 1 GiB, by CUDA and by NVML."""
    assert (answer["count"], answer["cuda_bytes"], answer["nvml_bytes"]) == (1, GIB, [GIB]), answer


def slices(system: OwnSystem) -> dict[str, Any]:
    """Name -> slice, as `vgpu slice ls` shows them."""
    with system.client() as client:
        return {item.name: item for item in client.all(calls.slices())}


def events(system: OwnSystem, kind: str) -> list[str]:
    """The messages of all events of a kind so far."""
    with system.client() as client:
        return [event.message for event in client.all(calls.events()) if event.kind == kind]


def until(what: str, ready: Callable[[], bool]) -> None:
    """Polls until ready() says so; a daemon that is away is asked again."""

    def is_ready() -> bool:
        try:
            return ready()
        except CliError:
            return False

    wait_for(what, is_ready, WAIT_S)


def until_free(system: OwnSystem) -> None:
    """Waits until the node has no slice."""
    until("the slices' end", lambda: not slices(system))


def until_attached(system: OwnSystem, name: str, count: int = 1) -> list[int]:
    """Waits until so many processes use a slice; returns their host pids."""

    def list_pids() -> list[int]:
        with system.client() as client:
            return [process.pid for process in client.all(calls.processes(name))]

    until(f"{count} processes in {name}", lambda: len(list_pids()) >= count)
    return list_pids()


def own_name(container: str) -> str:
    """The slice that a container without VGPU_NAME gets."""
    return f"c-{container[:12]}"


def vgpu(system: OwnSystem, *arguments: str) -> str:
    """What a `vgpu` command prints. Raises PartError with its message when it fails."""
    done = call(system, *arguments)
    if done.returncode:
        raise PartError(f"vgpu {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout
