"""cuDNN of the simulated device, called by C programs: what it answers, how long it takes, what it refuses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.conftest import MakeDevice, device, run  # noqa: F401  device is a fixture

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
LIB = ROOT / "vgpud" / "lib" / "sim"
LIBRARY = LIB / "SIMULATED" / "libcudnn.so.9"
sys.path.insert(0, str(ROOT / "shim" / "codegen"))
import generate_simcuda  # noqa: E402

#: calls each function twice, with nothing and with memory that is no descriptor; prints how many answered
CALL_ALL = """
import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
memory = ctypes.create_string_buffer(1 << 16)
for name in sys.argv[2:]:
    for argument in (None, ctypes.addressof(memory)):
        ctypes.memset(memory, 0x5A, len(memory))
        library[name](*[ctypes.c_void_p(argument)] * 36)
print(len(sys.argv) - 2)
"""


@pytest.mark.parametrize("name", ["cudnn_older", "cudnn_graph"])
def test_program(device: MakeDevice, tmp_path: Path, name: str) -> None:  # noqa: F811
    flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"]
    folders = ["-iquote", str(ROOT / "shim"), "-iquote", str(ROOT / "tests" / "sim"), f"-L{LIB}"]
    libraries = [str(LIBRARY), "-l:libcuda.so.1", f"-Wl,-rpath,{LIBRARY.parent}"]
    output = tmp_path / name
    subprocess.run(["gcc", *flags, *folders, "-o", output, HERE / f"{name}.c", *libraries], check=True)
    assert run(output, device()) == "ok\n"


def test_no_function_falls_over_nonsense() -> None:
    """Each that PyTorch imports, without a device, given nothing and garbage."""
    names = generate_simcuda.read_imported_names()["cudnn"]
    assert len(names) > 80
    command = [sys.executable, "-c", CALL_ALL, str(LIBRARY), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{len(names)}\n"), done.stderr


def test_none_of_pytorchs_names_is_refused_for_want_of_code() -> None:
    library = next(one for one in generate_simcuda.LIBRARIES if one.folder == "cudnn")
    names = set(generate_simcuda.read_imported_names()["cudnn"])
    assert not names - generate_simcuda.read_defined_names(library)
