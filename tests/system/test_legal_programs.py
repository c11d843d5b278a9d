"""Programs that are legal CUDA say the same in a slice as without one: those of tests/sim, which check every call."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from vgpud.cli.demo.private_system import OwnSystem

ROOT = Path(__file__).resolve().parents[2]
PROGRAM_SECONDS = 120


@pytest.mark.parametrize("name", ["graphs", "captures"])
@pytest.mark.parametrize("gpus", ["1", "0.5"])
def test_in_a_slice(system: OwnSystem, tmp_path: Path, name: str, gpus: str) -> None:
    program = tmp_path / name
    flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-iquote", "shim"]
    command = [os.environ.get("CC", "gcc"), *flags, "-o", str(program), f"tests/sim/{name}.c"]
    subprocess.run([*command, "vgpud/lib/sim/libcuda.so.1"], cwd=ROOT, check=True)
    tenant = system.run(name, ("--gpus", gpus, "--mem", "4G"), [str(program)])
    assert tenant.process.wait(PROGRAM_SECONDS) == 0, tenant.error_file.read_text()
    assert tenant.output_file.read_text() == "ok\n"
