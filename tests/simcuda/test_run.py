"""How programs find the simulated device's CUDA libraries: in slices, on a simulated device alone, in containers;
and never on a real device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vgpud import paths
from vgpud.libraries import environment, simulated
from vgpud.libraries import tree as library_tree
from vgpud.simdevice.process import SimulatedDevice
from vgpud.v1alpha1 import vgpud_pb2 as pb

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "shim" / "codegen"))
import generate_simcuda  # noqa: E402

DRIVER = paths.sim_lib_dir() / "libcuda.so.1"
OURS = [str(path) for path in simulated.cuda_libraries(DRIVER)]
pytestmark = pytest.mark.skipif(not DRIVER.exists(), reason="the native part is not built: python shim/build_shim.py")

#: prints the libraries of a process by their paths
MAPS = "print(''.join(sorted({line.split()[-1] + '\\n' for line in open('/proc/self/maps') if '.so' in line})))"
NODE: Any = SimpleNamespace(mode=pb.TENANT_MODE_COAST, driver="", nvml="", sim_dir="", runtime_dir="/run/x")
ITEM: Any = SimpleNamespace(attach_socket="/run/x/slices/a/attach.sock")


def test_the_list_is_what_is_built() -> None:
    nvrtc = simulated.nvrtc_folder(DRIVER).glob("*.so*")
    built = [*(Path(entry).name for entry in OURS), *(path.name for path in nvrtc)]
    assert sorted(built) == sorted(library.soname for library in generate_simcuda.LIBRARIES)


def test_no_library_asks_for_more_than_the_c_library() -> None:
    """Each process of a container loads them, in images that have nothing else, too."""
    for entry in OURS:
        lines = subprocess.run(["readelf", "-d", entry], capture_output=True, text=True, check=True).stdout.splitlines()
        needed = {line.partition("[")[2].rstrip("]") for line in lines if "(NEEDED)" in line}
        assert needed <= {"libc.so.6", "libpthread.so.0", "libdl.so.2", "ld-linux-x86-64.so.2"}, entry


def test_nvrtc_is_the_last_in_the_search_path_and_not_preloaded(drivers: None) -> None:
    """NVIDIA's compiles without a device: a program that has it keeps it."""
    made = environment.for_slice({"LD_LIBRARY_PATH": "/opt/cuda/lib"}, NODE, ITEM, is_simulated=True)
    folder = str(simulated.nvrtc_folder(DRIVER))
    assert made["LD_LIBRARY_PATH"].split(":")[-2:] == ["/opt/cuda/lib", folder]
    assert "libnvrtc" not in made["LD_PRELOAD"]


@pytest.fixture
def drivers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The drivers that a slice would get, real ones too, without a cache."""
    monkeypatch.setattr(environment, "fit_dir", lambda: tmp_path)
    monkeypatch.setattr(environment, "fitted_shims", lambda driver, nvml, folder: [folder / "libvgpu.so"])
    real = (Path("/usr/lib/libcuda.so.1"), None)
    sim = (DRIVER, DRIVER.with_name("libnvidia-ml.so.1"))
    monkeypatch.setattr(environment, "real_drivers", lambda old, daemons, is_simulated: sim if is_simulated else real)


@pytest.mark.usefixtures("drivers")
def test_a_slice_of_a_simulated_device_has_them_behind_the_hook(tmp_path: Path) -> None:
    made = environment.for_slice({"LD_PRELOAD": "/x/other.so"}, NODE, ITEM, is_simulated=True)
    assert made["LD_PRELOAD"].split(":") == [f"{tmp_path}/libvgpu.so", *OURS, "/x/other.so"]


@pytest.mark.usefixtures("drivers")
def test_a_slice_of_a_real_device_never_has_them(tmp_path: Path) -> None:
    """Nor from the environment of a program in a slice of a simulated one, of this or another release."""
    outer = ":".join(["/old/sim/SIMULATED/libcudart.so.12", *OURS, "/x/other.so"])
    sim_run = environment.preload_simulated({"LD_LIBRARY_PATH": f"/opt/cuda/lib:{DRIVER.parent}"})
    for before in ({}, {"LD_PRELOAD": outer}, sim_run):
        made = environment.for_slice(before, NODE, ITEM, is_simulated=False)
        assert "SIMULATED" not in "".join(made.values())
        assert made["LD_PRELOAD"].split(":")[0] == f"{tmp_path}/libvgpu.so"
    assert environment.remove_shim({"LD_PRELOAD": outer}) == {"LD_PRELOAD": "/x/other.so"}
    assert environment.remove_shim(sim_run) == {"LD_LIBRARY_PATH": "/opt/cuda/lib"}


#: a driver that has every name and no entry point of the simulated one
REAL_DRIVER = """
#define X(name) int name(void) { return 500; }
#include "simcuda/common/driver_names.h"
SC_DRIVER_NAMES(X)
"""
COUNT_DEVICES = "import ctypes; print(ctypes.CDLL('libcudart.so.13').cudaGetDeviceCount(ctypes.byref(ctypes.c_int())))"


def test_the_libraries_refuse_a_real_driver(tmp_path: Path) -> None:
    """There they would compute nothing without a word, while the program's own kernels run."""
    stub = tmp_path / "libcuda.so.1"
    command = ["gcc", "-x", "c", "-shared", "-fPIC", "-iquote", str(ROOT / "shim"), "-Wl,-soname,libcuda.so.1"]
    subprocess.run([*command, "-o", str(stub), "-"], input=REAL_DRIVER, text=True, check=True)
    env = {"LD_PRELOAD": f"{stub}:{DRIVER.parent / simulated.FOLDER / 'libcudart.so.13'}"}
    done = subprocess.run([sys.executable, "-c", COUNT_DEVICES], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == "35\n", "cudaErrorInsufficientDriver"
    assert done.stderr == "vgpu: the SIMULATED CUDA libraries compute nothing: they do not run on a real driver\n"


def test_containers_have_them_in_their_tree_on_a_simulated_device_alone(tmp_path: Path) -> None:
    nvml = DRIVER.with_name("libnvidia-ml.so.1")
    trees = {
        is_simulated: library_tree.library_tree(tmp_path / str(is_simulated), DRIVER, nvml, is_simulated)
        for is_simulated in (True, False)
    }
    shims = ["/usr/lib/vgpu/libvgpu.so", "/usr/lib/vgpu/libvgpu-ml.so"]
    names = [f"/usr/lib/vgpu/SIMULATED/{Path(entry).name}" for entry in OURS]
    assert (trees[True] / "ld.so.preload").read_text().split() == [*shims, *names]
    assert (trees[False] / "ld.so.preload").read_text().split() == shims
    assert not (trees[False] / "SIMULATED").exists()
    for entry in OURS:
        copy = trees[True] / "SIMULATED" / Path(entry).name
        assert copy.read_bytes() == Path(entry).read_bytes() and copy.stat().st_mode & 0o777 == 0o755


@pytest.fixture
def device(short_dir: Path) -> Any:
    with SimulatedDevice(short_dir / "sim", {"memory_bytes": "1G"}) as made:
        yield made


def run_on(device: SimulatedDevice, *command: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """As `vgpu sim run` does it."""
    words = [sys.executable, "-m", "vgpud.cli.main", "sim", "run", "--dir", str(device.directory), "--", *command]
    own = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    return subprocess.run(words, env=own, capture_output=True, text=True, timeout=60, check=False)


def compile_c(source: str, output: Path, *flags: str | Path) -> Path:
    output.parent.mkdir(parents=True, exist_ok=True)
    command = ["gcc", "-O1", "-o", output, "-x", "c", "-", "-x", "none", *flags]
    subprocess.run(command, input=source, text=True, check=True)
    return output


@pytest.mark.parametrize("tags", ["--disable-new-dtags", "--enable-new-dtags"])
def test_they_win_over_a_programs_own_search_path(device: SimulatedDevice, tmp_path: Path, tags: str) -> None:
    """DT_RPATH is searched before LD_LIBRARY_PATH: where NVIDIA's wheels are installed, PyTorch's leads to them."""
    version = tmp_path / "version.map"
    version.write_text("libcudart.so.13 { global: cudaGetDeviceCount; };")
    flags = ("-shared", "-fPIC", "-Wl,-soname,libcudart.so.13", f"-Wl,--version-script={version}")
    other = compile_c("int cudaGetDeviceCount(int *n) { *n = 77; return 0; }", tmp_path / "lib/libcudart.so.13", *flags)
    main = "int cudaGetDeviceCount(int *); int main(void) { int n; return cudaGetDeviceCount(&n) == 0 && n == 77; }"
    program = compile_c(main, tmp_path / "program", other, f"-Wl,{tags},-rpath,{other.parent}")
    assert subprocess.run([program], check=False).returncode == 1
    assert run_on(device, program).returncode == 0


def test_a_program_of_sim_run_has_them_all_and_no_hook(device: SimulatedDevice) -> None:
    maps = run_on(device, sys.executable, "-c", MAPS).stdout.split()
    assert set(OURS) <= set(maps)
    assert not [path for path in maps if "libvgpu" in path]
