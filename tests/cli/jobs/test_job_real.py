"""The queue's commands with the real daemon, real supervisors and two simulated devices: the whole path."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.own_system import own_system
from vgpud import paths
from vgpud.cli.common.options import Settings
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.cli.jobs.wait import changes
from vgpud.v1alpha1 import vgpud_pb2 as pb

GIB = 1 << 30
OTHER_UID = 65534
BUILT = all((paths.sim_lib_dir() / name).exists() for name in ("vgpu-simd", "libcuda.so.1"))
pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(200),
]
#: the command line as another user, who may not read where it is installed
AS_USER = (
    "import os, grpc_status.rpc_status, vgpud.cli.common.client, vgpud.view.job_tables, vgpud.cli.jobs.wait\n"
    "import vgpud.cli.jobs.submit, vgpud.cli.jobs.job, vgpud.cli.jobs.queue, vgpud.cli.jobs.usage\n"
    "import vgpud.cli.jobs.explain, textwrap, google.rpc.error_details_pb2\n"
    "from vgpud.cli.main import main\n"
    "os.setgroups([4]); os.setgid(65534); os.setuid(65534); main()"
)
#: what a program sees of its device, and of itself
PROGRAM = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
total, free, context = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
assert cuda.cuInit(0) == 0
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
assert cuda.cuCtxSetCurrent(context) == 0
assert cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)) == 0
print(total.value)
"""


def wait_until(look: Callable[[], Any]) -> None:
    until_ns = time.monotonic_ns() + 120 * 10**9
    while not look():
        assert time.monotonic_ns() < until_ns
        time.sleep(0.02)


@pytest.fixture(scope="module")
def system() -> Iterator[OwnSystem]:
    with own_system({"devices": "2", "memory_bytes": "64G"}) as made:
        yield made


@pytest.fixture
def home(short_dir: Path, monkeypatch: pytest.MonkeyPatch, system: OwnSystem) -> Path:
    """Where jobs run, of all users: pytest closes its own folders to others whenever another run of it begins. The
    programs of the simulated device find it."""
    short_dir.chmod(0o711)
    monkeypatch.chdir(short_dir)
    for name, value in system.env.items():
        if name.startswith("VGPU_"):
            monkeypatch.setenv(name, value)
    return short_dir


@pytest.fixture
def real(system: OwnSystem, home: Path, vgpu: Any) -> Iterator[Any]:
    """`vgpu ARGS` in this process; no job is left after the test, and no queue but the default one."""

    def call(*args: str) -> Any:
        return vgpu(*args, host=system.host)

    yield call
    left = call("job", "ls", "-o", "name").stdout.split()
    if left:
        call("job", "cancel", *left)
        call("job", "wait", *left)
    for name in call("queue", "ls", "-o", "name").stdout.split():
        if name != "default":
            call("queue", "rm", name)


def submit(real: Any, *words: str) -> str:
    result = real("submit", "-q", *words)
    assert result.code == 0, result
    return str(result.stdout.strip())


def job(real: Any, job_id: str) -> dict[str, Any]:
    found: dict[str, Any] = real("job", "show", job_id, "-o", "json").json["job"]
    return found


def test_a_job_from_submission_to_its_output(real: Any, home: Path) -> None:
    job_id = submit(
        real, "--gpus", "0.5", "--name", "train", "--", "sh", "-c", "echo $VGPU_JOB_ID; sleep 0.5; echo end"
    )
    row = real("job", "ls", "--no-headers").stdout.split(maxsplit=7)
    assert row[:6] == [job_id, "train", row[2], "default", "running", "0.5"]
    assert "device" in row[7] and "SIMULATED" in row[7]
    assert real("job", "logs", "-f", job_id).stdout == f"{job_id}\nend\n"
    shown = job(real, job_id)
    assert (shown["state"], shown["exit_code"], shown["log"]) == ("completed", 0, str(home / f"vgpu-{job_id}.log"))
    assert shown["gpu_seconds_granted"] > 0.2
    assert real("job", "ls", "-o", "name").stdout == ""
    assert job_id in real("job", "ls", "-a", "-o", "name").stdout.split()


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("nosuchprogram", 127)]
)
def test_wait_exits_as_the_job_does(real: Any, script: str, code: int) -> None:
    assert real("submit", "--wait", "-q", "--gpus", "0.25", "--", "sh", "-c", script).code == code


def test_cancelled_and_timed_out_jobs(real: Any) -> None:
    late = submit(real, "--gpus", "0.25", "--time-limit", "1s", "--", "sleep", "600")
    ended = submit(real, "--gpus", "0.25", "--", "sleep", "600")
    assert real("job", "cancel", ended).code == 0
    result = real("job", "wait", late, ended)
    assert result.code == 143
    assert "its time limit of 1 s has run out" in result.stderr
    assert {job(real, late)["state"], job(real, ended)["state"]} == {"timed_out", "cancelled"}
    assert real("job", "cancel", ended).code == 8


def test_a_job_is_held_to_its_slice(real: Any, home: Path) -> None:
    program = home / "program.py"
    program.write_text(PROGRAM)
    job_id = submit(real, "--gpus", "0.5", "--mem", "8G", "--", sys.executable, str(program))
    result = real("job", "wait", job_id)
    output = real("job", "logs", job_id).stdout
    assert (result.code, output) == (0, f"{8 * GIB}\n"), output


def test_why_jobs_wait(real: Any) -> None:
    assert real("queue", "set", "team", "--limit", "0.5").code == 0
    runs = submit(real, "--queue", "team", "--gpus", "0.5", "--", "sleep", "600")
    waits = submit(real, "--queue", "team", "--gpus", "0.5", "--", "true")
    after = submit(real, "--gpus", "0.5", "--after", waits, "--", "true")
    held = submit(real, "--gpus", "0.5", "--hold", "--", "true")
    reasons = {row["job_id"]: row["reason"] for row in real("job", "ls", "-o", "json").json["jobs"]}
    says = "queue team has 0.5 of its limit of 0.5 GPUs in use, and this needs 0.5; in use by job "
    assert reasons[int(waits)].startswith(says)
    assert reasons[int(after)] == f"it waits for job {waits} to complete"
    assert reasons[int(held)] == f"it is held: release it with vgpu job release {held}"
    assert real("job", "release", held).code == 0
    assert real("job", "wait", held).code == 0
    assert real("queue", "rm", "team").code == 8
    assert real("job", "cancel", runs).code == 0
    assert real("job", "wait", waits, after).code == 0


def test_an_array_and_a_gang(real: Any) -> None:
    first = submit(
        real, "--gpus", "0.25", "--array", "3-5", "--log", "out-%a", "--", "sh", "-c", "echo $VGPU_ARRAY_INDEX"
    )
    assert real("job", "wait", first).code == 0
    ids = [str(int(first.split("-")[0]) + i) for i in range(3)]
    assert [real("job", "logs", job_id).stdout for job_id in ids] == ["3\n", "4\n", "5\n"]
    assert Path("out-4").read_text() == "4\n"
    gang = submit(real, "--gpus", "0.5", "--gang", "3", "--", "sh", "-c", "echo $VGPU_MEMBER/$VGPU_MEMBERS")
    assert real("job", "wait", gang).code == 0
    assert [real("job", "logs", "--member", str(i), gang).stdout for i in range(3)] == ["0/3\n", "1/3\n", "2/3\n"]
    array = submit(real, "--gpus", "0.25", "--array", "1-3", "--hold", "--", "true")
    assert real("job", "cancel", "--array", array).code == 0
    assert real("job", "ls", "-o", "name").stdout == ""


def test_what_the_submission_of_an_array_prints_is_all_of_it(real: Any) -> None:
    """Its third job fails: a job after the array does not start, and `job wait` exits with 1."""
    third_fails = ("sh", "-c", "sleep 1; test $VGPU_ARRAY_INDEX -ne 2")
    array = submit(real, "--gpus", "0.25", "--array", "0-2", "--", *third_fails)
    after_all = submit(real, "--gpus", "0.25", "--after", array, "--", "true")
    after_first = submit(real, "--gpus", "0.25", "--after", array.split("-")[0], "--", "true")
    assert real("job", "wait", "-q", array).code == 1
    assert real("job", "wait", after_first).code == 0
    assert job(real, after_all)["state"] == "cancelled"
    held = submit(real, "--gpus", "0.25", "--array", "1-3", "--hold", "--", "true")
    for command in ("release", "wait"):
        assert real("job", command, held).code == 0, command
    held = submit(real, "--gpus", "0.25", "--array", "1-3", "--hold", "--", "true")
    assert real("job", "cancel", held).code == 0
    assert real("job", "ls", "-o", "name").stdout == ""


@pytest.mark.parametrize(
    ("words", "message", "code"),
    [
        (("--gpus", "2.5"), "2.5", 2),
        (("--gpus", "1", "--gang", "3"), "3 members of 1 GPU each: this node holds 2 when nothing else runs", 2),
        (("--gpus", "0.5", "--ram", "900G"), "900GiB of RAM", 2),
        (("--gpus", "0.5", "--mem", "999G"), "999GiB", 2),
        (("--gpus", "0.5", "--queue", "nobody"), "no queue 'nobody'", 4),
        (("--gpus", "0.5", "--after", "999999"), "no job 999999", 4),
        (("--gpus", "0.5", "--array", "1-1000000"), "more than 10000 jobs", 2),
        (("--gpus", "0.5", "--image", "--privileged"), "--privileged", 2),
        (("--gpus", "0.5", "--log", "out/"), "'out/' is a folder", 2),
    ],
)
def test_what_can_never_run_is_refused(real: Any, words: tuple[str, ...], message: str, code: int) -> None:
    before = real("job", "ls", "-a", "-o", "name").stdout
    result = real("submit", *words, "--", "true")
    assert result.code == code, result
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert real("job", "ls", "-a", "-o", "name").stdout == before


def test_logs_follow_over_a_requeue(real: Any, home: Path, system: OwnSystem) -> None:
    script = "echo attempt $VGPU_JOB_ATTEMPT; [ $VGPU_JOB_ATTEMPT -gt 1 ] || sleep 600"
    job_id = submit(real, "--gpus", "0.25", "--", "sh", "-c", script)
    log = home / f"vgpu-{job_id}.log"

    def requeue() -> None:
        wait_until(lambda: log.exists() and log.read_text())
        OwnSystem.vgpu(system, "job", "requeue", job_id)  # a process: one in this thread would take the other's output

    thread = threading.Thread(target=requeue)
    thread.start()
    result = real("job", "logs", "-f", job_id)
    thread.join()
    assert re.findall(r"attempt \d", result.stdout) == ["attempt 1", "attempt 2"]
    assert job(real, job_id)["attempt"] == 2


def test_waiting_outlasts_a_killed_daemon(real: Any, system: OwnSystem, capfd: pytest.CaptureFixture[str]) -> None:
    job_id = submit(real, "--gpus", "0.25", "--", "sh", "-c", "sleep 2; exit 9")
    watched = changes(Settings(host=system.host), [int(job_id)])
    assert next(watched).state == pb.JOB_STATE_RUNNING
    assert system.daemon is not None
    system.daemon.kill()
    system.start_daemon()
    *_, last = watched
    assert (last.state, last.exit_code) == (pb.JOB_STATE_FAILED, 9)
    assert "jobs continue" in capfd.readouterr().err


def test_usage_is_a_trace_for_the_simulator(real: Any, home: Path) -> None:
    ids = [submit(real, "--gpus", "0.5", "--gang", "2", "--", "sleep", "0.2") for _ in range(3)]
    assert real("job", "wait", *ids).code == 0
    result = real("usage", "--since", "1h", "-o", "csv")
    lines = {line.split(",")[0]: line.split(",") for line in result.stdout.splitlines()}
    titles = result.stdout.splitlines()[0].split(",")
    asked, granted = (float(lines[ids[0]][titles.index(f"gpu_seconds_{one}")]) for one in ("asked", "granted"))
    assert lines[ids[0]][6:8] == ["500", "2"] and 0.2 <= granted <= asked < 30
    (home / "month.csv").write_text(result.stdout)
    replayed = real("whatif", "--trace", "month.csv", "--cluster", "1x2", "--policy", "fifo", "-o", "json")
    assert replayed.code == 0, replayed
    by_queue = real("usage", "--by", "queue", "-o", "json").json["usage"]
    assert sum(row["gpu_seconds_granted"] for row in by_queue) >= 3 * granted / 2


# ---- another user ----


@pytest.fixture
def as_other_user(system: OwnSystem, home: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`vgpu ARGS` as another user, in a folder of theirs."""
    theirs = home / "nobody"
    theirs.mkdir()
    os.chown(theirs, OTHER_UID, OTHER_UID)

    def call(*args: str) -> subprocess.CompletedProcess[str]:
        limits = 'ulimit -n 333; umask 027; exec "$@"'
        command = ["sh", "-c", limits, "sh", sys.executable, "-c", AS_USER, "--host", system.host, *args]
        environment = {**system.env, "MARK": "theirs"}
        return subprocess.run(command, env=environment, cwd=theirs, capture_output=True, text=True, timeout=120)

    return call


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_a_job_is_its_submitters(real: Any, home: Path, as_other_user: Any) -> None:
    script = "id -u; id -g; id -G; pwd; umask; ulimit -n; echo $MARK; touch made"
    done = as_other_user("submit", "--wait", "-q", "--gpus", "0.25", "--", "sh", "-c", script)
    assert done.returncode == 0, done
    shown = as_other_user("job", "logs", done.stdout.strip())
    folder = home / "nobody"
    assert shown.stdout.splitlines() == ["65534", "65534", "65534 4", str(folder), "0027", "333", "theirs"], shown
    info = (folder / "made").stat()
    assert (info.st_uid, info.st_gid, info.st_mode & 0o777) == (OTHER_UID, OTHER_UID, 0o640)
    assert (folder / f"vgpu-{done.stdout.strip()}.log").stat().st_uid == OTHER_UID


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_no_user_sees_or_changes_anothers_job(real: Any, as_other_user: Any) -> None:
    job_id = submit(real, "--gpus", "0.25", "--", "sleep", "600")
    for words in (
        ("job", "show", job_id),
        ("explain", job_id),
        ("job", "logs", job_id),
        ("job", "cancel", job_id),
        ("job", "hold", job_id),
        ("job", "release", job_id),
        ("job", "requeue", job_id),
        ("submit", "--gpus", "0.1", "--after", job_id, "--", "true"),
        ("queue", "set", "default", "--limit", "1"),
        ("queue", "rm", "default"),
    ):
        done = as_other_user(*words)
        assert done.returncode == 5, (words, done)
        assert done.stdout == "" and done.stderr.count("\n") == 1
    assert as_other_user("job", "wait", job_id).returncode == 125
    assert job_id not in as_other_user("job", "ls", "-a", "-o", "name").stdout.split()
    assert as_other_user("usage", "--by", "job", "-o", "csv").stdout.count(f"\n{job_id},") == 0
    assert job(real, job_id)["state"] == "running"
    theirs = as_other_user("submit", "-q", "--gpus", "0.25", "--", "sleep", "600").stdout.strip()
    assert real("job", "cancel", theirs).code == 0, job(real, theirs)["reason"]  # root may


def test_a_running_job_is_resized(real: Any) -> None:
    job_id = submit(real, "--gpus", "0.5", "--mem", "8G", "--", "sleep", "600")
    wait_until(lambda: job(real, job_id)["state"] == "running")
    (name,) = job(real, job_id)["slices"]

    def shares() -> set[int]:
        return {part["min_milli"] for part in real("slice", "show", name, "-o", "json").json["slice"]["devices"]}

    assert real("job", "set", job_id, "--gpus", "0.25").code == 0
    wait_until(lambda: shares() == {250})
    assert (job(real, job_id)["gpus_milli"], job(real, job_id)["attempt"]) == (250, 1)
    assert real("job", "set", job_id, "--gpus", "0.75").code == 0
    wait_until(lambda: shares() == {750})
    facts = real("explain", job_id, "-o", "json").json["facts"]
    resized = [fact["text"] for fact in facts if fact["kind"] == "resize"]
    assert resized[-1] == "from 0.25 GPU to 0.75 GPU: its user, or an admin, has asked for it"
    refused = real("job", "set", job_id, "--priority", "3", "--gpus", "1")
    assert refused.code != 0 and "only its time limit and GPUs can be changed" in refused.stderr
    assert real("job", "cancel", job_id).code == 0


def test_an_elastic_slice_grows_gives_capacity_back_and_says_why(real: Any) -> None:
    assert real("queue", "set", "default", "--elastic-wait", "2s", "--elastic-idle", "1s").code == 0
    try:
        big = submit(real, "--gpus", "1", "--", "sleep", "600")
        tune = submit(real, "--gpus", "0.25..1", "--mem", "8G", "--name", "tune", "--", "sleep", "600")
        wait_until(lambda: job(real, tune)["gpus_milli"] == 1000)
        first = job(real, tune)
        late = submit(real, "--gpus", "0.5", "--mem", "8G", "--", "sleep", "600")
        said = real("explain", late).stdout
        assert "is pending" in said and "elastic jobs can give 0.75 GPU" in " ".join(said.split())
        wait_until(lambda: job(real, late)["state"] == "running")
        shrunk = job(real, tune)
        assert (shrunk["gpus_milli"], shrunk["gpus_milli_min"], shrunk["gpus_milli_max"]) == (500, 250, 1000)
        assert (shrunk["attempt"], shrunk["start_time"], shrunk["slices"]) == (1, first["start_time"], first["slices"])
        facts = real("explain", tune, "-o", "json").json["facts"]
        resized = [fact["text"] for fact in facts if fact["kind"] == "resize"]
        assert resized[0].startswith("from 0.25 GPU to 1 GPU: ") and f"shrinks for job {late}" in resized[1]
        assert any(fact["kind"] == "neighbour" and f"job {late} " in fact["text"] for fact in facts)
        assert real("job", "cancel", late, big).code == 0
        wait_until(lambda: job(real, tune)["gpus_milli"] == 1000)
    finally:
        assert real("queue", "set", "default", "--elastic-wait", "default", "--elastic-idle", "default").code == 0


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
def test_neighbours_of_others_are_numbers(real: Any, as_other_user: Any) -> None:
    submit(real, "--gpus", "1", "--", "sleep", "600")
    secret = submit(real, "--gpus", "0.25", "--mem", "8G", "--name", "secret", "--", "sleep", "600")
    theirs = as_other_user("submit", "-q", "--gpus", "0.25", "--mem", "8G", "--", "sleep", "600").stdout.strip()
    done = as_other_user("explain", theirs)
    assert done.returncode == 0, done
    assert f"job {secret} has 0.25 GPU" in done.stdout and "secret" not in done.stdout
    assert f"job {secret} (secret)" in real("explain", theirs).stdout, "root may"
    assert real("job", "cancel", theirs, secret).code == 0
