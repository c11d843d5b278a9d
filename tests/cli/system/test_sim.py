"""`vgpu sim`: a server in the background, its devices, programs on it without a slice."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud import paths
from vgpud.simdevice import state_page
from vgpud.simdevice.liveness import Simulator

#: prints how many devices an unmodified program sees
COUNT = """
import ctypes
cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0
print(count.value)
"""
BUILT = (paths.sim_lib_dir() / "vgpu-simd").exists()
needs_server = pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py")


@pytest.fixture
def folder(vgpu: Any) -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="vgs-", dir="/tmp"))
    yield made / "sim"
    vgpu("sim", "stop", "--dir", str(made / "sim"))
    shutil.rmtree(made)


@needs_server
def test_start_status_run_stop(vgpu: Any, folder: Path) -> None:
    where = ("--dir", str(folder))
    begun = vgpu("sim", "start", *where, "--devices", "2", "--memory", "8G", "--host-memory", "1G")
    assert begun.code == 0, begun
    assert [line.split()[0] for line in begun.stdout.splitlines()[1:]] == ["0-SIMULATED", "1-SIMULATED"]
    assert f"host_memory_bytes = {1 << 30}\n" in (folder / "sim.conf").read_text()
    data = vgpu("sim", "status", *where, "-o", "json").json
    assert [d["memory_bytes"] for d in data["devices"]] == [8 << 30] * 2
    assert all("SIMULATED" in d["name"] for d in data["devices"])
    assert vgpu("sim", "run", *where, "--", sys.executable, "-c", COUNT).stdout == "2\n"
    assert vgpu("sim", "run", *where, "--", "sh", "-c", "exit 9").code == 9
    again = vgpu("sim", "start", *where)
    assert again.code == 8
    assert "already" in again.stderr
    assert vgpu("sim", "stop", *where).code == 0
    assert vgpu("sim", "status", *where).code == 4


@needs_server
def test_a_simulator_in_the_background_is_seen_to_live(vgpu: Any, folder: Path) -> None:
    vgpu("sim", "start", "--dir", str(folder))
    simulator = Simulator(folder)
    assert simulator.look() == (True, True)  # else a daemon offers none of its devices
    vgpu("sim", "stop", "--dir", str(folder))
    until = time.monotonic() + 10
    while simulator.look() != (False, False):  # its kernel side may take a moment
        assert time.monotonic() < until
        time.sleep(0.01)


@needs_server
def test_a_page_without_a_server_ends_no_process(vgpu: Any, folder: Path) -> None:
    """Its number 0 would mean the group of the command itself."""
    vgpu("sim", "start", "--dir", str(folder))
    page = folder / state_page.PAGE_NAME
    with page.open("r+b") as file:
        head = file.read(12)
        file.seek(8)
        file.write(bytes(4))
    stopped = vgpu("sim", "stop", "--dir", str(folder))
    with page.open("r+b") as file:
        file.write(head)
    assert stopped.code == 8 and "names no server" in stopped.stderr


@pytest.mark.parametrize(("command", "code"), [(("status",), 4), (("stop",), 4), (("run", "--", "true"), 125)])
def test_no_server_is_said_with_the_fix(vgpu: Any, tmp_path: Path, command: tuple[str, ...], code: int) -> None:
    result = vgpu("sim", command[0], "--dir", str(tmp_path), *command[1:])
    assert result.code == code
    assert result.stderr.startswith(f"vgpu: no simulated device runs in {tmp_path}: start it with `vgpu sim start")


@pytest.mark.parametrize("command", [("status",), ("stop",), ("run", "--", "true")])
def test_a_default_folder_of_strangers_is_refused(
    vgpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """Its page would say which process `stop` ends. A folder that was named is the user's own choice."""
    monkeypatch.delenv("VGPU_SIM_DIR", raising=False)
    monkeypatch.setattr(paths, "runtime_dir", lambda *_: tmp_path / "vgpud")
    (tmp_path / "vgpud").mkdir()
    (tmp_path / "vgpud").chmod(0o777)
    result = vgpu("sim", *command)
    assert result.code == (125 if command[0] == "run" else 5)
    assert "chmod go-w" in result.stderr
    monkeypatch.setenv("VGPU_SIM_DIR", str(tmp_path / "vgpud" / "sim"))
    monkeypatch.setattr(paths, "runtime_dir", lambda *_: tmp_path / "other")
    assert "no simulated device runs" in vgpu("sim", *command).stderr


@needs_server
def test_a_wrong_configuration_is_usage_and_names_the_line(vgpu: Any, folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.conf"
    config.write_text("devices = 1\nnonsense = 2\n")
    result = vgpu("sim", "start", "--dir", str(folder), "--config", str(config))
    assert result.code == 2
    assert f"{config}:2" in result.stderr
    assert result.stderr.count("\n") == 1
    assert vgpu("sim", "status", "--dir", str(folder)).code == 4


@needs_server
def test_host_memory_is_not_ignored_beside_a_configuration(vgpu: Any, folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "c.conf"
    config.write_text("devices = 1\n")
    result = vgpu("sim", "start", "--dir", str(folder), "--config", str(config), "--host-memory", "1G")
    assert result.code == 2
    assert "host_memory_bytes" in result.stderr


def test_the_simulated_program_is_not_hooked(monkeypatch: pytest.MonkeyPatch) -> None:
    from vgpud.libraries.environment import remove_shim

    before = {"LD_PRELOAD": "/x/libvgpu.so:/y/lib.so", "VGPU_SOCKET": "/s", "A": "b"}
    assert remove_shim(before) == {"LD_PRELOAD": "/y/lib.so", "A": "b"}
    assert remove_shim({"LD_PRELOAD": "/x/libvgpu.so"}) == {}


@needs_server
def test_coverage_counts_what_it_lists(vgpu: Any) -> None:
    data = vgpu("sim", "coverage", "-o", "json").json
    assert data["entry_points"]["cuInit"] is True
    assert data["implemented"] == sum(data["entry_points"].values())
    assert data["total"] == len(data["entry_points"]) > data["implemented"]
    missing = vgpu("sim", "coverage", "--missing", "-o", "name").stdout.split()
    assert len(missing) == data["total"] - data["implemented"]
    assert "cuInit" not in missing
