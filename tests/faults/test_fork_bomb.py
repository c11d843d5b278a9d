"""A fork bomb of programs that use the device, in one slice: so many attach as the site says, the others read why not,
other tenants continue, and its end gives everything back."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.daemon.node import settled_descriptors, wait_until
from tests.faults.programs import HERE, TENANT, build
from vgpud.cli.demo.private_system import OwnSystem, Part
from vgpud.client import calls
from vgpud.simdevice import state_page
from vgpud.v1alpha1 import vgpud_pb2 as pb

BOUND = 12
PROCESSES = 90
SIM = {"context_bytes": str(32 << 20), "memory_bytes": str(64 << 30)}
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def programs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bomb")
    build(folder, TENANT, HERE / "bomb.c", HERE / "victim.c")
    return folder


def newest(part: Part) -> int:
    part.check()
    for line in part.lines():
        part.completed = line["completed"]  # type: ignore[attr-defined]
    return int(getattr(part, "completed", 0))


def kernels_of(neighbour: Part, work: Callable[[], object]) -> int:
    """How many of its kernels complete meanwhile."""
    before = newest(neighbour)
    work()
    return newest(neighbour) - before


@pytest.mark.parametrize("bound", ["processes_per_slice_max", "processes_per_user_max"])
def test_a_fork_bomb_is_bounded_and_harms_no_other_tenant(
    make_system: Callable[..., OwnSystem], programs_dir: Path, bound: str
) -> None:
    system = make_system(SIM, (f"{bound} = {BOUND}",))
    assert system.daemon
    page = system.sim_dir / state_page.PAGE_NAME
    table = Path(f"/proc/{system.daemon.process.pid}/fd")
    neighbour = system.run("neighbour", ["--gpus", "0.5", "--mem", "1G"], [str(programs_dir / "tenant"), "250"])
    wait_until(lambda: newest(neighbour) > 0, "the neighbour's first kernel")
    system.run("short", ["--gpus", "0.1", "--mem", "256M"], ["cat"], talk=True)
    bomb = system.run("bomb", ["--gpus", "0.3", "--mem", "32G"], ["sh", "-c", "cat; cat"], talk=True)
    wait_until(lambda: {"short", "bomb"} <= {one.name for one in slices(system)}, "the slices")

    def run_short() -> None:
        """Programs of another slice start meanwhile."""
        for _ in range(3):
            part = system.run("short", [], [str(programs_dir / "victim"), "0", "1048576"])
            assert part.process.wait(60) == 0 and part.output_file.read_text().split() == ["full", "0"], (
                part.error_file.read_text()
            )

    quiet_bytes, quiet_fds = state_page.read(page).devices[0].used_bytes, settled_descriptors(table)
    # a user's bound is for all of its slices, and these are all of one user: its own further programs are refused
    meanwhile = run_short if bound == "processes_per_slice_max" else lambda: time.sleep(2)
    quiet = kernels_of(neighbour, meanwhile)
    explosion = system.run("bomb", [], [str(programs_dir / "bomb"), str(PROCESSES)], talk=True)
    wait_until(lambda: len(explosion.output_file.read_text().split()) >= PROCESSES, "all answers")
    answers = explosion.output_file.read_text().split()
    attached = answers.count("0")
    said = explosion.error_file.read_text()
    # fewer on a busy host: one that waits too long for its context's memory ends, and its place is free again
    assert BOUND // 2 <= attached <= BOUND, f"{Counter(answers)}: {said[-3000:]}"
    assert bound in said and "Traceback" not in said, said[-2000:]
    wait_until(lambda: len(processes(system, "bomb")) == attached, "those that stay")
    assert kernels_of(neighbour, meanwhile) > quiet / 4, "the neighbour's kernels while the others are there"
    assert explosion.process.stdin
    explosion.process.stdin.close()
    wait_until(lambda: not processes(system, "bomb"), "the places")
    wait_until(lambda: state_page.read(page).devices[0].used_bytes == quiet_bytes, "the device's memory")
    wait_until(lambda: len(os.listdir(table)) <= quiet_fds + 8, "the daemon's descriptors")
    run_short()
    (again,) = [one for one in slices(system) if one.name == "bomb"]
    assert again.devices[0].mem_used_bytes == 0
    assert bomb.running and system.daemon.running and newest(neighbour) > 0


def slices(system: OwnSystem) -> list[pb.Slice]:
    with system.client() as client:
        return client.all(calls.slices())


def processes(system: OwnSystem, name: str) -> list[pb.Process]:
    with system.client() as client:
        return client.all(calls.processes(name))
