"""`vgpu doctor`: each thing that can be wrong is found and has a remedy."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from vgpud import paths
from vgpud.cli.common.options import Settings
from vgpud.cli.system import checks, checks_containers, checks_engines
from vgpud.client import held_slice
from vgpud.setup.site import Site
from vgpud.v1alpha1 import vgpud_pb2 as pb


def by_check(findings: Any) -> dict[str, checks.Finding]:
    return {f.check: f for f in findings}


def look(daemon: Any) -> checks.Look:
    return checks.Look(Settings(host=daemon.host))


@pytest.fixture
def no_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without container engines: other tests start, set up and stop those of this one meanwhile.
    test_doctor_containers.py has what is said of them."""
    monkeypatch.setattr(checks_engines, "find_program", lambda name: None)
    monkeypatch.setattr(checks_containers, "engines_here", list)
    monkeypatch.setattr(checks_containers, "Site", lambda **_: Site(prefix=tmp_path / "lib"))
    monkeypatch.setattr(checks_engines.dockerd, "DEFAULT_SOCKET", tmp_path / "docker.sock")
    monkeypatch.delenv("DOCKER_HOST", raising=False)


@pytest.mark.usefixtures("no_engines")
def test_every_problem_has_a_fix_and_fail_is_exit_1(vgpu: Any, tmp_path: Path) -> None:
    result = vgpu("doctor", "-o", "json", host=f"unix://{tmp_path}/none.sock")
    assert result.code == 1
    data = result.json
    assert (data["schema_version"], data["ok"]) == (1, False)
    for line in data["checks"]:
        assert line["level"] in ("ok", "warn", "fail")
        assert line["text"]
        assert line["level"] == "ok" or line["fix"], line
    daemon = next(line for line in data["checks"] if line["check"] == "daemon")
    assert (daemon["level"], daemon["text"]) == ("fail", "daemon not running")
    assert "vgpud serve" in daemon["fix"]


@pytest.mark.usefixtures("no_engines")
def test_names_are_the_checks_that_are_not_ok(vgpu: Any, tmp_path: Path) -> None:
    assert "daemon" in vgpu("doctor", "-o", "name", host=f"unix://{tmp_path}/none.sock").stdout.split()


def test_a_daemon_that_answers_is_ok_and_its_device_says_simulated(daemon: Any) -> None:
    found = by_check(checks.daemon(look(daemon)))
    assert found["daemon"].level == "ok"
    assert "SIMULATED" in found["devices"].text
    assert (found["daemon-version"].level, found["sim"].level) == ("warn", "fail")
    assert "vgpu sim start" in found["sim"].remedy


def test_the_simulated_devices_server_is_tried(daemon: Any) -> None:
    (daemon.runtime / "sim").mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
        server.bind(str(daemon.runtime / "sim" / "sock"))
        server.listen()
        assert by_check(checks.daemon(look(daemon)))["sim"].level == "ok"


def test_a_daemon_that_cannot_see_who_goes_past_it(daemon: Any) -> None:
    assert "pids" not in by_check(checks.daemon(look(daemon)))
    daemon.is_unwatched = True
    found = by_check(checks.daemon(look(daemon)))["pids"]
    assert found.level == "warn" and "--pid=host" in found.remedy


def test_what_the_kernel_granted_the_arbiters_thread() -> None:
    """SCHED_FIFO and locked memory are as they should be; less works, and has a remedy."""
    best = pb.ArbiterThread(device_uuid="GPU-0", scheduling=pb.SCHEDULING_FIFO, locked_bytes=4096)
    assert [(f.check, f.level) for f in checks._arbiter(best, {"GPU-0": 0})] == [("arbiter", "ok")]
    late = pb.ArbiterThread(
        device_uuid="GPU-0", scheduling=pb.SCHEDULING_FIFO, late=3, late_max_ns=2_500_000, steps_down=1
    )
    (found,) = checks._arbiter(late, {"GPU-0": 0})
    assert (
        found.level == "ok"
        and "the arbiter of device 0 has" in found.text
        and "3 times late, 2.5 ms at most; 1 times" in found.text
    )
    for scheduling in (pb.SCHEDULING_NICE, pb.SCHEDULING_NORMAL):
        less = pb.ArbiterThread(device_uuid="GPU-0", scheduling=scheduling, unlocked_bytes=8192)
        thread, memory = checks._arbiter(less, {"GPU-0": 0})
        assert (thread.level, memory.level) == ("warn", "warn")
        assert "CAP_SYS_NICE" in thread.remedy and "LimitMEMLOCK" in memory.remedy and "8 KiB" in memory.text


def test_what_the_driver_holds_slices_to() -> None:
    """A driver without memory limits is no fault; a slice without one is, where others have them."""
    node = pb.Node(memory_fence_problem="the driver has none")
    assert [(f.level, f.text) for f in checks.driver_fences(node, {})] == [
        ("ok", "no memory limits of the driver: the driver has none")
    ]
    node = pb.Node(memory_fence=True)
    assert [f.level for f in checks.driver_fences(node, {})] == ["ok"]
    node.memory_fence_problem = "slice a has no memory limit of the driver"
    node.time_slices.add(device_uuid="GPU-0", length="long")
    node.time_slices.add(device_uuid="GPU-1", length="short", problem="vgpud is not root")
    memory, long, short = checks.driver_fences(node, {"GPU-0": 0, "GPU-1": 1})
    assert (memory.level, long.level, short.level) == ("warn", "ok", "warn")
    assert long.text == "device 0 has long time slices of the driver"
    assert short.text == "device 1 has the driver's default time slices instead of short: vgpud is not root"


def test_drivers_that_hang_a_machine_are_known() -> None:
    (found,) = checks.driver_fences(pb.Node(driver_version="595.71.05"), {})
    assert (found.check, found.level) == ("driver-fault", "warn") and "issue 53" in found.remedy
    assert not list(checks.driver_fences(pb.Node(driver_version="595.71.06"), {}))


def test_a_slice_without_its_socket_is_found(vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "a", "--gpus", "0.5", host=daemon.host)
    found = by_check(checks.daemon(look(daemon)))["attach-socket"]
    assert found.level == "fail"
    assert "slice a" in found.text


def test_a_foreign_abi_is_a_failure(daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpud.client.held_slice.ABI_VERSION", held_slice.ABI_VERSION + 1)
    assert by_check(checks.daemon(look(daemon)))["abi-version"].level == "fail"


def test_libraries_that_are_missing_closed_or_split(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def levels(folder: Path) -> list[str]:
        monkeypatch.setattr(paths, "lib_dir", lambda: folder)
        return [f.level for f in checks.libraries(checks.Look(Settings()))]

    assert levels(tmp_path / "none") == ["fail", "fail"]
    for name in ("open", "with blank"):
        (tmp_path / name).mkdir()
        for library in ("libvgpu.so", "libvgpu-ml.so"):
            (tmp_path / name / library).write_text("")
    assert levels(tmp_path / "with blank") == ["fail", "fail"]
    (tmp_path / "open").chmod(0o700)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert levels(tmp_path / "open") == ["warn", "warn"]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert levels(tmp_path / "open") == ["ok", "ok"]


def test_the_environment_is_looked_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LD_PRELOAD", "libfine.so /no/such.so")
    monkeypatch.setenv("VGPU_SOCKET", str(tmp_path / "gone.sock"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = by_check(checks.environment(checks.Look(Settings())))
    assert "/no/such.so" in found["ld-preload"].text
    assert {f.level for f in found.values()} == {"warn"}
    assert set(found) == {"ld-preload", "in-slice", "visible-devices"}
    for name in ("LD_PRELOAD", "VGPU_SOCKET", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name)
    assert list(checks.environment(checks.Look(Settings()))) == []


def test_the_kernel_module_must_be_of_the_librarys_version(tmp_path: Path) -> None:
    library = tmp_path / "libcuda.so.1"
    (tmp_path / "libcuda.so.580.65.06").write_text("")
    library.symlink_to("libcuda.so.580.65.06")
    version = tmp_path / "version"
    assert next(checks._module_version(library, version)).level == "fail"
    version.write_text("580.65.06\n")
    assert list(checks._module_version(library, version)) == []
    version.write_text("570.10\n")
    finding = next(checks._module_version(library, version))
    assert (finding.level, finding.check) == ("fail", "driver-module")
    assert "580.65.06" in finding.text
    assert "570.10" in finding.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may use every node")
def test_device_nodes_that_are_closed(tmp_path: Path) -> None:
    for name in ("nvidiactl", "nvidia0"):
        (tmp_path / name).write_text("")
        (tmp_path / name).chmod(0)
    assert [f.level for f in checks._device_nodes(tmp_path)] == ["fail", "fail"]


def test_device_nodes_that_are_missing_or_fine(tmp_path: Path) -> None:
    assert [f.level for f in checks._device_nodes(tmp_path)] == ["fail"]
    (tmp_path / "nvidiactl").write_text("")
    assert list(checks._device_nodes(tmp_path)) == []


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver and NVML whose state a test sets."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    made = tmp_path_factory.mktemp("driver") / "fake_driver.so"
    source = Path(__file__).resolve().parents[2] / "daemon" / "fake_driver.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return made


@pytest.mark.parametrize(
    ("variable", "value", "text", "remedy"),
    [
        ("FAKE_COMPUTE_MODE", "3", "exclusive-process", "nvidia-smi -i 0 -c DEFAULT"),
        ("FAKE_MIG", "1", "MIG mode", "-mig 0"),
        ("FAKE_CUINIT", "100", "cuInit says", "nvidia-smi"),
    ],
)
def test_devices_that_cannot_be_shared(
    library: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, text: str, remedy: str
) -> None:
    monkeypatch.delenv("VGPU_SIM_DIR", raising=False)
    assert [f.level for f in checks._shareable(checks.Look(Settings()), library, library)] == ["ok"]
    monkeypatch.setenv(variable, value)
    finding = next(checks._shareable(checks.Look(Settings()), library, library))
    assert (finding.check, finding.level) == ("shareable", "fail")
    assert text in finding.text
    assert remedy in finding.remedy


def test_a_device_of_two_that_cannot_be_shared(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VGPU_SIM_DIR", raising=False)
    monkeypatch.setenv("FAKE_DEVICES", "2")
    monkeypatch.setenv("FAKE_MIG", "2")
    (finding,) = checks._shareable(checks.Look(Settings()), library, library)
    assert (finding.level, finding.remedy) == ("warn", "run `nvidia-smi -i 1 -mig 0`")
    assert finding.text.startswith("device 1: ")
    assert "held by MIG mode" in finding.text


def test_modules_of_the_current_folder_are_not_run(
    library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may stand in /tmp, where any user can lay a folder called vgpud."""
    (tmp_path / "vgpud").mkdir()
    (tmp_path / "vgpud" / "__init__.py").write_text("raise SystemExit('somebody else was run')")
    monkeypatch.delenv("VGPU_SIM_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    assert [f.level for f in checks._shareable(checks.Look(Settings()), library, library)] == ["ok"]


def test_a_check_that_breaks_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(look: checks.Look) -> Any:
        raise OSError("it broke")
        yield

    def fine(look: checks.Look) -> Any:
        yield checks.Finding("fine", "ok", "all well")

    monkeypatch.setattr(checks, "CHECKS", (broken, fine))
    assert [(f.check, f.level) for f in checks.all_findings(Settings())] == [("broken", "fail"), ("fine", "ok")]
