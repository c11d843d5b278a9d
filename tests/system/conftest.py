"""Programs of the whole-path tests, compiled once, and what the tests ask of a running system."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("tenant", "wait_value", "seen")
SECOND_NS = 1_000_000_000


@pytest.fixture
def system_type() -> type[OwnSystem]:
    return OwnSystem


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Name -> path of each program, linked to libcuda.so.1 as a user's would be."""
    folder = tmp_path_factory.mktemp("programs")
    made: dict[str, str] = {}
    for name in PROGRAMS:
        made[name] = str(folder / name)
        source = str(ROOT / "tests" / "system" / "programs" / f"{name}.c")
        flags = ["-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-I", "tests/sim", "-iquote", "shim"]
        command = [os.environ.get("CC", "gcc"), *flags, "-o", made[name], source, "vgpud/lib/sim/libcuda.so.1"]
        subprocess.run(command, cwd=ROOT, check=True)
    return made


def last(part: Part) -> dict[str, int] | None:
    """The newest line that a tenant has printed."""
    lines = list(part.lines())
    if lines:
        part.newest = lines[-1]  # type: ignore[attr-defined]
    return getattr(part, "newest", None)


def wait_for_work(part: Part) -> dict[str, int]:
    """Waits until a tenant computes and returns its newest line."""

    def ready() -> bool:
        part.check()
        line = last(part)
        return line is not None and line["completed"] > 0

    wait_for(part.name, ready)
    line = last(part)
    assert line
    return line


def waited_ns(system: OwnSystem, name: str) -> int:
    """How long a slice's threads have waited at their gate so far."""
    with system.client() as client:
        return client.send(calls.get_slice(name)).devices[0].throttled_ns


@pytest.fixture
def tenant(system: OwnSystem, programs: dict[str, str]) -> Callable[..., Part]:
    """Starts a saturating tenant in a slice of the `system` fixture: tenant(name, "--gpus", "0.25")."""

    def start(name: str, *amounts: str, kernel_us: int = 250) -> Part:
        return system.run(name, amounts, [programs["tenant"], str(kernel_us)])

    return start
