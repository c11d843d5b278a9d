"""The command line with the real daemon, the real shim and a simulated device: the whole path."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem

GIB = 1 << 30
BUILT = all((paths.sim_lib_dir() / name).exists() for name in ("vgpu-simd", "libcuda.so.1", "libnvidia-ml.so.1"))
#: checks of engines, which a machine has set up for a daemon of its own, or not
OF_THE_MACHINE = (
    "docker",
    "docker-runtime",
    "podman",
    "podman-runtime",
    "containerd",
    "containerd-runtime",
    "front",
    "front-conf",
)
pytestmark = pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py")

#: attaches, makes a context, says what it sees, and waits for a file
PROGRAM = """
import ctypes, sys, time, os
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *args):
    code = getattr(cuda, name)(*args)
    assert code == 0, (name, code)
call("cuInit", 0)
context, free, total, count = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_int()
call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
call("cuCtxSetCurrent", context)
call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
call("cuDeviceGetCount", ctypes.byref(count))
print(count.value, total.value, flush=True)
if len(sys.argv) > 1:
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
"""


def wait_until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def system() -> Iterator[OwnSystem]:
    folder = Path(tempfile.mkdtemp(prefix="vgc-", dir="/tmp"))
    try:
        with OwnSystem(folder, {"devices": "1", "memory_bytes": "64G"}) as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def real(system: OwnSystem, vgpu: Any) -> Iterator[Any]:
    """`vgpu ARGS` in this process, with the real daemon; the node is empty again after the test."""
    yield lambda *args: vgpu(*args, host=system.host)
    for name in vgpu("slice", "ls", "-o", "name", host=system.host).stdout.split():
        vgpu("slice", "rm", "--force", name, host=system.host)


def test_a_device_reports_its_temperature_power_and_faults(real: Any, system: OwnSystem) -> None:
    def device() -> Any:
        return real("gpu", "ls", "-o", "json").json["devices"][0]

    wait_until(lambda: device()["temperature_celsius"])
    shown = device()
    assert 20 < shown["temperature_celsius"] < 100
    assert 0 < shown["power_milliwatts"] <= shown["power_limit_milliwatts"] == 700_000
    assert (shown["xids"], shown["last_xid"]) == (0, None)
    system.vgpu("sim", "xid", "--dir", str(system.sim_dir), "0", "13")
    wait_until(lambda: device()["xids"])
    assert (device()["xids"], device()["last_xid"]) == (1, 13)


def test_how_a_slice_shares_is_set_shown_and_taken_back(real: Any) -> None:
    def shares(*args: str) -> tuple[Any, ...]:
        result = real("slice", *args, "-o", "json")
        assert result.code == 0, result
        shown = result.json["slice"]
        return (shown["class"], shown["priority"], shown["weight"], shown["devices"][0]["max_milli"])

    amounts = ("--max", "0.9", "--class", "latency", "--priority", "5", "--weight", "7")
    assert shares("create", "a", "--gpus", "0.5", *amounts) == ("latency", 5, 7, 900)
    assert shares("set", "a", "--priority", "0", "--weight", "default") == ("latency", 0, 0, 900)
    assert shares("set", "a", "--class", "default", "--max", "default") == ("batch", 0, 0, 500)
    assert shares("show", "a") == ("batch", 0, 0, 500)


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--class", "latency", "--min", "0"), "class latency with min 0: "),
        (("--spread", "2"), "2 devices to spread over, this node has 1: write 1 or less"),
        (("--max", "0.4"), "min 0.5 is above max 0.4: lower the minimum or raise the maximum"),
        (("--max", "1.5"), "ask for at most 1"),
    ],
)
def test_what_only_the_daemon_knows_to_be_wrong(real: Any, args: tuple[str, ...], words: str) -> None:
    assert real("slice", "create", "a", "--gpus", "0.5").code == 0
    before = real("slice", "show", "a", "-o", "json").json["slice"]["revision"]
    for command in (("slice", "set", "a"), ("slice", "create", "b", "--gpus", "0.5")):
        result = real(*command, *args)
        assert result.code == 2, result
        assert words in result.stderr and result.stderr.count("\n") == 1
    assert real("slice", "show", "a", "-o", "json").json["slice"]["revision"] == before
    assert real("slice", "ls", "-o", "name").stdout.split() == ["a"]


@pytest.fixture
def program(tmp_path: Path) -> list[str]:
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return [sys.executable, str(file)]


@pytest.fixture
def start(system: OwnSystem) -> Iterator[Any]:
    """`vgpu run ARGS` in the background; whatever is left of it is killed at the end."""
    started: list[subprocess.Popen[str]] = []

    def call(*args: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "vgpud.cli.main", "run", "-q", *args]
        pipe, err = subprocess.PIPE, subprocess.STDOUT
        process = subprocess.Popen(
            command, env=system.env, stdin=pipe, stdout=pipe, stderr=err, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield call
    for process in started:
        with contextlib.suppress(ProcessLookupError):  # all of it has ended
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def names(real: Any) -> list[str]:
    found: list[str] = real("slice", "ls", "-o", "name").stdout.split()
    return found


@pytest.mark.parametrize(
    ("args", "message", "code"),
    [
        (("--gpus", "0"), "0 GPUs", 2),
        (("--gpus", "-1"), "-1", 2),
        (("--gpus", "0.0001"), "0.0001", 2),
        (("--gpus", "abc"), "abc", 2),
        (("--gpus", "2.5"), "2.5 GPUs", 2),
        (("--gpus", "0.5", "--min", "0.8", "--max", "0.3"), "0.8", 2),
        (("--gpus", "0.5", "--min", "0.9"), "--min 0.9 is more than --gpus 0.5", 2),
        (("--gpus", "0.5", "--max", "0.3"), "0.3", 2),
        (("--gpus", "0.5", "--mem", "65G"), "65GiB", 2),
        (("--gpus", "0.5", "--mem", "1M"), "1MiB", 2),
        (("--gpus", "0.5", "--mem-min", "9G", "--mem-max", "8G"), "9GiB", 2),
        (("--gpus", "0.5", "--device", "GPU-nonsense"), "GPU-nonsense", 4),
    ],
)
def test_amounts_that_are_invalid(real: Any, args: tuple[str, ...], message: str, code: int) -> None:
    result = real("slice", "create", "a", *args)
    assert result.code == code, result
    if code:
        assert message in result.stderr
        assert result.stderr.count("\n") == 1
        assert names(real) == []
        assert real("run", *[a for a in args if a not in ("--device", "GPU-nonsense")], "--", "false").code in (125, 1)
        assert names(real) == []


@pytest.mark.parametrize(
    "words",
    [("env", "-u", "LD_PRELOAD"), ("sh", "-c", 'unset LD_PRELOAD; "$@" & wait', "sh"), ("env", "LD_PRELOAD=")],
    ids=["by exec", "a child in the background", "empty"],
)
def test_a_program_without_the_hook_is_noticed(start: Any, program: list[str], tmp_path: Path, words: Any) -> None:
    """It sees the whole device, which no exit code shows."""
    process = start("--gpus", "0.5", "--", *words, *program, str(tmp_path / "end"))
    lines = [process.stdout.readline(), process.stdout.readline()]
    (tmp_path / "end").touch()
    rest, _ = process.communicate()
    assert f"1 {64 * GIB}\n" in lines
    (warning,) = [line for line in lines if "without the limits of slice" in line]
    assert "keep LD_PRELOAD in its environment, and see `vgpu doctor`" in warning
    assert (rest, process.returncode) == ("", 0)


@pytest.mark.parametrize("visible_devices", ["1", "0,0", "GPU-00000000-0000-0000-0000-000000000000", "", "-1", "all"])
def test_numbers_of_the_node_do_not_hide_the_slices_device(
    start: Any, program: list[str], system: OwnSystem, monkeypatch: pytest.MonkeyPatch, visible_devices: str
) -> None:
    monkeypatch.setitem(system.env, "CUDA_VISIBLE_DEVICES", visible_devices)
    assert start("--gpus", "0.5", "--", *program).communicate()[0] == f"1 {32 * GIB}\n"


def test_a_hooked_program_is_not_complained_about(start: Any, program: list[str], tmp_path: Path) -> None:
    process = start("--gpus", "0.5", "--", "sh", "-c", '"$@"; true', "sh", *program, str(tmp_path / "end"))
    assert process.stdout.readline() == f"1 {32 * GIB}\n"
    time.sleep(0.5)  # some looks
    (tmp_path / "end").touch()
    assert process.communicate()[0] == ""


@pytest.mark.alone
@pytest.mark.parametrize("kept_size", [0, 5000, 0.5, 0.999], ids=["empty", "a page", "half", "cut"])
def test_a_damaged_copy_of_the_hook_is_made_again(start: Any, kept_size: float) -> None:
    """The loader ignores an empty file, and a program with one that was cut short dies of SIGBUS. So does any other
    that has it mapped: no other test may run meanwhile."""
    code = f"{PROGRAM}\nprint([line.split()[-1] for line in open('/proc/self/maps') if 'libvgpu.so' in line][0])"
    words = ("--gpus", "0.5", "--", sys.executable, "-c", code)
    path = start(*words).communicate()[0].split()[-1]
    whole = Path(path).read_bytes()
    os.truncate(path, int(kept_size if kept_size > 1 else kept_size * len(whole)))
    assert start(*words).communicate()[0].split() == ["1", str(32 * GIB), path]
    assert Path(path).read_bytes() == whole


def test_what_is_reserved_is_no_capacity(real: Any) -> None:
    assert real("slice", "create", "a", "--gpus", "0.75").code == 0
    result = real("slice", "create", "b", "--gpus", "0.5")
    assert result.code == 6
    assert "0.25" in result.stderr
    assert real("run", "--gpus", "0.5", "--", "true").code == 125
    assert names(real) == ["a"]


def test_names_that_are_taken_unknown_or_wrong(real: Any) -> None:
    real("slice", "create", "a", "--gpus", "0.25")
    assert real("slice", "create", "a", "--gpus", "0.25").code == 8
    assert real("slice", "create", "a/b", "--gpus", "0.25").code == 2
    for command in (("show", "b"), ("set", "b", "--max", "1"), ("rm", "b")):
        assert real("slice", *command).code == 4
    assert real("run", "--slice", "b", "--", "true").code == 125
    assert real("ps", "--slice", "b").code == 4


def test_what_the_daemon_cannot_do_now_is_said_in_its_words(real: Any, system: OwnSystem) -> None:
    """Not as if it did not answer: the reader would look for a daemon that is down."""
    in_the_way = system.folder / "run" / "slices" / "b"
    in_the_way.touch()
    try:
        result = real("slice", "create", "b", "--gpus", "0.25")
    finally:
        in_the_way.unlink()
    assert result.code == 1, result
    assert result.stderr.startswith("vgpu: nothing was created: ")
    assert real("slice", "ls", "-o", "name").stdout == ""


def test_a_program_sees_its_slice(real: Any, program: list[str]) -> None:
    result = real("run", "--gpus", "0.5", "--mem", "8G", "--", *program)
    assert result.code == 0, result
    assert result.stdout.split() == ["1", str(8 * GIB)]
    assert "device 0-SIMULATED: SM time min 0.5 max 0.5, memory min 8GiB max 8GiB" in result.stderr
    assert names(real) == []


def test_programs_of_one_command_have_one_slice(real: Any, program: list[str]) -> None:
    """The slice does not end between two programs of a command."""
    both = f"{' '.join(program)} && sleep 0.3 && {' '.join(program)}"
    result = real("run", "--gpus", "0.5", "--mem", "8G", "--name", "two", "--", "sh", "-c", both)
    assert result.code == 0, result
    assert result.stdout.split() == ["1", str(8 * GIB)] * 2
    event_kinds = [e["kind"] for e in real("events", "--slice", "two", "-o", "json").json["events"]]
    assert event_kinds.count("process.attached") == 2
    assert event_kinds[-1] == "slice.deleted"


def test_ps_shows_the_program_and_its_numbers(real: Any, start: Any, program: list[str], tmp_path: Path) -> None:
    process = start("--gpus", "0.5", "--max", "1", "--name", "mine", "--", *program, str(tmp_path / "end"))
    assert process.stdout.readline().startswith("1 ")

    def used() -> bool:
        return any(row["devices"][0]["mem_used_bytes"] for row in real("ps", "-o", "json").json["processes"])

    wait_until(used)
    rows = real("ps", "-o", "json").json["processes"]
    assert [row["slice"] for row in rows] == ["mine"]
    assert rows[0]["program"].startswith("python")
    row = real("ps", "--no-headers").stdout.split()
    assert row[0] == str(rows[0]["pid"])
    assert row[2:10] == ["mine", "batch", "0", "0-SIMULATED", "0.5", "1", "32GiB", "32GiB"]
    assert real("slice", "rm", "mine").code == 8
    (tmp_path / "end").touch()
    assert process.wait(30) == 0
    wait_until(lambda: names(real) == [])


#: allocates so many MiB, then frees ("-") or allocates as much again ("+"), line by line up to "."; prints the codes
EATER = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
context, memory, size = ctypes.c_void_p(), [], int(sys.argv[1]) << 20
cuda.cuInit(0), cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), cuda.cuCtxSetCurrent(context)
def more():
    pointer = ctypes.c_uint64()
    code = cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size))
    memory.append(pointer)
    if code: memory.pop()
    return code
print(more(), flush=True)
for line in iter(sys.stdin.readline, ".\\n"):
    print(more() if line[0] == "+" else cuda.cuMemFree_v2(memory.pop()), flush=True)
"""


def test_memory_limits_change_live(real: Any, start: Any, tmp_path: Path) -> None:
    """What is above the minimum is borrowed and given back when it is freed; a limit below what is used takes nothing,
    allows nothing more, and is shown."""
    file = tmp_path / "eater.py"
    file.write_text(EATER)
    real("slice", "create", "a", "--gpus", "0.1", "--mem-min", "4G", "--mem-max", "60G")
    real("slice", "create", "b", "--gpus", "0.1", "--mem-min", "1G", "--mem-max", "60G")
    first, second = (start("--slice", name, "--", sys.executable, str(file), str(20 << 10)) for name in "ab")

    def send_line(process: subprocess.Popen[str], line: str = "") -> int:
        assert process.stdin and process.stdout
        process.stdin.write(line)
        process.stdin.flush()
        return int(process.stdout.readline())

    def device() -> Any:
        return real("slice", "show", "a", "-o", "json").json["slice"]["devices"][0]

    assert (send_line(first), send_line(second)) == (0, 0), "both beyond their minima"
    assert send_line(first, "+\n") == 0 and send_line(second, "+\n") == 2, "all of it is lent"
    assert send_line(first, "-\n") == 0 and send_line(second, "+\n") == 0, "what was freed has come back"
    assert real("slice", "set", "a", "--mem-max", "8G").code == 0
    wait_until(lambda: device()["mem_over_limit_bytes"] > 12 * GIB)
    assert "8GiB-OVER" in real("ps", "--slice", "a").stdout and "OVER LIMIT" in real("slice", "show", "a").stdout
    assert send_line(first, "+\n") == 2
    assert send_line(first, "-\n") == 0, "nothing was taken by force"
    wait_until(lambda: device()["mem_over_limit_bytes"] == 0)
    assert "OVER" not in real("ps", "--slice", "a").stdout
    for process in (first, second):
        process.stdin.write(".\n")
        process.stdin.flush()
        assert process.wait(30) == 0
    events = [e["kind"] for e in real("events", "-o", "json").json["events"]]
    assert not {"memory.unattributed", "memory.past_ledger"} & set(events)


def test_a_joined_slice_stays_and_is_changed_live(real: Any, start: Any, program: list[str], tmp_path: Path) -> None:
    real("slice", "create", "team", "--gpus", "0.5", "--mem", "8G")
    process = start("--slice", "team", "--", *program, str(tmp_path / "end"))
    assert process.stdout.readline() == f"1 {8 * GIB}\n"
    shown = real("slice", "set", "team", "--max", "0.9", "--mem-max", "16G", "-o", "json").json["slice"]["devices"][0]
    assert (shown["max_milli"], shown["mem_min_bytes"], shown["mem_max_bytes"]) == (900, 8 * GIB, 16 * GIB)
    (tmp_path / "end").touch()
    assert process.wait(30) == 0
    assert names(real) == ["team"]


def test_a_killed_run_leaves_the_slice_to_its_last_program(
    real: Any, start: Any, program: list[str], tmp_path: Path
) -> None:
    process = start("--gpus", "0.5", "--name", "left", "--", *program, str(tmp_path / "end"))
    assert process.stdout.readline().startswith("1 ")
    process.kill()
    process.wait()
    time.sleep(0.3)
    assert names(real) == ["left"]
    (tmp_path / "end").touch()
    wait_until(lambda: names(real) == [])


def test_a_killed_run_without_a_program_leaves_nothing(real: Any, start: Any) -> None:
    process = start("--gpus", "0.5", "--name", "empty", "--", "sh", "-c", "echo ready; exec sleep 60")
    assert process.stdout.readline() == "ready\n"
    assert names(real) == ["empty"]
    process.kill()
    wait_until(lambda: names(real) == [])


def test_a_restarted_daemon_keeps_a_running_command(
    system: OwnSystem, real: Any, start: Any, program: list[str], tmp_path: Path
) -> None:
    process = start("--gpus", "0.5", "--name", "through", "--", *program, str(tmp_path / "end"))
    assert process.stdout.readline().startswith("1 ")
    assert system.daemon is not None
    system.daemon.kill()
    assert real("ps").code == 3
    system.start_daemon()
    wait_until(lambda: real("ps", "-o", "json").json["processes"])
    (tmp_path / "end").touch()
    assert process.wait(30) == 0
    wait_until(lambda: names(real) == [])


def test_doctor_top_and_version_agree_with_the_daemon(system: OwnSystem, real: Any) -> None:
    checks = {c["check"]: c for c in real("doctor", "-o", "json").json["checks"]}
    assert checks["sim"]["level"] == "ok"
    wrong = [c for name, c in checks.items() if c["level"] == "fail" and name not in OF_THE_MACHINE]
    assert not wrong, wrong
    assert real("top", "-n", "2", "-d", "0.1").code == 0
    data = real("version", "-o", "json").json
    assert data["client_abi_version"] == data["daemon_abi_version"]
    assert data["simulated"] is True


def test_a_trace_names_the_device_and_the_slices_on_it(
    real: Any, start: Any, program: list[str], tmp_path: Path
) -> None:
    process = start("--gpus", "0.5", "--name", "traced", "--", *program, str(tmp_path / "end"))
    assert process.stdout.readline().startswith("1 ")
    real("slice", "create", "beside", "--gpus", "0.25")
    assert real("trace", "traced", "-s", "0.5", "--out", str(tmp_path / "trace.json")).code == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    named = {(e["name"], e["args"]["name"]) for e in events if e["ph"] == "M" and "name" in e["args"]}
    assert {("thread_name", "traced"), ("thread_name", "regime"), ("thread_name", "beside")} <= named
    assert any(name == "process_name" and "SIMULATED" in value for name, value in named)
    assert [e["name"] for e in events if e["ph"] == "X" and e["name"] == "solo"] == ["solo"]


def test_another_users_slice_is_refused_before_the_program_starts(real: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real("slice", "create", "theirs", "--gpus", "0.25", "--owner", "65533")
    monkeypatch.setattr(os, "getuid", lambda: 65534)
    result = real("run", "--slice", "theirs", "--", "echo", "started")
    assert result.code == 125
    assert result.stdout == ""
    assert "belongs to uid:65533" in result.stderr
