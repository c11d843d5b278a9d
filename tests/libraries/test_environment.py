"""The environment that `vgpu run` gives to a program."""

from __future__ import annotations

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from vgpud import paths
from vgpud.cli.system import checks
from vgpud.errors import DeniedError, DriverError, VgpudError
from vgpud.libraries import environment, simulated
from vgpud.v1alpha1 import vgpud_pb2 as pb


def test_preload_stands_in_front_and_replaces_an_outer_shim() -> None:
    libraries = [Path("/a/libvgpu.so"), Path("/a/libvgpu-ml.so")]
    assert environment.preload(libraries, "") == "/a/libvgpu.so:/a/libvgpu-ml.so"
    before = "/x/libtcmalloc.so /old/libvgpu.so:/old/libvgpu-ml.so:libother.so"
    assert environment.preload(libraries, before) == "/a/libvgpu.so:/a/libvgpu-ml.so:/x/libtcmalloc.so:libother.so"


@pytest.mark.parametrize("path", ["/a b/libvgpu.so", "/a:b/libvgpu.so"])
def test_paths_that_the_loader_would_split_are_refused(path: str) -> None:
    with pytest.raises(VgpudError, match="splits LD_PRELOAD"):
        environment.preload([Path(path)], "")


@pytest.mark.parametrize("folder", ["a b", "a:b"])
def test_simulated_libraries_in_such_a_folder_are_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a slice and in one: a fitted shim may lie elsewhere, these do not."""
    made = tmp_path / folder / "sim"
    made.parent.mkdir()
    made.symlink_to(paths.sim_lib_dir())
    monkeypatch.setattr(paths, "sim_lib_dir", lambda: made)
    monkeypatch.setattr(environment, "fit_dir", lambda: tmp_path)
    drivers = (made / "libcuda.so.1", made / "libnvidia-ml.so.1")
    words = r"cannot preload '.*SIMULATED.*': the loader splits .*; install vgpud in a folder without them$"
    with pytest.raises(VgpudError, match=words):
        environment.preload_simulated({})
    with pytest.raises(VgpudError, match=words):
        environment.variables({}, drivers, "/run/x", "coast", "/run/sim")


def test_search_paths_have_the_folder_once_in_front() -> None:
    assert environment.first_in_path(Path("/sim"), "") == "/sim"
    assert environment.first_in_path(Path("/sim"), "/a:/sim::/b") == "/sim:/a:/b"


def test_the_simulated_driver_is_taken_only_for_a_simulated_device(tmp_path: Path) -> None:
    driver, nvml = environment.real_drivers({}, ("", ""), is_simulated=True)
    assert driver == paths.sim_lib_dir() / "libcuda.so.1"
    assert nvml == paths.sim_lib_dir() / "libnvidia-ml.so.1"
    missing = str(tmp_path / "libcuda.so.1")
    with pytest.raises(DriverError, match=r"libcuda\.so\.1 was not found; install the NVIDIA driver"):
        environment.real_drivers({}, (missing, ""), is_simulated=False)


@pytest.mark.parametrize(
    ("variable", "path", "why"),
    [
        ("VGPU_DRIVER", "/nowhere/libcuda.so.1", r"cannot be read \(No such file or directory\)"),
        ("VGPU_DRIVER", str(paths.sim_lib_dir() / "libnvidia-ml.so.1"), "has no cuInit"),
        ("VGPU_DRIVER", str(paths.lib_dir() / "libvgpu.so"), "is a hook of vgpud"),
        ("VGPU_NVML", str(paths.sim_lib_dir() / "libcuda.so.1"), "has no nvmlInit_v2"),
        ("VGPU_NVML", __file__, "is not a shared library"),
    ],
)
def test_a_named_file_that_is_not_the_library(
    variable: str, path: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`vgpu run` does not start, and the doctor says the same."""
    text = f"{variable} names {re.escape(path)}, which {why}"
    daemons = (str(paths.sim_lib_dir() / "libcuda.so.1"), "")
    with pytest.raises(DriverError, match=f"^{text}; unset it, or name the real library$"):
        environment.real_drivers({variable: path}, daemons, is_simulated=False)
    monkeypatch.setenv(variable, path)
    look = SimpleNamespace(node=SimpleNamespace(simulated=False, driver=daemons[0], nvml=""))
    (finding,) = checks.driver(cast(checks.Look, look))
    assert (finding.level, finding.remedy) == ("fail", "unset it, or name the real library")
    assert re.fullmatch(text, finding.text)


def test_the_users_driver_overrides_the_daemons(tmp_path: Path) -> None:
    with pytest.raises(DriverError, match="/users/libcuda"):
        environment.real_drivers({"VGPU_DRIVER": "/users/libcuda"}, ("/daemons/libcuda", ""), is_simulated=False)
    with pytest.raises(DriverError, match="/daemons/libcuda"):
        environment.real_drivers({}, ("/daemons/libcuda", ""), is_simulated=False)


@pytest.fixture
def two_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, Path]:
    cache, runtime = tmp_path / "cache", tmp_path / "run"
    monkeypatch.setattr(paths, "cache_dir", lambda: cache)
    monkeypatch.setattr(paths, "runtime_dir", lambda: runtime)
    return cache, runtime


def test_copies_lie_in_the_cache_for_all_to_read(two_places: tuple[Path, Path]) -> None:
    folder = environment.fit_dir()
    assert folder == two_places[0] / "fitted"
    assert folder.stat().st_mode & 0o777 == 0o755


def test_a_place_where_nothing_may_be_executed_is_passed_over(
    two_places: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs

    def statvfs(path: Any) -> Any:
        noexec = os.ST_NOEXEC if str(path).startswith(str(two_places[0])) else 0
        return SimpleNamespace(f_flag=(real(path).f_flag & ~os.ST_NOEXEC) | noexec)

    monkeypatch.setattr(os, "statvfs", statvfs)
    assert environment.fit_dir() == two_places[1] / "fitted"
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_NOEXEC))
    with pytest.raises(DeniedError, match="noexec: set XDG_CACHE_HOME"):
        environment.fit_dir()


def test_a_folder_that_others_may_write_is_not_used(two_places: tuple[Path, Path]) -> None:
    two_places[0].mkdir()
    two_places[0].chmod(0o777)
    assert environment.fit_dir() == two_places[1] / "fitted"


def node(**fields: Any) -> Any:
    return SimpleNamespace(
        **{"mode": pb.TENANT_MODE_COAST, "driver": "", "nvml": "", "sim_dir": "", "runtime_dir": "/run/x"} | fields
    )


def test_all_variables_of_a_simulated_slice(monkeypatch: pytest.MonkeyPatch, two_places: tuple[Path, Path]) -> None:
    monkeypatch.setattr(environment, "fitted_shims", lambda driver, nvml, folder: [folder / "libvgpu.so"])
    item: Any = SimpleNamespace(attach_socket="/run/x/slices/a/attach.sock")
    before = {"PATH": "/bin", "LD_PRELOAD": "/x.so", "LD_LIBRARY_PATH": "/opt/lib", "CUDA_VISIBLE_DEVICES": "3"}
    made = environment.for_slice(before, node(mode=pb.TENANT_MODE_CLOSED), item, is_simulated=True)
    sim = paths.sim_lib_dir()
    ours = ":".join(map(str, simulated.cuda_libraries(sim / "libcuda.so.1")))
    assert made == {
        "PATH": "/bin",
        "LD_PRELOAD": f"{two_places[0]}/fitted/libvgpu.so:{ours}:/x.so",
        "LD_LIBRARY_PATH": f"{sim}:/opt/lib:{simulated.nvrtc_folder(sim / 'libcuda.so.1')}",
        "VGPU_SOCKET": "/run/x/slices/a/attach.sock",
        "VGPU_DRIVER": f"{sim}/libcuda.so.1",
        "VGPU_NVML": f"{sim}/libnvidia-ml.so.1",
        "VGPU_MODE": "closed",
        "VGPU_SIM_DIR": "/run/x/sim",
    }
    assert before["CUDA_VISIBLE_DEVICES"] == "3", "ours is not changed"
    assert environment.for_slice({}, node(sim_dir="/s"), item, is_simulated=True)["VGPU_SIM_DIR"] == "/s"


def test_a_shim_that_is_not_built_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(paths, "lib_dir", lambda: tmp_path / "lib")
    with pytest.raises(VgpudError, match=r"libvgpu\.so does not exist: build it"):
        environment.fitted_shims(Path("/bin/true"), None, tmp_path)


def test_a_driver_that_is_no_library_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("libvgpu.so", "libcuda.so.1"):
        (tmp_path / name).write_text("no library")
    monkeypatch.setattr(paths, "lib_dir", lambda: tmp_path)
    with pytest.raises(VgpudError) as caught:
        environment.fitted_shims(tmp_path / "libcuda.so.1", None, tmp_path / "cache")
    assert "libvgpu.so" in str(caught.value) or "libcuda.so.1" in str(caught.value)
