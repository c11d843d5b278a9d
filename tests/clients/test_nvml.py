"""NVML of the simulated device, and what the NVML shim makes of it in a slice; asked by nvidia-ml-py."""

from __future__ import annotations

import contextlib
import ctypes
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import LIB, PROGRAMS, ROOT, SIM, client_environment, run_python
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.libraries import elf, fit

pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")
RUN = (sys.executable, "-m", "vgpud.cli.main", "run")
VIEW = PROGRAMS / "nvml_view.py"
MIB = 1 << 20
INVALID_ARGUMENT, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 2, 4, 6, 9, 12
INSUFFICIENT_SIZE, VERSION_MISMATCH = 7, 25
UNINITIALIZED, NOT_SUPPORTED = 1, 3


def view(system: OwnSystem, *before: str, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """What nvml_view.py prints on the system's devices, run behind `before`."""
    env = client_environment(system.sim_dir) | {"VGPU_HOST": system.host}
    return json.loads(run_python(VIEW, env, *before, arguments=arguments))


def in_slice(*options: str) -> tuple[str, ...]:
    return (*RUN, *options, "--")


def test_without_a_server(tmp_path: Path) -> None:
    env = client_environment(tmp_path / "nobody")
    with pytest.raises(AssertionError, match="Driver Not Loaded"):
        run_python(VIEW, env)


def test_shows_devices_and_processes(system: OwnSystem) -> None:
    idle, busy = view(system), view(system, arguments=("--use",))
    assert len(idle["uuids"]) == len(set(idle["uuids"])) == 2
    assert idle["indices"] == [0, 1] and len(set(idle["bus_ids"])) == 2
    assert busy["pids"] == [[busy["pid"]], []]
    assert busy["used"][0] >= idle["used"][0] + 64 * MIB and busy["used"][1] == idle["used"][1]
    assert busy["used"] == busy["used_v2"]
    assert idle["branch"] == ["r580_00-sim", INSUFFICIENT_SIZE, VERSION_MISMATCH]


def test_a_process_with_two_copies_of_the_driver_is_one(system: OwnSystem, tmp_path: Path) -> None:
    """dlmopen opens it a second time; the tools show one process and the memory of both."""
    source = ROOT / "tests/containers/programs/way.c"
    subprocess.run(["gcc", "-o", tmp_path / "way", source, "-ldl"], check=True)
    command = [str(tmp_path / "way"), "both", "libcuda.so.1", str(256 * MIB), "hold"]
    with subprocess.Popen(command, env=client_environment(system.sim_dir), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout and [found["alloc"] for found in json.loads(process.stdout.readline())] == [0, 0, 0]
            seen = view(system)
            assert seen["pids"] == [[process.pid], []] and seen["processes_used"] == [[seen["used"][0]], []]
        finally:
            process.kill()


def test_slice_shows_only_its_own(system: OwnSystem) -> None:
    everything = view(system)
    seen = view(system, *in_slice("--gpus", "0.5"), arguments=("--use", *everything["uuids"]))
    assert len(seen["uuids"]) == 1 and seen["uuids"][0] in everything["uuids"] and seen["indices"] == [0]
    assert seen["totals"][0] == everything["totals"][0] // 2
    assert seen["pids"] == [[seen["pid"]]]
    assert 64 * MIB < seen["used"][0] < seen["totals"][0]
    assert seen["used"] == seen["used_v2"]
    assert seen["branch"] == everything["branch"]
    assert seen["beyond"] == INVALID_ARGUMENT
    assert seen["set_mode"] == NO_PERMISSION
    assert sorted(seen["foreign"]) == [0, NOT_FOUND]


def test_slice_of_several_devices(make_system: Callable[..., OwnSystem]) -> None:
    """2.5 of five devices: NVML and CUDA number the same three devices alike, whatever else the machine has."""
    system = make_system({"devices": "5", "memory_bytes": "2G"})
    everything = view(system)
    system.vgpu("slice", "create", "first", "--gpus", "0.7")  # so that the next slice does not begin at device 0
    seen = view(system, *in_slice("--gpus", "2.5"), arguments=("--cuda", *everything["uuids"]))
    assert len(seen["uuids"]) == 3 and seen["cuda_uuids"] == seen["uuids"]
    assert seen["indices"] == [0, 1, 2]
    minor_of = dict(zip(everything["uuids"], everything["minors"], strict=True))
    assert seen["minors"] == [minor_of[uuid] for uuid in seen["uuids"]] != seen["indices"], "/dev/nvidia<minor>"
    assert sorted(seen["totals"]) == [everything["totals"][0] // 2, *[everything["totals"][0]] * 2]
    assert sorted(seen["foreign"]) == [0, 0, 0, NOT_FOUND, NOT_FOUND]


def tools(system: OwnSystem, *before: str, arguments: tuple[str, ...] = ()) -> dict[str, Any]:
    """What nvml_tools.py prints, run behind `before`."""
    pytest.importorskip("nvitop", reason="needs the package nvitop")
    if find_spec("gpustat") is None:  # not imported here: it replaces functions of pynvml for the whole process
        pytest.skip("needs the package gpustat")
    env = client_environment(system.sim_dir) | {"VGPU_HOST": system.host}
    return json.loads(run_python(PROGRAMS / "nvml_tools.py", env, *before, arguments=arguments))


def test_all_clients_say_the_same(system: OwnSystem) -> None:
    """CUDA, nvidia-ml-py, nvitop and gpustat: one size, one use, one process, in a slice and without one."""
    for before in ((), in_slice("--gpus", "0.5", "--mem", "1G")):
        said = tools(system, *before)
        free, total, device_total = said["cuda"]
        assert total == device_total == said["nvml"]["total"] == said["nvitop"]["total"]
        assert total - free == said["nvml"]["used"] == said["nvitop"]["used"] >= 64 * MIB
        assert said["nvml_v2"] == {name: said["nvml"][name] for name in ("total", "used", "free")}
        assert [said["gpustat"][name] for name in ("total", "used")] == [total // MIB, (total - free) // MIB]
        assert said["processes"] == said["nvitop"]["processes"] == [[said["pid"], total - free]]
        assert said["gpustat"]["processes"] == [[said["pid"], (total - free) // MIB]]
    assert total == 1 << 30


def test_own_memory_is_shown_at_once(system: OwnSystem) -> None:
    """Each allocation and each free is in the very next answers, the context's memory and the process itself too."""
    env = client_environment(system.sim_dir) | {"VGPU_HOST": system.host}
    said = json.loads(run_python(PROGRAMS / "nvml_memory.py", env, *in_slice("--gpus", "0.5", "--mem", "1G")))
    assert len(said["first"]) == 3 and len(set(said["first"])) == 1 and said["first"][0] >= 64 * MIB
    assert [row for row in said["rows"] if set(row) != {row[0]}] == []


def has_pid_namespaces() -> bool:
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return shutil.which("unshare") is not None and subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.skipif(not has_pid_namespaces(), reason="needs the right to make pid namespaces")
def test_pids_are_those_of_the_own_namespace(system: OwnSystem, tmp_path: Path) -> None:
    """As in a container: its own processes by the numbers that it knows, none of other namespaces; the daemon's host
    sees all of them by its own."""
    inside = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    system.vgpu("slice", "create", "both", "--gpus", "0.5")
    joined = (*RUN, "--slice", "both", "--")
    said = tools(system, *joined, *inside, arguments=())
    assert said["pid"] == 1 and [row[0] for row in said["processes"]] == [1]
    assert [row[0] for row in said["nvitop"]["processes"]] == [1] == [row[0] for row in said["gpustat"]["processes"]]
    env = client_environment(system.sim_dir) | {"VGPU_HOST": system.host}
    stay = tmp_path / "stay"
    command = [*joined, *inside, sys.executable, str(VIEW), "--use", f"--stay={stay}"]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout and json.loads(other.stdout.readline())["pids"] == [[1]]
            seen = tools(system, *joined, *inside)
            assert [row[0] for row in seen["processes"]] == [1], "its own, not the other namespace's first"
            assert seen["nvml"]["used"] > seen["processes"][0][1], "which counts all the same"
            host = view(system, *joined)
            (pid,) = host["pids"][0]
            assert f"\t{pid}\t1\n" in Path(f"/proc/{pid}/status").read_text()
        finally:
            stay.touch()


def test_utilization_is_that_of_the_slice(system: OwnSystem) -> None:
    """All of a quarter is 100 %; the process's part of it agrees."""
    said = tools(system, *in_slice("--gpus", "0.25"), arguments=("--work",))
    assert said["nvml"]["gpu"] >= 75
    assert [row[0] for row in said["sampled"]] == [said["pid"]] and said["sampled"][0][1] >= 50


def test_looking_makes_no_tenant(system: OwnSystem) -> None:
    """A program that only asks NVML has no process in the slice, and sees those of its slice alone."""
    seen = view(system, *in_slice("--gpus", "0.5"))
    assert seen["pids"] == [[]] and seen["used"] == [0]


def test_fitted_to_the_library_behind_it(system: OwnSystem, tmp_path: Path) -> None:
    """A fitted copy has the names of the real library, no more and no fewer; without a slice it shows everything."""
    fitted = fit.fit(LIB / "libvgpu-ml.so", SIM / "libnvidia-ml.so.1", tmp_path / "libvgpu-ml.so")
    real = {name for name, symbol in elf.Elf(SIM / "libnvidia-ml.so.1").exports().items() if symbol.function}
    assert fitted.left_out == () and set(elf.Elf(fitted.path).exports()) - {"vg_shim_marker"} == real - {
        "_init",
        "_fini",
    }
    env = client_environment(system.sim_dir) | {
        "LD_PRELOAD": str(fitted.path),
        "VGPU_NVML": str(SIM / "libnvidia-ml.so.1"),
        "VGPU_SOCKET": "",
    }
    everything = view(system)
    shimmed = json.loads(run_python(VIEW, env))
    assert {**shimmed, "pid": 0} == {**everything, "pid": 0}


def test_daemon_away(system: OwnSystem, tmp_path: Path) -> None:
    """A slice whose daemon does not answer: the tools continue, and the log says once why they see everything."""
    log = tmp_path / "log"
    env = client_environment(system.sim_dir) | {
        "LD_PRELOAD": str(LIB / "libvgpu-ml.so"),
        "VGPU_NVML": str(SIM / "libnvidia-ml.so.1"),
        "VGPU_SOCKET": str(tmp_path / "nobody.sock"),
        "VGPU_LOG": str(log),
    }
    assert len(json.loads(run_python(VIEW, env))["uuids"]) == 2
    lines = [line for line in log.read_text().splitlines() if "NVML shows the whole device" in line]
    assert len(lines) == 1 and "nobody.sock" in lines[0]


def test_a_named_file_that_is_no_nvml(tmp_path: Path) -> None:
    named, log = str(SIM / "libcuda.so.1"), tmp_path / "log"
    env = {"LD_PRELOAD": str(LIB / "libvgpu-ml.so"), "VGPU_NVML": named, "VGPU_LOG": str(log)}
    code = "import ctypes; nvml = ctypes.CDLL('libnvidia-ml.so.1'); print(nvml.nvmlInit(), nvml.nvmlUnitGetCount(None))"
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == (f"{LIBRARY_NOT_FOUND} {LIBRARY_NOT_FOUND}\n", "")
    assert log.read_text().count(f"{named} is not NVML (it has no nvmlInit_v2): VGPU_NVML can name the real") == 1


@pytest.mark.parametrize("function", ["nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags"])
def test_one_init_asks_the_daemon_once(short_dir: Path, sim_device: Path, function: str) -> None:
    """The real library's nvmlInit calls nvmlInit_v2, which calls nvmlInitWithFlags: only the program's call is ours."""
    env = client_environment(sim_device) | {
        "LD_PRELOAD": str(LIB / "libvgpu-ml.so"),
        "VGPU_NVML": str(SIM / "libnvidia-ml.so.1"),
        "VGPU_SOCKET": str(short_dir / "daemon.sock"),
    }
    code = f"import ctypes; print(ctypes.CDLL('libnvidia-ml.so.1').{function}(0))"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.bind(str(short_dir / "daemon.sock"))
        daemon.listen(8)
        child = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        asked = 0
        daemon.settimeout(0.05)
        while child.poll() is None:  # each connection is closed, which the shim takes for a daemon that goes away
            with contextlib.suppress(TimeoutError):
                daemon.accept()[0].close()
                asked += 1
    assert (child.communicate()[0], asked) == ("0\n", 1)


#: says which of the given functions are missing, and what the others answer to no arguments
ANSWERS = """
import ctypes, json, sys
library = ctypes.CDLL("libnvidia-ml.so.1")
before = library.nvmlDeviceGetGpuFabricInfoV(None, None)
assert library.nvmlInit_v2() == 0
found = {n: getattr(library, n)(*[None] * 6) if hasattr(library, n) else "missing" for n in sys.stdin.read().split()}
print(json.dumps([before, found]))
"""


@pytest.mark.parametrize("words", [(), in_slice("--gpus", "0.5")], ids=["unhooked", "in a slice"])
def test_every_name_is_there(system: OwnSystem, words: tuple[str, ...]) -> None:
    """PyTorch looks up three that it hardly needs at its first "out of memory", and asserts that they are there."""
    names = (ROOT / "shim/nvml/names.txt").read_text().split()
    exports = elf.Elf(SIM / "libnvidia-ml.so.1").exports()
    assert [name for name in names if name not in exports] == []
    written = "".join(path.read_text() for path in (ROOT / "shim/simgpu/nvml").glob("*.c"))
    rest = [name for name in names if name not in written]
    assert "nvmlDeviceGetNvLinkRemotePciInfo_v2" in rest
    env = client_environment(system.sim_dir) | {"VGPU_HOST": system.host}
    command = [*words, sys.executable, "-c", ANSWERS]
    done = subprocess.run(command, env=env, input=" ".join(rest), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    before, found = json.loads(done.stdout)
    assert before == (UNINITIALIZED if not words else before)
    assert set(found.values()) <= {NOT_SUPPORTED, INVALID_ARGUMENT, NO_PERMISSION}, found


FABRIC = """
import ctypes
library, device = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p()
assert library.nvmlInit_v2() == library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
info = (ctypes.c_uint * 9)(0x2000024, *[7] * 8)
print(library.nvmlDeviceGetGpuFabricInfoV(device, info), [*info[1:]])
info[0] = 8
print(library.nvmlDeviceGetGpuFabricInfoV(device, info), library.nvmlDeviceGetGpuFabricInfoV(device, None))
"""


def test_no_device_is_part_of_a_fabric(sim_device: Path) -> None:
    """PyTorch asks with expandable segments, and takes an error for a broken library."""
    command = [sys.executable, "-c", FABRIC]
    done = subprocess.run(command, env=client_environment(sim_device), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"0 {[0] * 8}", f"{VERSION_MISMATCH} {INVALID_ARGUMENT}"]


def test_exports_nothing_else() -> None:
    """The library is found by name, and what it lacks is missing, as from an older driver."""
    library = ctypes.CDLL(str(SIM / "libnvidia-ml.so.1"))
    assert hasattr(library, "nvmlInit_v2")
    assert not hasattr(library, "sim_nvml_open") and not hasattr(library, "nvmlDeviceGetNoSuchThing")
