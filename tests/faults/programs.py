"""The programs of these tests, compiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
_FLAGS = ["-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", "tests/sim", "-iquote", "shim"]
TENANT = ROOT / "tests/system/programs/tenant.c"


def build(folder: Path, *sources: Path) -> None:
    """Each is linked to libcuda.so.1, as a user's would be."""
    for source in sources:
        command = ["gcc", *_FLAGS, "-o", str(folder / source.stem), str(source), "vgpud/lib/sim/libcuda.so.1"]
        subprocess.run(command, cwd=ROOT, check=True)
