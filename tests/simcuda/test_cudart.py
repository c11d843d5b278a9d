"""The simulated device's CUDA runtime: C programs that register fat binaries as nvcc's stubs do, alone and in a slice;
programs of nvcc where there is one; and that every name that programs import is there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.libraries import simulated
from vgpud.libraries.environment import preload_simulated
from vgpud.simdevice.process import SimulatedDevice

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "shim" / "codegen"))
import generate_simcuda  # noqa: E402

FOLDER = paths.sim_lib_dir() / "SIMULATED"
NOTICE = "vgpu: SIMULATED: kernels compute nothing; results are zeros"
RUNTIMES = ("libcudart.so.12", "libcudart.so.13")
pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="the native part is not built: python shim/build_shim.py")

MakeProgram = Callable[..., Path]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> MakeProgram:
    """Compiles tests/simcuda/NAME.c against a runtime, once."""
    folder = tmp_path_factory.mktemp("programs")

    def make(name: str, runtime: str = RUNTIMES[-1]) -> Path:
        path = folder / f"{name}-{runtime}"
        if not path.exists():
            flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-iquote", str(ROOT / "shim")]
            source = [str(HERE / f"{name}.c"), f"-L{FOLDER}", f"-l:{runtime}", "-ldl"]
            subprocess.run(["gcc", *flags, "-o", str(path), *source], check=True)
        return path

    return make


@pytest.fixture
def device(short_dir: Path) -> Iterator[SimulatedDevice]:
    with SimulatedDevice(short_dir / "sim", {"memory_bytes": "1G"}) as made:
        yield made


def run(device: SimulatedDevice, *command: str | Path) -> subprocess.CompletedProcess[str]:
    """As `vgpu sim run` does it, in this process."""
    env = preload_simulated(device.environment())
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("runtime", RUNTIMES)
@pytest.mark.parametrize("name", ["errors", "values", "work"])
def test_a_program_runs_on_the_device(program: MakeProgram, device: SimulatedDevice, name: str, runtime: str) -> None:
    done = run(device, program(name, runtime))
    assert done.stdout
    # once, and of a program alone that reads what was not computed
    assert done.stderr.splitlines() == [NOTICE] * (name == "values")


def test_a_program_prints_the_same_in_a_slice(
    program: MakeProgram, device: SimulatedDevice, make_system: Callable[..., OwnSystem]
) -> None:
    system = make_system()
    env = {**os.environ, "PYTHONPATH": str(ROOT), "VGPU_SIM_DIR": str(system.sim_dir), "VGPU_HOST": system.host}
    command = [sys.executable, "-m", "vgpud.cli.main", "run", "--gpus", "0.5", "--mem", "1G", "--"]
    for name in ("work", "errors", "values"):
        done = subprocess.run(
            [*command, str(program(name))], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout == run(device, program(name)).stdout


def test_two_versions_share_a_process(program: MakeProgram, device: SimulatedDevice) -> None:
    done = run(device, program("two_versions"), *(FOLDER / name for name in RUNTIMES))
    assert done.stdout.split() == ["12080", "13000", "ok"]


def test_there_is_no_device_without_a_driver(program: MakeProgram, tmp_path: Path) -> None:
    """An error that names the driver, and no crash."""
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path), "LD_PRELOAD": str(FOLDER / RUNTIMES[-1])}
    done = subprocess.run([program("no_driver")], env=env, capture_output=True, text=True, timeout=60, check=False)
    if "found" in done.stdout:
        pytest.skip("this machine has a CUDA driver")
    assert (done.returncode, done.stdout) == (0, "cudaErrorInsufficientDriver\n"), done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("library", generate_simcuda.LIBRARIES, ids=lambda library: library.soname)
def test_every_imported_name_is_exported(library: generate_simcuda.Library) -> None:
    path = simulated.nvrtc_folder(FOLDER.parent / "libcuda.so.1") if "nvrtc" in library.soname else FOLDER
    command = ["nm", "-D", "--defined-only", "--with-symbol-versions", str(path / library.soname)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    exported = {line.split()[-1].replace("@@", "@") for line in lines}
    suffix = f"@{library.node}" if library.node else ""
    imported = {f"{name}{suffix}" for name in generate_simcuda.read_imported_names()[library.folder]}
    assert imported <= exported, sorted(imported - exported)


@pytest.mark.slow
def test_a_program_of_nvcc_runs(device: SimulatedDevice, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("needs nvcc")
    output = tmp_path / "features"
    code = [f"-gencode=arch=compute_{number},code=sm_{number}" for number in (80, 90)]
    subprocess.run([nvcc, "-cudart", "shared", *code, "-o", output, HERE / "features.cu"], check=True)
    major = max(name for name in RUNTIMES if name in Path(output).read_bytes().decode("latin-1"))
    assert run(device, output).stdout.splitlines()[-1] == "ok", major
