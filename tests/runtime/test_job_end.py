"""vgpu-job: jobs end on request, and no process of a job is left, whatever they do. Also without cgroups."""

from __future__ import annotations

import ctypes
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.supervisors import ENVIRONMENT, USER, Running, World, is_alive, wait_until
from vgpud.jobs import messages as wire

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root can run others' jobs")]

STUBBORN = "trap '' TERM INT HUP; echo $$ >> pids; while :; do sleep 0.05; done"


def test_stop_is_sigterm_first(any_world: World) -> None:
    running = any_world.start(
        any_world.attempt("sh", "-c", "trap 'exit 9' TERM; echo $$ > pids; while :; do sleep 0.05; done")
    )
    any_world.pids("pids")
    running.stop(30)
    result = running.wait()
    assert (result.exit_code, result.is_stopped) == (9, True)


def test_who_is_stopped_can_listen(any_world: World) -> None:
    """A stopped process still gets its SIGTERM."""
    script = "trap 'exit 9' TERM; echo $$ > pids; kill -STOP $$; while :; do sleep 0.05; done"
    running = any_world.start(any_world.attempt("sh", "-c", script))
    pid = any_world.pids("pids")[0]
    wait_until("its stop", lambda: ") T " in Path(f"/proc/{pid}/stat").read_text())
    running.stop(30)
    assert running.wait().exit_code == 9


#: saves for longer than leftovers have, as programs do at SIGTERM
SAVE = """
import os, pathlib, signal, sys, time
def save(*_):
    time.sleep(3)
    pathlib.Path("saved" + os.environ.get("MEMBER", "")).touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, save)
with open("pids", "a") as pids:
    print(os.getpid(), file=pids)
time.sleep(1000)
"""
#: job scripts that end at SIGTERM, or pass it on
ABOVE = {
    "sh": "python3 save.py; echo done",
    "bash": "bash -c 'python3 save.py; echo done'",
    "background": "python3 save.py & wait",
    "setsid": "setsid python3 save.py; echo done",
    "python": 'exec python3 -c \'import subprocess; subprocess.run(["python3", "save.py"])\'',
    "make": "printf 'all:\\n\\tpython3 save.py; echo done\\n' > rules; exec make -f rules",
}


def _start_saving(world: World, parent_type: str, **fields: Any) -> Running:
    (world.home / "save.py").write_text(SAVE)
    return world.start(world.attempt("sh", "-c", ABOVE[parent_type], **fields))


@pytest.mark.parametrize("parent_type", ABOVE)
def test_who_saves_below_a_job_script_has_the_whole_grace(world: World, parent_type: str) -> None:
    """Its script ends at SIGTERM: only what a script leaves behind that ends by itself gets less."""
    running = _start_saving(world, parent_type)
    world.pids("pids")
    running.stop(60)
    assert running.wait().is_stopped
    assert (world.home / "saved").exists()


def test_who_saves_below_a_script_has_it_without_cgroups(any_world: World) -> None:
    running = _start_saving(any_world, "sh")
    any_world.pids("pids")
    running.stop(60)
    assert running.wait().is_stopped
    assert (any_world.home / "saved").exists()


def test_a_gang_of_scripts_has_the_grace_when_one_fails(world: World) -> None:
    """Below the one that has failed as well."""
    (world.home / "save.py").write_text(SAVE)
    fails = "python3 save.py & until [ -e fail ]; do sleep 0.01; done; exit 3"
    scripts = (fails, ABOVE["bash"], ABOVE["sh"])
    members = tuple(
        wire.Member(("sh", "-c", script), {**ENVIRONMENT, "MEMBER": str(number)})
        for number, script in enumerate(scripts)
    )
    running = world.start(world.attempt(members=members, grace_ms=60_000))
    world.pids("pids", 3)
    (world.home / "fail").touch()
    result = running.wait()
    assert (result.exit_code, result.is_stopped) == (3, False)
    assert sorted(path.name for path in world.home.glob("saved*")) == ["saved0", "saved1", "saved2"]


def test_who_ignores_the_stop_below_a_script_ends_with_the_grace(any_world: World) -> None:
    running = any_world.start(any_world.attempt("sh", "-c", 'sh -c "$0"; echo done', STUBBORN))
    pid = any_world.pids("pids")[0]
    running.stop(0.3)
    assert running.wait().is_stopped
    assert not is_alive(pid)


def test_stop_kills_who_does_not_listen(any_world: World) -> None:
    """Also one that has forked twice into a session of its own, and one that is stopped."""
    script = (
        f"setsid sh -c \"{STUBBORN.replace('$', chr(92) + '$')}\" & sh -c 'echo $$ >> pids; kill -STOP $$' & {STUBBORN}"
    )
    running = any_world.start(any_world.attempt("sh", "-c", f"(({script}) &) ; {STUBBORN}"))
    pids = any_world.pids("pids", 4)
    running.stop(0.3)
    result = running.wait()
    assert (result.exit_code, result.signal, result.is_stopped) == (137, 9, True)
    assert not [pid for pid in pids if is_alive(pid)]


def test_what_a_command_leaves_behind_ends_with_it(any_world: World) -> None:
    result = any_world.run(
        "sh", "-c", "setsid sh -c 'echo $$ >> pids; exec sleep 1000' & while ! [ -s pids ]; do :; done"
    )
    assert (result.exit_code, result.is_stopped) == (0, False)
    assert not is_alive(any_world.pids("pids")[0])


def test_who_lives_on_without_its_first_thread_ends_too(any_world: World) -> None:
    """The kernel calls such a process a zombie, and it runs all the same."""
    code = "import ctypes, os, threading, time\nlibc = ctypes.CDLL(None)\n"
    code += "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
    code += "libc.syscall({'x86_64': 60, 'aarch64': 93}[os.uname().machine], 0)"  # exit() of this thread alone
    script = f'python3 -c "{code}" & echo $! > pids; until grep -q "State:.Z" /proc/$!/status; do sleep 0.01; done'
    assert any_world.run("sh", "-c", script).exit_code == 0
    assert not Path(f"/proc/{any_world.pids('pids')[0]}").exists()


def test_who_is_traced_by_another_delays_no_other(any_world: World) -> None:
    """It has ended, but only its tracer, a debugger that waits for its user, can say so to its parent."""
    ptrace_seize = 0x4206
    script = "setsid sleep 1000 & echo $! > pids; until [ -e traced ]; do sleep 0.01; done"
    running = any_world.start(any_world.attempt("sh", "-c", script))
    pid = any_world.pids("pids")[0]
    assert not ctypes.CDLL(None).ptrace(ptrace_seize, pid, None, None)
    try:
        (any_world.home / "traced").touch()
        assert running.wait().exit_code == 0
        assert not is_alive(pid)
    finally:
        os.waitpid(pid, 0)


#: `cgroups`: (where its hierarchy is mounted, path there) of each that the job has put this process in
CGROUPS = """
cgroups, mounts = [], [line.split() for line in open("/proc/self/mountinfo")]
for _, name, path in [line.strip().split(":") for line in open("/proc/self/cgroup") if "vgpud-jobs" in line]:
    for mount in mounts:
        kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
        if kind == ("cgroup" if name else "cgroup2") and (not name or name in options):
            cgroups.append((mount[4], path))
"""
NEST = """
import os, signal, subprocess, sys
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
made = [mount + path + "/nested" for mount, path in cgroups]
for cgroup in made:
    os.mkdir(cgroup)
child = subprocess.Popen([sys.executable, "-c", sys.argv[1], *made])
while not os.path.exists("told"):
    pass
"""
NESTED = """
import os, pathlib, signal, sys, time
def told(*_): pathlib.Path("heard").touch(); sys.exit(0)
signal.signal(signal.SIGTERM, told)
for cgroup in sys.argv[1:]:
    pathlib.Path(cgroup, "cgroup.procs").write_text("0")
pathlib.Path("told").touch()
time.sleep(1000)
"""


@pytest.mark.parametrize("kind", ["cgroups", "old-cgroups"])
def test_who_is_in_a_cgroup_of_its_own_ends_too(builds: Mapping[str, Path], kind: str) -> None:
    """Which a job of root's can make, below the one that it is in."""
    world = World(builds["sanitized"], kind)
    try:
        assert world.run("python3", "-c", CGROUPS + NEST, NESTED, uid=0, gid=0, groups=()).exit_code == 0, world.log()
        assert (world.home / "heard").exists()
    finally:
        world.close()


LEAVE = """
import os, pathlib, sys, time
pids = pathlib.Path(sys.argv[1])
if not os.fork():
    os.setsid()
    for mount, path in cgroups:  # to where the supervisors are: a cgroup above others may take no processes
        base = mount + path.split("vgpud-jobs")[0] + "vgpud-jobs/supervisors"
        pathlib.Path(base, "cgroup.procs").write_text("0")
    pids.write_text(f"{os.getpid()}\\n")
    time.sleep(300)
    os._exit(0)
while not pids.exists():
    pass
"""


@pytest.mark.usefixtures("heir")
def test_an_engines_helper_that_ends_with_the_container_is_reaped(world: World) -> None:
    """It has left the job's cgroups, as podman's has, and only the cleanup ends it."""
    pids, cleanup = world.home / "pids", world.folder / "cleanup"
    cleanup.write_text(f"#!/bin/sh\nexec kill -9 $(cat {pids})\n")
    cleanup.chmod(0o755)
    given = {"client": True, "cleanup": (str(cleanup),)}
    assert world.run("python3", "-c", CGROUPS + LEAVE, str(pids), uid=0, gid=0, groups=(), **given).exit_code == 0, (
        world.log()
    )
    assert not Path(f"/proc/{world.pids('pids')[0]}").exists()


def test_who_has_ended_is_not_stopped(any_world: World) -> None:
    """Its command has completed, and only what it left behind is ended sooner: it need not be run again."""
    script = 'sh -c "$0" & while ! [ -s pids ]; do :; done'
    stubborn = any_world.start(any_world.attempt("sh", "-c", script, STUBBORN))
    pid = any_world.pids("pids")[0]
    supervisor = stubborn.answer
    assert isinstance(supervisor, wire.Started)
    wait_until("its command's end", lambda: Path(f"/proc/{pid}/stat").read_text().split()[3] == str(supervisor.pid))
    stubborn.stop(0)
    result = stubborn.wait()
    assert (result.exit_code, result.is_stopped) == (0, False)
    assert not is_alive(pid)


@pytest.fixture
def heir() -> Iterator[None]:
    """This process gets what a supervisor leaves behind, and does not reap it: zombies stay to be seen."""
    set_child_subreaper = 36
    libc = ctypes.CDLL(None)
    libc.prctl(set_child_subreaper, 1, 0, 0, 0)
    yield
    libc.prctl(set_child_subreaper, 0, 0, 0, 0)


def processes_of(uid: int) -> int:
    """How many there are, zombies too."""
    found = subprocess.run(["ps", "-o", "pid=", "-u", str(uid)], capture_output=True, text=True, check=False)
    return len(found.stdout.split())


@pytest.mark.usefixtures("heir")
def test_fork_bomb(any_world: World) -> None:
    """As many as it may have, and none after the end. Its user is this test's alone: limits count by user."""
    most, bomber = 60, USER + os.getpid()
    any_world.home.chmod(0o777)
    bomb = "import os, signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    bomb += "while True:\n try: os.fork()\n except OSError: pass"
    limits = (("nproc", most, most),)
    attempt = any_world.attempt("python3", "-c", bomb, uid=bomber, pids_max=most, limits=limits)
    running = any_world.start(attempt)
    wait_until("the bomb", lambda: processes_of(bomber) > most // 2)
    assert processes_of(bomber) <= most
    running.stop(0)
    assert running.wait().exit_code == 137
    wait_until("the end of all", lambda: not processes_of(bomber))


@pytest.mark.usefixtures("heir")
@pytest.mark.parametrize("session", ["its own", "the parent's"])
def test_who_forks_and_ends_again_and_again_is_caught(any_world: World, session: str) -> None:
    """Gone before a reader of its pid can look at it. It ends by itself, long after this test has failed."""
    most, runner = 60, USER + 1 + os.getpid()
    any_world.home.chmod(0o777)
    code = "import os, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nend = time.monotonic() + 150\n"
    code += "open('begun', 'w').close()\nwhile time.monotonic() < end:\n try:\n  if os.fork(): os._exit(0)\n"
    code += "  os.setsid()\n" if session == "its own" else ""
    code += " except OSError: pass"
    limits = (("nproc", most, most),)
    running = any_world.start(any_world.attempt("python3", "-c", code, uid=runner, pids_max=most, limits=limits))
    wait_until("its begin", (any_world.home / "begun").exists)
    running.stop(0)
    assert running.wait().exit_code in (0, 137)
    wait_until("the end of all", lambda: not processes_of(runner))


def test_stop_can_be_made_shorter_but_not_longer(world: World) -> None:
    running = world.start(world.attempt("sh", "-c", STUBBORN))
    world.pids("pids")
    running.stop(1000)
    time.sleep(0.05)
    running.stop(0.1)
    time.sleep(0.05)
    running.stop(1000)
    assert running.wait().exit_code == 137


def test_first_process_goes_with_a_supervisor_that_is_killed(any_world: World) -> None:
    running = any_world.start(any_world.attempt("sh", "-c", STUBBORN))
    pid = any_world.pids("pids")[0]
    running.process.kill()
    running.process.wait()
    wait_until("its end", lambda: not is_alive(pid))
    assert not (running.path / "result").exists()
    begun = wire.parse_begun((running.path / "begun").read_text())
    assert begun.pid == running.process.pid
    assert bool(begun.cgroup) == (any_world.world != "no-cgroups")
