"""Programs whose memory together is more than the device, on a daemon of their own: they take turns, sleep and wake,
and no byte of theirs changes, whoever is killed meanwhile."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask, call
from tests.examples import is_nightly
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.core.model import BY_CHECKPOINT, BY_HOOK

ROOT = Path(__file__).resolve().parents[3]
MIB = 1 << 20
#: turns are 2 s where moves take less than that, so these are small
DEVICE, CONTEXT, PROGRAM = 48, 8, 30
pytestmark = [pytest.mark.xdist_group("rotation")]
#: the second one is in each run, too: test_programs_of_vgpu_run
WAYS = [BY_CHECKPOINT, pytest.param(BY_HOOK, marks=pytest.mark.slow)]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs of tests/sim."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("rotor", "checkpoint_target", "movable"):
        flags = ["-O1", "-pthread", "-iquote", str(ROOT / "shim"), str(ROOT / "tests" / "sim" / f"{name}.c")]
        library = [f"-L{paths.sim_lib_dir()}", "-l:libcuda.so.1"]
        subprocess.run(["gcc", "-o", str(folder / name), *flags, *library], check=True)
    return folder


class Bench:
    """A system with slices of a whole device's memory each."""

    def __init__(
        self, make_system: Callable[..., OwnSystem], programs: Path, device_mib: int = DEVICE, way: str = BY_CHECKPOINT
    ) -> None:
        """way: BY_HOOK, with a driver that has no checkpoint."""
        sizes = {"memory_bytes": f"{device_mib}M", "context_bytes": f"{CONTEXT}M", "devices": "1"}
        sizes["checkpoint"] = str(int(way == BY_CHECKPOINT))
        self.system, self._programs = make_system(sizes), programs
        self._lines: dict[str, list[Any]] = {}
        self.parts: dict[str, Part] = {}

    def create(self, name: str, *options: str, mib: int = DEVICE) -> None:
        done = call(self.system, "slice", "create", name, "--gpus", "0.25", "--mem", f"{mib}M", *options)
        assert done.returncode == 0, done.stderr

    def start(self, name: str, *command: str) -> None:
        self._lines[name] = []
        program = str(self._programs / command[0])
        self.parts[name] = self.system.run(name, (), [program, *command[1:]], talk=True)

    def run(self, name: str, *command: str) -> None:
        """A program by `vgpu run`, in a slice of the whole device's memory."""
        self._lines[name] = []
        size = ("--gpus", "0.25", "--mem", f"{DEVICE}M", "--mem-swap")
        program = str(self._programs / command[0])
        self.parts[name] = self.system.run(name, size, [program, *command[1:]], talk=True)

    def start_rotors(self, names: str, mib: int = DEVICE) -> None:
        for number, name in enumerate(names):
            self.create(name, "--mem-swap", mib=mib)
            self.start(name, "rotor", str(PROGRAM), str(number), "busy")

    def last(self, name: str) -> dict[str, Any]:
        """What a program has said last; {}: nothing."""
        self._lines[name] += self.parts[name].lines()
        return dict(self._lines[name][-1]) if self._lines[name] else {}

    def rounds(self, name: str) -> int:
        said = self.last(name)
        assert not said.get("wrong"), f"{name}: bytes have changed"
        return int(said.get("rounds", -1))

    def go(self, name: str) -> None:
        stdin = self.parts[name].process.stdin
        assert stdin
        stdin.write(b"\n")
        stdin.flush()

    def show(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = ask(self.system, "slice", "show", name)["slice"]
        return found

    def moves(self, name: str) -> int:
        return int(self.show(name)["rotation"]["moves"])

    def events(self, kind: str) -> list[str]:
        return [event["message"] for event in ask(self.system, "events")["events"] if event["kind"] == kind]

    def wait_for_rounds(self, name: str, count: int = 1, limit_s: float = 60) -> None:
        first = self.rounds(name)
        wait_for(f"rounds of {name}", lambda: self.rounds(name) >= first + count, limit_s)


@pytest.mark.parametrize("names", ["ab", "abcd"])
@pytest.mark.parametrize("way", WAYS)
def test_slices_that_each_fill_the_device_take_turns(
    make_system: Callable[..., OwnSystem], programs: Path, names: str, way: str
) -> None:
    stay = (len(names) - 2) * (CONTEXT + 4) if way == BY_HOOK else 0  # contexts stay on the device
    bench = Bench(make_system, programs, DEVICE + stay, way)
    bench.start_rotors(names, DEVICE + stay)
    for _ in range(2):
        for name in names:
            bench.wait_for_rounds(name)
    assert all(bench.moves(name) >= 1 for name in names)
    assert sum(bench.show(name)["residency"] is None for name in names) <= 1
    listed = call(bench.system, "slice", "ls").stdout
    assert "MiB-HOST" in listed


@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_is_killed_while_away_leaves_its_slice_to_the_next_one(
    make_system: Callable[..., OwnSystem], programs: Path, way: str
) -> None:
    bench = Bench(make_system, programs, way=way)
    bench.start_rotors("ab")
    for name in "ab":
        bench.wait_for_rounds(name)
    wait_for("one that is away", lambda: any(bench.show(name)["residency"] == "away" for name in "ab"), 30)
    away = next(name for name in "ab" if bench.show(name)["residency"] == "away")
    other = "b" if away == "a" else "a"
    os.kill(bench.last(away)["pid"], signal.SIGKILL)
    bench.parts[away].process.wait(20)
    wait_for("its end", lambda: bench.show(away)["processes"] == 0, 30)
    bench.wait_for_rounds(other, 50)
    bench.start(away, "rotor", str(PROGRAM), "5", "busy")
    bench.wait_for_rounds(away)
    bench.wait_for_rounds(other)


@pytest.mark.parametrize("tries", [40 if is_nightly() else 3])
@pytest.mark.parametrize("way", WAYS)
def test_a_daemon_that_is_killed_at_any_moment_changes_no_byte(
    make_system: Callable[..., OwnSystem], programs: Path, tries: int, way: str
) -> None:
    bench = Bench(make_system, programs, way=way)
    bench.start_rotors("ab")
    moments = random.Random(1)
    for name in "ab":
        bench.wait_for_rounds(name)
    for attempt in range(tries):
        wait_for("a move", lambda: any(bench.show(n)["residency"] in ("leaving", "coming") for n in "ab"), 60)
        time.sleep(moments.random() * 0.1 if attempt else 0.0)
        assert bench.system.daemon
        bench.system.daemon.stop(signal.SIGKILL)
        bench.system.start_daemon()
        for name in "ab":
            bench.wait_for_rounds(name, limit_s=90)
    for part in bench.parts.values():
        part.check()


@pytest.mark.parametrize("state", ["leaving", "away", "coming"])
@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_is_killed_at_any_step_takes_nothing_with_it(
    make_system: Callable[..., OwnSystem], programs: Path, state: str, way: str
) -> None:
    bench = Bench(make_system, programs, way=way)
    bench.start_rotors("ab")
    for name in "ab":
        bench.wait_for_rounds(name)
    victim = ""

    def find_victim() -> bool:
        nonlocal victim
        victim = next((name for name in "ab" if bench.show(name)["residency"] == state), "")
        return bool(victim)

    wait_for(f"one that is {state}", find_victim, 60)
    other = "b" if victim == "a" else "a"
    os.kill(bench.last(victim)["pid"], signal.SIGKILL)
    wait_for("its end", lambda: bench.show(victim)["processes"] == 0, 30)
    bench.wait_for_rounds(other, 50)
    wait_for("its memory", lambda: bench.show(victim)["devices"][0]["mem_used_bytes"] == 0, 30)


@pytest.mark.parametrize("way", WAYS)
def test_who_is_idle_sleeps_until_it_calls_and_others_have_its_memory(
    make_system: Callable[..., OwnSystem], programs: Path, way: str
) -> None:
    bench = Bench(make_system, programs, 2 * DEVICE, way)
    bench.create("a", "--idle-after", "1s")
    bench.start("a", "rotor", str(PROGRAM), "0")
    wait_for("the program", lambda: bench.rounds("a") == 0)
    wait_for("its sleep", lambda: bench.show("a")["residency"] == "away", 30)
    assert bench.show("a")["asleep_time"] and bench.show("a")["away_time"] and bench.events("slice.asleep")
    assert "asleep:" in call(bench.system, "slice", "ls").stdout
    bench.create("b")
    bench.start("b", "rotor", str(DEVICE - CONTEXT - 4), "1")
    wait_for("another one", lambda: bench.rounds("b") == 0)
    bench.go("a")
    wait_for("its round", lambda: bench.rounds("a") == 1, 30)
    assert bench.show("a")["asleep_time"] is None and bench.events("slice.awake")


@pytest.mark.parametrize("kind", ["managed", "ipc"])
def test_what_the_driver_cannot_move_stays_and_the_others_wait(
    make_system: Callable[..., OwnSystem], programs: Path, kind: str
) -> None:
    bench = Bench(make_system, programs, 96)
    for name in "ab":
        done = call(bench.system, "slice", "create", name, "--gpus", "0.25", "--mem", "96M", "--mem-swap")
        assert done.returncode == 0, done.stderr
    bench.start("a", "checkpoint_target", kind)
    wait_for("its contents", lambda: bench.last("a") == {"same": 1})
    bench.start("b", "rotor", "8", "1", "busy")
    wait_for("the event", lambda: len(bench.events("slice.stays")) == 1, 30)
    (text,) = bench.events("slice.stays")
    assert text.startswith("slice a stays on the device: ") and "not supported" in text
    assert bench.show("b")["residency"] == "away" and not bench.last("b")
    bench.parts["a"].stop(signal.SIGKILL)
    wait_for("the other one's turn", lambda: bench.rounds("b") > 0, 60)


@pytest.mark.parametrize(("way", "words"), [(BY_CHECKPOINT, "the driver"), (BY_HOOK, "its program")])
def test_programs_of_vgpu_run_take_turns_and_the_commands_say_which_way(
    make_system: Callable[..., OwnSystem], programs: Path, way: str, words: str
) -> None:
    bench = Bench(make_system, programs, way=way)
    for number, name in enumerate("ab"):
        bench.run(name, "rotor", str(PROGRAM), str(number), "busy")
    for _ in range(2):
        for name in "ab":
            bench.wait_for_rounds(name)
    wait_for("moves", lambda: all(bench.moves(name) >= 1 for name in "ab"), 60)
    assert bench.show("a")["rotation"]["moved_by"] == way
    assert f", by {words}" in call(bench.system, "slice", "show", "a").stdout
    assert ("stays" in call(bench.system, "slice", "show", "a").stdout) == (way == BY_HOOK)
    assert f"({way})" in call(bench.system, "doctor").stdout


@pytest.mark.parametrize(("kind", "why"), [("pool", "memory of pools"), ("ipc", "has given memory to others")])
def test_what_a_program_cannot_move_itself_stays_and_is_said(
    make_system: Callable[..., OwnSystem], programs: Path, kind: str, why: str
) -> None:
    bench = Bench(make_system, programs, way=BY_HOOK)
    bench.run("a", "movable", "has", kind)
    wait_for("its contents", lambda: bench.last("a") == {"wrong": 0})
    bench.run("b", "rotor", "8", "1", "busy")
    wait_for("the event", lambda: len(bench.events("slice.stays")) == 1, 30)
    (text,) = bench.events("slice.stays")
    assert text.startswith("slice a stays on the device: its program cannot move it: ") and why in text
    bench.go("a")
    bench.parts["a"].check()
    refused = call(bench.system, "slice", "evict", "a")
    assert refused.returncode == 8 and "checkpoint" in refused.stderr
    bench.parts["a"].stop(signal.SIGKILL)
    wait_for("the other one's turn", lambda: bench.rounds("b") > 0, 60)


def test_one_that_the_driver_has_evicted_comes_back_after_memory_moves_was_changed(
    make_system: Callable[..., OwnSystem], programs: Path
) -> None:
    """Its slice neither rotates nor sleeps, so its program answers none that asks it to move its memory."""
    bench = Bench(make_system, programs)
    bench.create("a")
    bench.start("a", "rotor", str(PROGRAM), "0", "busy")
    bench.wait_for_rounds("a")
    evicted = call(bench.system, "slice", "evict", "a")
    assert evicted.returncode == 0, evicted.stderr
    assert bench.system.daemon
    bench.system.daemon.stop(signal.SIGTERM)
    config = bench.system.folder / "vgpud.toml"
    config.write_text(config.read_text() + f'memory_moves = "{BY_HOOK}"\n')
    bench.system.start_daemon()
    assert f"({BY_HOOK})" in call(bench.system, "doctor").stdout
    resumed = call(bench.system, "slice", "resume", "a")
    assert resumed.returncode == 0, resumed.stderr
    bench.wait_for_rounds("a")


def test_the_queue_counts_what_slices_have_in_turn_once(make_system: Callable[..., OwnSystem], programs: Path) -> None:
    bench = Bench(make_system, programs, 2 * DEVICE)
    for name in "ab":
        bench.create(name, "--mem-swap")
    log = ("--log", str(bench.system.folder / "log"))
    for mib, *turns in ((DEVICE - 8,), (2 * DEVICE, "--mem-swap")):
        size = ("--gpus", "0.25", "--mem", f"{mib}M", *turns)
        done = call(bench.system, "submit", *size, "--wait", *log, "--", "true")
        assert done.returncode == 0, done.stderr
    size = ("--gpus", "0.25", "--mem", f"{DEVICE + 8}M")
    done = call(bench.system, "submit", *size, *log, "-o", "json", "--", "true")
    job_id = str(json.loads(done.stdout)["job_ids"][0])
    reason = ask(bench.system, "job", "show", job_id)["job"]["reason"]
    assert reason.startswith("no device has 0.25 GPU and ") and f"has the most free: 0.5 GPU and {DEVICE}MiB" in reason
    for name in "ab":
        assert call(bench.system, "slice", "rm", name).returncode == 0
    wait_for("its end", lambda: ask(bench.system, "job", "show", job_id)["job"]["state"] == "completed", 30)


def test_jobs_that_each_fill_the_device_run_in_turn(make_system: Callable[..., OwnSystem], programs: Path) -> None:
    """Both run, are moved to the host and back, and end with all bytes as they were."""
    bench = Bench(make_system, programs)
    lines, jobs, logs = 48, [], []
    for part in range(2):
        logs.append(bench.system.folder / f"job-{part}.log")
        size = ("--gpus", "0.25", "--mem", f"{DEVICE}M", "--mem-swap", "--log", str(logs[-1]))
        work = f"for i in $(seq {lines}); do echo; sleep 0.25; done | {programs / 'rotor'} {PROGRAM} {part}"
        done = call(bench.system, "submit", *size, "-o", "json", "--", "sh", "-c", work)
        assert done.returncode == 0, done.stderr
        jobs.append(str(json.loads(done.stdout)["job_ids"][0]))

    def show(job_id: str) -> dict[str, Any]:
        found: dict[str, Any] = ask(bench.system, "job", "show", job_id)["job"]
        return found

    wait_for("both", lambda: all(show(job_id)["state"] == "running" and show(job_id)["slices"] for job_id in jobs), 30)
    facts = ask(bench.system, "explain", jobs[1])["facts"]
    (said,) = [fact["text"] for fact in facts if fact["kind"] == "rotation"]
    assert said.startswith(f"slices with mem-swap claim {2 * DEVICE}MiB together of {DEVICE}MiB that device 0 has")
    assert "turns of up to 2 s" in said
    names = [show(job_id)["slices"][0] for job_id in jobs]
    moved: set[str] = set()

    def both_have_moved() -> bool:
        shown = [bench.show(name) for name in names]
        assert sum(one["residency"] is None for one in shown) <= 1, "they do not fit together"
        moved.update(one["name"] for one in shown if one["rotation"]["moves"] >= 2)
        return len(moved) == 2

    wait_for("moves out and back", both_have_moved, 60)
    wait_for("their ends", lambda: all(show(job_id)["state"] == "completed" for job_id in jobs), 120)
    for log in logs:
        last = json.loads(log.read_text().splitlines()[-1])
        assert (last["rounds"], last["wrong"]) == (lines, 0)
