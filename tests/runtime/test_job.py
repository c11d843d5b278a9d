"""vgpu-job: as whom a job runs, with what, how it ends by itself, also with sanitizers and without cgroups."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.runtime.supervisors import ENVIRONMENT, USER, World, is_alive, wait_until
from vgpud.jobs import messages as wire

ROOT = Path(__file__).resolve().parents[2]
pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="only root can run others' jobs")]


# ---- as whom, with what ----


def test_ids_groups_and_no_way_back(world: World) -> None:
    code = "import os; print(os.getresuid(), os.getresgid(), sorted(os.getgroups()))\ntry: os.setuid(0)\n"
    code += "except PermissionError: print('no way back')"
    assert world.run("python3", "-c", code, groups=(USER, 777, 4)).exit_code == 0
    assert world.log() == f"{(USER,) * 3} {(USER,) * 3} [4, 777, {USER}]\nno way back\n"


def test_no_capability_is_left(world: World) -> None:
    """Neither what is inherited, nor what securebits would keep over a change of user; the bounds are sudo's affair."""
    attempt = world.attempt("grep", "^Cap[^B]", "/proc/self/status")
    kept = ["setpriv", "--inh-caps", "+chown,+sys_admin", "--ambient-caps", "+chown", "--securebits"]
    running = world.start(attempt, under=[*kept, "+no_setuid_fixup"])
    assert running.wait().exit_code == 0
    assert [line.split()[1] for line in world.log().split("\n")[:-1]] == ["0" * 16] * 4


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the system call's number is x86_64's")
def test_no_keyring_of_the_daemon_is_left(world: World) -> None:
    """Root's session keyring would be possessed by the job, and its keys be readable by that."""
    note = world.folder / "keyring"
    join = (
        f"import ctypes, os, sys; key = ctypes.CDLL(None).syscall(250, 1, 0); open({str(note)!r}, 'w').write(str(key));"
    )
    join += "os.execvp(sys.argv[1], sys.argv[1:])"
    ask = "import ctypes; print(ctypes.CDLL(None).syscall(250, 0, -3, 0))"  # keyctl(KEYCTL_GET_KEYRING_ID, session)
    running = world.start(world.attempt("python3", "-c", ask), under=[sys.executable, "-c", join])
    assert running.wait().exit_code == 0
    if int(note.read_text()) < 0:
        pytest.skip("no keyrings here")
    assert int(world.log()) != int(note.read_text())


def test_no_group_of_the_daemon_is_left(world: World) -> None:
    world.run("id", "-G", groups=())
    assert world.log() == f"{USER}\n"


def test_environment_exactly(world: World) -> None:
    env = {"PATH": "/usr/bin:/bin", "EMPTY": "", "LINES": "a\nb=c", "BYTES": "\udcff"}
    world.run("cat", "/proc/self/environ", env=env)
    wanted = b"PATH=/usr/bin:/bin\0EMPTY=\0LINES=a\nb=c\0BYTES=\xff\0" + f"VGPU_JOB={world.job_id}.1\0".encode()
    assert (world.home / f"log{world.job_id}").read_bytes() == wanted


def test_program_is_found_in_the_jobs_own_path(world: World) -> None:
    tools = world.home / "tools"
    tools.mkdir()
    (tools / "mine").write_text("#!/bin/sh\necho mine\n")
    (tools / "mine").chmod(0o755)
    assert world.run("mine", env={"PATH": str(tools)}).exit_code == 0
    assert world.log() == "mine\n"


def test_directory_umask_and_log(world: World) -> None:
    inner = world.home / "inner"
    inner.mkdir()
    world.run("sh", "-c", "pwd; umask", directory=str(inner), umask=0o027)
    log = world.home / f"log{world.job_id}"
    assert log.read_text() == f"{inner}\n0027\n"
    assert (log.stat().st_uid, log.stat().st_gid, log.stat().st_mode & 0o777) == (USER, USER, 0o640)


def test_log_is_added_to(world: World) -> None:
    log = str(world.home / "one")
    for word in ("first", "second"):
        world.run("echo", word, log=log)
    assert Path(log).read_text() == "first\nsecond\n"


def test_limits(world: World) -> None:
    limits = (("nofile", 64, 128), ("core", 0, 0), ("stack", 1 << 20, -1), ("nproc", 500, 500))
    names = ["NOFILE", "CORE", "STACK", "NPROC"]
    code = f"import resource as r; print([r.getrlimit(getattr(r, 'RLIMIT_' + n)) for n in {names!r}])"
    assert world.run("python3", "-c", code, limits=limits).exit_code == 0
    assert world.log() == f"{[(soft, hard) for _, soft, hard in limits]}\n"


def test_limits_cannot_be_raised_again(world: World) -> None:
    code = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, 256))"
    assert world.run("python3", "-c", code, limits=(("nofile", 64, 128),)).exit_code == 1
    assert "not allowed to raise maximum limit" in world.log()


def test_nothing_is_inherited(world: World) -> None:
    """Neither descriptors, nor signals, nor a session, nor our place when memory runs out."""
    code = "import os, signal as s; print(sorted(os.listdir('/proc/self/fd'))[:-1], os.getsid(0) == os.getpid(),"
    code += " open('/proc/self/oom_score_adj').read().strip(), s.pthread_sigmask(s.SIG_BLOCK, ()),"
    code += " [n for n in range(1, 32) if s.getsignal(n) is s.SIG_IGN], os.readlink('/proc/self/fd/0'))"
    inherited = os.open("/etc/passwd", os.O_RDONLY)

    def change_signals() -> None:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})

    attempt = world.attempt("python3", "-c", code)
    running = world.start(attempt, pass_fds=[inherited], preexec_fn=change_signals)
    os.close(inherited)
    assert running.wait().exit_code == 0
    # python's own: it ignores SIGPIPE and SIGXFSZ
    python = [int(signal.SIGPIPE), int(signal.SIGXFSZ)]
    assert world.log() == f"['0', '1', '2'] True 0 set() {python} /dev/null\n"


def test_supervisor_is_out_of_reach(world: World) -> None:
    """Its user can neither signal nor trace it, nor read what it knows."""
    code = "import ctypes, os\nparent = os.getppid()\n"
    for attack in ("os.kill(parent, 9)", "open(f'/proc/{parent}/environ').read()", "os.listdir(f'/proc/{parent}/fd')"):
        code += f"try:\n {attack}\n print('done')\nexcept PermissionError: print('refused')\n"
    code += "print(ctypes.CDLL(None).ptrace(16, parent, 0, 0))"  # PTRACE_ATTACH
    assert world.run("python3", "-c", code).exit_code == 0
    assert world.log() == "refused\nrefused\nrefused\n-1\n"


def test_setuid_programs_are_ended_too(world: World) -> None:
    """PR_SET_NO_NEW_PRIVS is off, as it is in the user's shell; what is root's stays in the job."""
    program = world.folder / "setuid"
    source = world.folder / "setuid.c"
    source.write_text('#include <stdio.h>\n#include <unistd.h>\nint main(void) { setuid(0); puts("on"); pause(); }')
    subprocess.run(["gcc", "-static", "-o", str(program), str(source)], check=True)
    program.chmod(0o4755)
    running = world.start(world.attempt("sh", "-c", f"{program} & echo $! > pids; wait"))
    pid = world.pids("pids")[0]
    wait_until("root's process", lambda: Path(f"/proc/{pid}/status").read_text().find("Uid:\t0\t0") > 0)
    running.stop(0)
    assert running.wait().is_stopped
    assert not is_alive(pid)


# ---- files of others ----


def test_log_leads_nowhere_that_the_user_may_not_write(world: World) -> None:
    precious = world.folder / "precious"
    precious.write_text("precious")
    (world.home / "link").symlink_to(precious)
    result = world.run("echo", "x", log=str(world.home / "link"))
    assert (result.exit_code, precious.read_text()) == (126, "precious")
    assert result.why == f"cannot write the log {world.home}/link as uid {USER}: Permission denied"


def test_log_in_roots_directory_is_not_made(world: World) -> None:
    result = world.run("echo", "x", log=str(world.jobs / "log"))
    assert result.exit_code == 126 and "Permission denied" in result.why
    assert not (world.jobs / "log").exists()


@pytest.mark.parametrize(("mode", "reason"), [(0o700, "Permission denied"), (None, "No such file or directory")])
def test_directory_that_cannot_be_entered(world: World, mode: int | None, reason: str) -> None:
    closed = world.folder / "closed"
    if mode is not None:
        closed.mkdir(mode=mode)
    result = world.run("true", directory=str(closed))
    assert result.exit_code == 126
    assert result.why == f"cannot enter directory {closed} as uid {USER}: {reason}"


def test_log_that_no_process_reads_delays_no_process(world: World) -> None:
    """A pipe without a reader: opening it waits, and is the job's own wait."""
    os.mkfifo(world.home / "pipe", 0o666)
    (world.home / "pipe").chmod(0o666)
    running = world.start(world.attempt("true", log=str(world.home / "pipe")))
    running.stop(0)
    assert running.wait().signal in (signal.SIGTERM, signal.SIGKILL)


# ---- how it ends ----


@pytest.mark.parametrize("code", [0, 1, 3, 125, 255])
def test_exit_codes(world: World, code: int) -> None:
    result = world.run("sh", "-c", f"exit {code}")
    assert (result.exit_code, result.signal, result.why, result.is_stopped) == (code, 0, "", False)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM, signal.SIGHUP])
def test_signals(world: World, number: signal.Signals) -> None:
    result = world.run("sh", "-c", f"kill -{int(number)} $$", limits=(("core", 0, 0),))
    assert (result.exit_code, result.signal) == (128 + number, number)


def test_commands_that_cannot_be_run(world: World) -> None:
    bad = world.home / "bad"
    bad.write_text("#!/no/interpreter\n")
    bad.chmod(0o755)
    rows = {
        "nosuch": (127, "command 'nosuch' not found: check the name and PATH"),
        "/no/such": (127, "command '/no/such' not found: check the path"),
        "/etc/passwd": (126, "cannot execute '/etc/passwd': Permission denied"),
        "/": (126, "cannot execute '/': Permission denied"),
        str(bad): (126, f"cannot execute '{bad}': its interpreter was not found"),
        "./bad": (126, "cannot execute './bad': its interpreter was not found"),
        "a\nb\x1b[1m": (127, "command 'a b [1m' not found: check the name and PATH"),
    }
    for command, (code, why) in rows.items():
        result = world.run(command)
        assert (result.exit_code, result.why) == (code, why), command


def test_huge_words(world: World) -> None:
    """Up to what the kernel takes; beyond it is a sentence."""
    assert world.run("sh", "-c", "echo ${#A}", env=ENVIRONMENT | {"A": "x" * 130_000}).exit_code == 0
    assert world.log() == "130000\n"
    result = world.run("true", "y" * (1 << 20))
    assert (result.exit_code, result.why) == (126, "cannot execute 'true': Argument list too long")


def test_usage(world: World) -> None:
    began = time.time_ns()  # the result's times are those of the wall's clock
    code = "import time; x = bytearray(60 << 20)\nwhile time.process_time() < 0.3: pass"
    result = world.run("python3", "-c", code)
    assert result.cpu_ns >= 300_000_000
    assert 60 << 20 <= result.ram_peak_bytes < 1 << 30
    assert began - 10**9 <= result.began_wall_ns <= result.ended_wall_ns - 300_000_000 <= time.time_ns()


def test_attempt_runs_once(world: World) -> None:
    attempt = world.attempt("sh", "-c", "echo once >> count; sleep 0.3")
    first, second = world.start(attempt), world.start(attempt)
    assert isinstance(first.answer, wire.Started) and second.answer is None
    first.wait()
    third = world.start(attempt)
    assert third.answer is None
    assert (world.home / "count").read_text() == "once\n"
    assert [entry.name for entry in world.jobs.iterdir()] == [attempt.name]


def test_two_at_once_run_once(world: World) -> None:
    """Many that begin together: one does."""
    attempt = world.attempt("sh", "-c", "echo once >> count")
    said = wire.instructions(attempt, str(world.jobs))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(8) as pool:
        talks = list(pool.map(lambda _n: world.talk(said), range(8)))
    for process, _, _ in talks:
        process.wait(60)
    assert sorted(answer.split(b" ")[0] for _, answer, _ in talks) == [b"begun\n"] * 7 + [b"ok"]
    assert (world.home / "count").read_text() == "once\n"


# ---- gangs ----


def members(world: World, *scripts: str) -> tuple[wire.Member, ...]:
    return tuple(
        wire.Member(("sh", "-c", script), ENVIRONMENT | {"RANK": str(rank)}, str(world.home / f"rank{rank}"))
        for rank, script in enumerate(scripts)
    )


def test_gang(world: World) -> None:
    result = world.run(members=members(world, *["echo $RANK"] * 3))
    assert (result.exit_code, result.member_codes) == (0, (0, 0, 0))
    assert [(world.home / f"rank{rank}").read_text() for rank in range(3)] == ["0\n", "1\n", "2\n"]


def test_gang_ends_with_the_first_that_fails(world: World) -> None:
    result = world.run(members=members(world, "sleep 1000", "exit 5", "sleep 1000"))
    assert result.exit_code == 5 and result.member_codes == (143, 5, 143)
    assert result.why == "member 1 exited with code 5; the other members of its gang were ended"


def test_gang_of_which_one_cannot_start(world: World) -> None:
    mixed = (*members(world, "sleep 1000"), wire.Member(("nosuch",), ENVIRONMENT))
    result = world.run(members=mixed)
    assert result.exit_code == 127 and result.why.startswith("command 'nosuch' not found")


# ---- limits of cgroups ----


def controllers_are_there() -> bool:
    mounts = Path("/proc/self/mountinfo").read_text()
    unified = Path("/sys/fs/cgroup/cgroup.controllers")
    return (unified.exists() and "memory" in unified.read_text()) or " - cgroup cgroup rw,memory" in mounts


@pytest.mark.skipif(not controllers_are_there(), reason="no memory controller here")
def test_cpu_and_memory_limits(world: World) -> None:
    running = world.start(world.attempt("python3", "-c", "x = bytearray(200 << 20)", cpu_milli=500, ram_bytes=64 << 20))
    assert isinstance(running.answer, wire.Started) and not running.answer.note
    result = running.wait()
    assert (result.exit_code, result.why) == (137, "out of memory: the job reached its limit of 64 MiB (--ram)")


@pytest.mark.skipif(not controllers_are_there(), reason="no memory controller here")
def test_a_child_that_runs_out_of_memory_leaves_a_trace(world: World) -> None:
    """Also where the job itself ends well: its work may be incomplete."""
    big = "python3 -c 'x = bytearray(200 << 20)'"
    result = world.run("sh", "-c", f"{big}; {big}; exit 0", ram_bytes=64 << 20)
    said = "out of memory: the kernel ended 2 of the job's processes at its limit of 64 MiB (--ram)"
    assert (result.exit_code, result.why) == (0, said)


@pytest.mark.skipif(not controllers_are_there(), reason="no cpu controller here")
def test_cpu_limit_holds(world: World) -> None:
    code = "import time\nend = time.monotonic() + 1\nwhile time.monotonic() < end: pass\nprint(time.process_time())"
    world.run("python3", "-c", code, cpu_milli=200)
    assert float(world.log()) < 0.6


def test_limits_that_cannot_be_had_are_said(builds: Mapping[str, Path]) -> None:
    world = World(builds["sanitized"], "no-cgroups")
    try:
        running = world.start(world.attempt("true", cpu_milli=500, ram_bytes=1 << 30))
        assert isinstance(running.answer, wire.Started)
        for words in ("no cgroup can be created here", "--cpus is not enforced", "--ram is not enforced"):
            assert words in running.answer.note
        assert running.wait().exit_code == 0
    finally:
        world.close()


# ---- its requests ----


def test_invalid_instructions(world: World) -> None:
    good = wire.instructions(world.attempt("true"), str(world.jobs))
    rows = {
        good[:-1]: b"no the instructions end too early",
        good[: len(good) // 2]: b"no the instructions end too early",
        b"": b"no the instructions end too early",
        good + b"x\0y\0": b"no the instructions continue after their end",
        good.replace(b"uid\x0012345", b"uid\x00-1"): b"no invalid line in the instructions: uid=-1",
        good.replace(b"uid\x0012345", b"uid\x004294967295"): b"no invalid line in the instructions: uid=4294967295",
        good.replace(b"name\x00", b"name\x00../"): b"no invalid line in the instructions: name=../",
        good.replace(b"umask\x0018", b"umask\x00999"): b"no invalid line in the instructions: umask=999",
        good.replace(b"arg\x00true", b"what\x00true"): b"no invalid line in the instructions: what=true",
        good.replace(b"arg\x00true\0", b""): b"no member 0 has no command",
        good.replace(b"gid\x0012345\0", b""): b"no the instructions have no uid or gid",
    }
    for said, answer in rows.items():
        process, answered, errors = world.talk(said)
        assert process.wait(60) == 1 and answered.startswith(answer), (said, answered)
        assert not errors.read_text()
    assert not list(world.jobs.iterdir())


def test_only_a_daemon_of_its_user_is_served(world: World) -> None:
    """Run by a user, or with a terminal, it does nothing; a stranger on its socket is sent away."""
    for user in (0, USER):
        done = subprocess.run([world.program], user=user, stdin=subprocess.DEVNULL, capture_output=True, check=False)
        assert done.returncode == 1 and b"only vgpud starts vgpu-job" in done.stdout
    ours, theirs = socket.socketpair()  # root's ends, in a user's hands
    with ours, theirs:
        ours.sendall(wire.instructions(world.attempt("true"), str(world.jobs)))
        ours.shutdown(socket.SHUT_WR)
        done = subprocess.run([world.program], user=USER, stdin=theirs, capture_output=True, check=False)
    assert done.returncode == 1 and f"uid 0 may not start jobs of uid {USER}'s daemon".encode() in done.stdout


def test_users_supervisor_runs_only_the_users_jobs(world: World) -> None:
    """A daemon that is not root's: its own user, and no other one."""
    os.chown(world.jobs, USER, USER)
    world.jobs.chmod(0o700)
    own = world.start(world.attempt("id", "-u"), user=USER, group=USER, extra_groups=[])
    assert own.wait().exit_code == 0 and world.log() == f"{USER}\n"
    other = world.start(world.attempt("id", uid=1, gid=1), user=USER, group=USER, extra_groups=[])
    result = other.wait()
    assert (result.exit_code, result.why) == (126, "cannot become uid 1: Operation not permitted")
