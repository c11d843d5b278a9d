"""The daemon, or a program, is killed (SIGKILL) at each step of a move by the driver's checkpoint: no byte of a program
changes, and it comes back or is known to be dead, with all of its memory free. Whichever step it is, it is never half
way."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from tests.daemon.forked import ForkedSystem
from tests.daemon.slices import steps
from tests.daemon.slices.test_rotation_live import PROGRAM, Bench, programs  # noqa: F401  a fixture
from tests.examples import is_nightly
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.simdevice import state_page

#: generous, for busy machines
PATIENCE_S = 90.0
#: out and back, in their order; those of the helper are the calls of the driver
STEPS = (
    *("saves-leaving", "saved-leaving", "drains"),
    *("lock-begins", "lock-ends", "checkpoint-begins", "checkpoint-ends"),
    *("evict-answered", "saves-away", "saved-away", "saves-coming", "saved-coming"),
    *("restore-begins", "restore-ends", "unlock-begins", "unlock-ends"),
    *("restore-answered", "saves-resident", "saved-resident"),
)
#: at which they are killed: nightly all
KILLS = STEPS if is_nightly() else ("saved-leaving", "lock-begins", "checkpoint-ends", "saved-coming", "restore-ends")
MOVES = 200 if is_nightly() else 12
NAMES = "ab"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2400), pytest.mark.xdist_group("rotation_steps")]


class StoppingSystem(ForkedSystem):
    """Its daemon is stopping_daemon.py."""

    def start_daemon(self) -> None:
        command = [sys.executable, "-m", "tests.daemon.slices.stopping_daemon", "serve"]
        self.daemon = Part("vgpud", [*command, "--config", str(self.folder / "vgpud.toml")], self.env, self.folder)
        wait_for("the daemon", lambda: self._alive(self.daemon) and self._answers(), PATIENCE_S)


@pytest.fixture
def system_type() -> type[OwnSystem]:
    return StoppingSystem


def state_of(pid: int) -> str:
    """T: stopped, Z: it has ended, and its parent does not know yet."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class StoppedProcess:
    """A process that is at a step. victim: the slice that it moves."""

    def __init__(self, pid: int, victim: str) -> None:
        self.pid, self.victim = pid, victim

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def has_ended(self) -> bool:
        with suppress(FileNotFoundError, ProcessLookupError):
            return state_of(self.pid) == "Z"
        return True


class StepBench(Bench):
    """Two programs that each fill the device, in turn."""

    def __init__(self, make_system: Callable[..., OwnSystem], folder: Path) -> None:
        super().__init__(make_system, folder)
        self.start_rotors(NAMES)
        self.check_all("at the beginning")

    def check_all(self, what: str) -> None:
        """Each has its turn, and looks at each of its bytes."""
        for name in NAMES:
            wait_for(f"{name} ({what})", partial(self.has_rounds, name, self.rounds(name) + 2 * PROGRAM), PATIENCE_S)
            self.parts[name].check()

    def has_rounds(self, name: str, count: int) -> bool:
        return self.rounds(name) >= count

    def name_step(self, step: str) -> None:
        """The next process that comes there stops."""
        folder = self.system.folder
        for name in (steps.TAKEN_FILE, steps.STOPPED_FILE):
            (folder / name).unlink(missing_ok=True)
        new = folder / f"{steps.WANTED_FILE}.new"
        new.write_text(step)
        new.rename(folder / steps.WANTED_FILE)

    def wait_for_stop(self) -> StoppedProcess:
        at = self.system.folder / steps.STOPPED_FILE
        wait_for("a process at the step", at.exists, PATIENCE_S)
        pid, owner = at.read_text().split()
        wait_for("its stop", lambda: state_of(int(pid)) == "T")
        pids = {str(self.last(name)["pid"]): name for name in NAMES}
        return StoppedProcess(int(pid), pids.get(owner, owner))

    def count_moves(self) -> int:
        """Out or back, of all daemons together."""
        passed = (self.system.folder / steps.PASSED_FILE).read_text().split()
        return passed.count("evict-answered") + passed.count("restore-answered")

    def has_moves(self, count: int) -> bool:
        return self.count_moves() >= count

    def restart_daemon(self) -> None:
        """It is killed, and what it has started lives on, as under a service manager that ends the daemon alone."""
        assert self.system.daemon
        self.system.daemon.kill()
        self.system.start_daemon()

    def kill_daemon_at(self, step: str, *later_steps: str) -> None:
        """later_steps: those that it comes by when it starts again, one after the other; it is killed there, too."""
        self.name_step(step)
        stopped = [self.wait_for_stop()]
        for again in later_steps:
            self.name_step(again)
            self.restart_daemon()
            stopped.append(self.wait_for_stop())
        self.restart_daemon()
        for one in stopped:  # a helper that outlives its daemon would move what the next one has found where it is
            wait_for(f"the end of what was stopped at {step}", one.has_ended)
        self.check_all(f"the daemon was killed at {step}")

    def kill_program_at(self, step: str) -> None:
        self.name_step(step)
        stopped = self.wait_for_stop()
        victim, pid = stopped.victim, self.last(stopped.victim)["pid"]
        os.kill(pid, signal.SIGKILL)
        stopped.resume()
        self.check_dead(victim, pid, step)
        self.start(victim, "rotor", str(PROGRAM), str(NAMES.index(victim)), "busy")
        wait_for(f"a new program ({step})", lambda: self.rounds(victim) >= 0, PATIENCE_S)
        self.check_all(f"a program was killed at {step}")

    def check_dead(self, victim: str, pid: int, step: str) -> None:
        """Nothing of a program is left; the other one works."""
        wait_for(f"its end ({step})", lambda: self.show(victim)["processes"] == 0, PATIENCE_S)
        wait_for(f"its memory ({step})", lambda: self.show(victim)["devices"][0]["mem_used_bytes"] == 0, PATIENCE_S)
        wait_for(f"the device's memory ({step})", lambda: pid not in self.held_bytes(), PATIENCE_S)
        (other,) = set(NAMES) - {victim}
        self.wait_for_rounds(other, 2 * PROGRAM, PATIENCE_S)

    def held_bytes(self) -> dict[int, int]:
        """What programs have of the device, by pid."""
        page = state_page.read(self.system.sim_dir / state_page.PAGE_NAME)
        return page.devices[0].process_used_bytes

    def check_end(self) -> None:
        """All end: the device is empty."""
        for part in self.parts.values():
            part.stop(signal.SIGKILL)
        wait_for("an empty device", lambda: not any(self.held_bytes().values()), PATIENCE_S)
        wait_for("their ends", lambda: not any(self.show(name)["processes"] for name in NAMES), PATIENCE_S)
        assert not self.events("slice.broken")


@pytest.fixture
def bench(make_system: Callable[..., OwnSystem], programs: Path) -> Iterator[StepBench]:  # noqa: F811
    """Everything of it ends, also what was stopped."""
    made = StepBench(make_system, programs)
    yield made
    daemon = made.system.daemon
    if daemon and daemon.running:
        daemon.process.send_signal(signal.SIGCONT)


def test_a_daemon_that_is_killed_at_a_step_leaves_no_program_half_way(bench: StepBench) -> None:
    for step in KILLS:
        bench.kill_daemon_at(step)
    bench.check_end()


def test_a_program_that_is_killed_at_a_step_leaves_nothing(bench: StepBench) -> None:
    for step in KILLS:
        bench.kill_program_at(step)
    bench.check_end()


@pytest.mark.parametrize("step", ["lock-ends", "checkpoint-ends"] if is_nightly() else ["lock-ends"])
def test_a_daemon_that_is_killed_again_while_it_settles_leaves_no_program_half_way(bench: StepBench, step: str) -> None:
    bench.kill_daemon_at(step, "settle-begins")
    bench.check_end()


def test_no_byte_is_another_one_after_many_moves_under_kills(bench: StepBench) -> None:
    chance = random.Random(39)
    while bench.count_moves() < MOVES:
        kill = bench.kill_daemon_at if chance.random() < 0.5 else bench.kill_program_at
        kill(chance.choice(STEPS))
        before, more = bench.count_moves(), chance.randrange(6)
        wait_for("moves", partial(bench.has_moves, before + more), PATIENCE_S)
    bench.check_all(f"after {MOVES} moves")
    bench.check_end()
