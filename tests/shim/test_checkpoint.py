"""A program in a slice, checkpointed from outside: its memory leaves the device, its claim stays, others continue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.simdevice import process, state_page

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
CONTEXT = 64 * MIB
HELD = CONTEXT + (48 + 2 + 6) * MIB


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs of tests/sim."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("checkpoint", "checkpoint_target", "saturate"):
        flags = ["-O1", "-pthread", "-iquote", str(ROOT / "shim"), str(ROOT / "tests" / "sim" / f"{name}.c")]
        library = [f"-L{paths.sim_lib_dir()}", "-l:libcuda.so.1"]
        subprocess.run(["gcc", "-o", str(folder / name), *flags, *library], check=True)
    return folder


class Bench:
    """A system with two slices, and what acts on its programs from outside."""

    def __init__(self, system: OwnSystem, programs: Path) -> None:
        self.system, self.programs = system, programs
        for name in "ab":
            system.vgpu("slice", "create", name, "--gpus", "0.5", "--mem", "1G")

    def start(self, name: str, *command: str) -> Part:
        return self.system.run(name, (), [str(self.programs / command[0]), *command[1:]], talk=True)

    def page(self) -> state_page.PageDevice:
        return state_page.read(self.system.sim_dir / state_page.PAGE_NAME).devices[0]

    def control(self, pid: int, *words: str) -> list[int]:
        """The codes that the words are answered."""
        command = [str(self.programs / "checkpoint"), str(pid), *words]
        env = process.environment(self.system.sim_dir)
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=True)
        return [json.loads(line)[0] for line in done.stdout.splitlines()]

    def runs_on(self) -> bool:
        before = self.page().busy_ns
        time.sleep(0.5)
        return self.page().busy_ns - before > 100_000_000

    def charged_bytes(self, name: str) -> int:
        command = [sys.executable, "-m", "vgpud.cli.main", "slice", "show", name, "-o", "json"]
        done = subprocess.run(command, env=self.system.env, cwd=self.system.folder, capture_output=True, check=True)
        used: int = json.loads(done.stdout)["slice"]["devices"][0]["mem_used_bytes"]
        return used


@pytest.fixture
def bench(make_system: Callable[..., OwnSystem], programs: Path) -> Bench:
    return Bench(make_system({"memory_bytes": str(4096 * MIB), "context_bytes": str(CONTEXT)}), programs)


def go(part: Part) -> None:
    assert part.process.stdin
    part.process.stdin.write(b"\n")
    part.process.stdin.flush()


def test_its_memory_leaves_and_its_claim_stays(bench: Bench) -> None:
    said: list[Any] = []
    target = bench.start("a", "checkpoint_target")
    wait_for("the target", lambda: said.extend(target.lines()) or len(said) == 1)
    pid = next(pid for pid, used in bench.page().process_used_bytes.items() if used == HELD)
    assert bench.charged_bytes("a") == HELD
    assert bench.control(pid, "lock", "save") == [0, 0]
    assert pid not in bench.page().process_used_bytes
    assert bench.charged_bytes("a") == HELD, "what its restoring needs is not given to others"
    go(target)
    assert bench.control(pid, "restore", "unlock") == [0, 0]
    wait_for("the target again", lambda: said.extend(target.lines()) or len(said) == 2)
    assert said == [{"same": 1}] * 2
    assert bench.page().process_used_bytes[pid] == bench.charged_bytes("a") == HELD
    assert bench.control(pid, "lock", "save") == [0, 0]
    os.kill(pid, signal.SIGKILL)
    wait_for("the slice's memory", lambda: bench.charged_bytes("a") == 0)


def test_others_go_on_while_a_program_at_work_is_stopped(bench: Bench) -> None:
    pids = []
    parts = [bench.start(name, "saturate", "1000", "60") for name in "ab"]
    for part in parts:
        lines: list[Any] = []
        wait_for("a program", lambda one=part, into=lines: into.extend(one.lines()) or into != [])
        pids.append(lines[0]["ready"])
    for part in parts:
        go(part)
    wait_for("the programs' work", bench.runs_on)
    for stopped in (0, 1):
        assert bench.control(pids[stopped], "lock", "save") == [0, 0]
        wait_for("the other's work", bench.runs_on)
        assert bench.control(pids[stopped], "restore", "unlock") == [0, 0]
        parts[stopped].check()
