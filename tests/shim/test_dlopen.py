"""dlopen as the program sees it: the driver under any name, everything else untouched."""

from __future__ import annotations

import shutil
from pathlib import Path

import cudaspec
import pytest

from tests.shim import tiny_driver
from tests.shim.conftest import Run
from tests.shim.tiny_driver import TinyDriver


def snippet(name: str, folder: Path, *arguments: str | Path, output: str = "") -> Path:
    return tiny_driver.snippet(name, folder / (output or name), [], *arguments)


def test_the_callers_runpath_survives(same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path) -> None:
    """The wrapper jumps to the real dlopen, which looks at its return address for the caller's RUNPATH."""
    (tmp_path / "private").mkdir()
    snippet("nvml", tmp_path, "-shared", output="private/libonly-by-runpath.so")
    flags = [f"-Wl,-rpath,{tmp_path}/private", "-Wl,--enable-new-dtags"]
    host = snippet("runpath_host", tmp_path, *flags)
    stranger = snippet("runpath_host", tmp_path, output="stranger")
    for hook in (None, shim):
        assert run([host, "libonly-by-runpath.so"], same_driver, hook).returncode == 0
        result = run([stranger, "libonly-by-runpath.so"], same_driver, hook)
        assert result.returncode == 3
        assert "libonly-by-runpath.so: cannot open shared object file" in result.stderr


def test_every_spelling_of_the_driver_is_the_shim(
    same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path
) -> None:
    folder = same_driver.path.parent
    (tmp_path / "compat").mkdir()
    shutil.copy(same_driver.path, tmp_path / "compat/libcuda.so.580.65.06")
    (tmp_path / "gpu-driver.so").symlink_to(folder / "libcuda.so")
    names = ["libcuda.so.1", "libcuda.so", folder / "libcuda.so", same_driver.path]
    names += [tmp_path / "compat/libcuda.so.580.65.06", tmp_path / "gpu-driver.so", shim]
    opener = snippet("open_all", tmp_path)
    assert run([opener, *names], same_driver, shim).stdout.splitlines() == [f"{shim} 1"] * len(names)


def test_other_libraries_are_left_alone(same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path) -> None:
    other = snippet("nvml", tmp_path, "-shared", output="libcudart.so.13")
    snippet("nvml", tmp_path, "-shared", output="libcuda.so.backup")
    (tmp_path / "link.so").symlink_to(other)
    names = [
        "libm.so.6",
        other,
        tmp_path / "link.so",
        tmp_path / "libcuda.so.backup",
        "libnot-there.so",
        "/no/libcuda.so.1",
    ]
    names += ["libnvidia-ml.so.1"]
    opener = snippet("open_all", tmp_path)
    unhooked, hooked = run([opener, *names], same_driver), run([opener, *names], same_driver, shim)
    assert hooked.stdout == unhooked.stdout
    assert unhooked.stdout.count(" 0\n") == 4


def test_noload_still_asks_whether_the_program_has_the_driver(
    same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path
) -> None:
    asker = snippet("no_load", tmp_path)
    linked = snippet("no_load", tmp_path, "-Wl,--no-as-needed", same_driver.path, output="linked")
    assert run([asker], same_driver).stdout == run([asker], same_driver, shim).stdout == "0\n1\n"
    assert run([linked], same_driver).stdout == run([linked], same_driver, shim).stdout == "1\n1\n"


def test_without_a_driver_dlopen_fails_as_without_us(shim: Path, run: Run, tmp_path: Path) -> None:
    nowhere = {"VGPU_DRIVER": "/nowhere/libcuda.so.1", "VGPU_LOG": "stderr"}
    (tmp_path / "libcuda.so.1").write_text("not a library")
    (tmp_path / "driver").symlink_to("libcuda.so.1")
    names = ["libcuda.so.1", "libcuda.so", tmp_path / "driver"]
    result = run([snippet("open_all", tmp_path), *names], None, shim, nowhere)
    lines = result.stdout.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("- libcuda.so") and "No such file or directory" in line for line in lines)
    assert result.stderr.count("/nowhere/libcuda.so.1 is not a CUDA driver (/nowhere/libcuda.so.1: cannot open") == 1
    assert run([snippet("no_load", tmp_path)], None, shim, nowhere).returncode == 3


def test_a_linked_program_without_a_driver_gets_no_device(
    same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path
) -> None:
    linked = tiny_driver.snippet("linked", tmp_path / "linked", ["cuMemcpy"], same_driver.path)
    result = run([linked], None, shim, {"VGPU_DRIVER": "/nowhere/libcuda.so.1"})
    assert result.stdout == f"cuMemcpy {shim.name} 100\n"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("libm.so.6", "it has no cuInit"),
        ("/nowhere/libcuda.so.1", "/nowhere/libcuda.so.1: cannot open shared object file: No such file or directory"),
    ],
)
def test_a_named_file_that_is_no_driver(
    same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path, name: str, why: str
) -> None:
    """Every call says that there is no device, the log says why once, and cuInit says it to the user as well."""
    linked = tiny_driver.snippet("linked", tmp_path / "linked", ["cuMemcpy", "cuMemFree_v2"], same_driver.path)
    line = f"{name} is not a CUDA driver ({why}): VGPU_DRIVER can name the real libcuda.so.1"
    result = run([linked], same_driver, shim, {"VGPU_DRIVER": name, "VGPU_LOG": str(tmp_path / "log")})
    assert result.stdout.splitlines() == [f"{name} {shim.name} 100" for name in ("cuMemcpy", "cuMemFree_v2")]
    assert result.stderr == "" and (tmp_path / "log").read_text().count(line) == 1
    init = tiny_driver.snippet("linked", tmp_path / "init", ["cuInit", "cuInit"], same_driver.path)
    result = run([init], same_driver, shim, {"VGPU_DRIVER": name})
    assert result.stdout.splitlines() == [f"cuInit {shim.name} 100"] * 2
    assert result.stderr == f"vgpu: CUDA cannot start: {line}\n"


def test_the_shim_never_takes_itself_for_the_driver(
    same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path
) -> None:
    """A copy of the shim lies under the driver's name in front of the driver, as when it is mounted over it."""
    (tmp_path / "front").mkdir()
    shutil.copy(shim, tmp_path / "front/libcuda.so.1")
    program = snippet("call_init", tmp_path)
    expected = run([program], same_driver)
    for hook in (None, shim):
        paths = {"LD_LIBRARY_PATH": f"{tmp_path}/front:{same_driver.path.parent}"}
        result = run([program], None, hook, paths)
        assert (result.returncode, result.stdout) == (0, expected.stdout)
    wrong = {"VGPU_DRIVER": str(shim), "VGPU_LOG": "stderr"}
    log = run([program], same_driver, shim, wrong).stderr
    assert f"{shim} is not a CUDA driver (it is a hook of vgpud): VGPU_DRIVER can name the real libcuda.so.1" in log


def test_the_driver_is_the_one_that_the_loader_would_take(
    surface: cudaspec.Surface, same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path
) -> None:
    """First of LD_LIBRARY_PATH, not a file that is no library, and the environment as it was at the start."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "libcuda.so.1").write_text("not a library")
    aliases = {"cuMemcpy": "cuMemcpyDtoH"}
    first = tiny_driver.build(surface, tmp_path / "first", aliases=aliases)
    program = tiny_driver.snippet("by_dlopen", tmp_path / "program", ["cuMemcpy"])
    trace = tmp_path / "trace"
    for order, called in (
        ([tmp_path / "no-such", first.path.parent, same_driver.path.parent], "cuMemcpyDtoH"),
        ([same_driver.path.parent, first.path.parent], "cuMemcpy"),
    ):
        environment = {"LD_LIBRARY_PATH": ":".join(map(str, order)), "TINY_TRACE": str(trace)}
        trace.unlink(missing_ok=True)
        assert run([program, "libcuda.so.1", "2"], None, shim, environment).returncode == 0
        assert trace.read_text().splitlines() == [called]
    environment = {"LD_LIBRARY_PATH": f"{broken}:{same_driver.path.parent}", "TINY_TRACE": str(trace)}
    assert run([program, "libcuda.so.1", "2"], None, shim, environment).returncode == 0


def test_the_programs_own_rpath_leads_to_the_driver(
    same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path
) -> None:
    flags = [f"-Wl,-rpath,{same_driver.path.parent}"]
    program = tiny_driver.snippet("by_dlopen", tmp_path / "program", ["cuMemcpy"], *flags)
    for hook in (None, shim):
        result = run([program, "libcuda.so.1", "2"], None, hook)
        assert (result.returncode, len(result.stdout.split())) == (0, 3)


def test_a_driver_named_by_path_is_the_real_one(
    surface: cudaspec.Surface, same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path
) -> None:
    """Without us that file would answer from then on; so it does behind the hook, unless VGPU_DRIVER decides."""
    named = tiny_driver.build(surface, tmp_path / "named", aliases={"cuMemcpy": "cuMemcpyDtoH"})
    program = tiny_driver.snippet("by_dlopen", tmp_path / "program", ["cuMemcpy"])
    for given, called in (({}, "cuMemcpyDtoH"), ({"VGPU_DRIVER": str(same_driver.path)}, "cuMemcpy")):
        trace = tmp_path / f"trace-{called}"
        result = run([program, named.path, "2"], same_driver, shim, {"TINY_TRACE": str(trace)} | given)
        assert result.returncode == 0
        assert trace.read_text() == f"{called}\n"


def test_the_drivers_own_calls_pass(shim: Path, run: Run, tmp_path: Path) -> None:
    """The real driver opens itself and NVML by name: it must get the real ones, not the shims."""
    soname = "-Wl,-soname,libcuda.so.1"
    driver = snippet("driver_opens", tmp_path, "-shared", soname, output="real/libcuda.so.1")
    nvml_flags = ["-shared", "-Wl,-soname,libnvidia-ml.so.1"]
    nvml = snippet("nvml", tmp_path, *nvml_flags, output="real/libnvidia-ml.so.1")
    ml_shim = snippet("nvml", tmp_path, *nvml_flags, "-DSHIM", output="libvgpu-ml.so")
    program = snippet("call_init", tmp_path)
    environment = {"LD_LIBRARY_PATH": str(driver.parent), "TINY_NVML": str(nvml)}
    unhooked = run([program], None, None, environment)
    hooked = run([program], None, None, environment | {"LD_PRELOAD": f"{shim} {ml_shim}"})
    assert unhooked.stdout == hooked.stdout == f"{driver}\n{nvml}\n0\n"


def test_nvml_is_its_shim_under_every_name(same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path) -> None:
    flags = ["-shared", "-Wl,-soname,libnvidia-ml.so.1"]
    nvml = snippet("nvml", tmp_path, *flags, output="real/libnvidia-ml.so.1")
    (tmp_path / "real/libnvidia-ml.so").symlink_to("libnvidia-ml.so.1")
    ml_shim = snippet("nvml", tmp_path, *flags, "-DSHIM", output="libvgpu-ml.so")
    names = ["libnvidia-ml.so.1", "libnvidia-ml.so", nvml, tmp_path / "real/libnvidia-ml.so"]
    opener = snippet("open_all", tmp_path)
    environment = {"LD_PRELOAD": f"{shim} {ml_shim}", "TINY_NVML": str(nvml), "LD_LIBRARY_PATH": str(nvml.parent)}
    assert run([opener, *names], None, None, environment).stdout.splitlines() == [f"{ml_shim} 1"] * 4
    missing = environment | {"TINY_NVML": ""}
    del missing["TINY_NVML"]
    assert run([opener, names[0]], None, None, missing).stdout.startswith("- libnvidia-ml.so.1")
    alone = {"LD_PRELOAD": str(shim), "LD_LIBRARY_PATH": str(nvml.parent)}
    assert run([opener, *names], None, None, alone).stdout.splitlines() == [f"{nvml} 0"] * 4


@pytest.mark.parametrize("round_number", range(3))
def test_first_calls_at_the_same_time(
    round_number: int, same_driver: TinyDriver, shim: Path, rows: dict[str, object], run: Run, tmp_path: Path
) -> None:
    """Resolving takes no lock: eight threads and a child forked meanwhile all get through, with the same results."""
    names = [n for n in same_driver.names if getattr(rows[n], "behaviour", "") == "pass"]
    program = tiny_driver.snippet("first_calls", tmp_path / "first_calls", names)
    unhooked, hooked = run([program], same_driver), run([program], same_driver, shim)
    assert (hooked.returncode, hooked.stdout) == (0, unhooked.stdout)
