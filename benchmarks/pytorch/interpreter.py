"""The interpreter with PyTorch's CUDA build that runs the programs of these benchmarks: VGPU_TORCH_PYTHON names it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

#: exit code of a benchmark that this machine cannot run
CANNOT = 3


def find_python(packages: Sequence[str] = ("torch",)) -> str:
    """The interpreter; "" where none is named or it lacks a package, which is printed."""
    python = os.environ.get("VGPU_TORCH_PYTHON", "")
    if not python:
        print("cannot measure: VGPU_TORCH_PYTHON names no interpreter with PyTorch")
        return ""
    words = f"import importlib.util as u; print(*[p for p in {list(packages)!r} if u.find_spec(p) is None])"
    done = subprocess.run([python, "-c", words], capture_output=True, text=True, check=True)
    if missing := done.stdout.split():
        print(f"cannot measure: {python} has no {', '.join(missing)}")
    return "" if missing else python


def read_versions(python: str, packages: Sequence[str]) -> str:
    """Of that interpreter's packages, as one line."""
    words = f"import importlib.metadata as m; print(*[p + ' ' + m.version(p) for p in {list(packages)!r}], sep=', ')"
    return subprocess.run([python, "-c", words], capture_output=True, text=True, check=True).stdout.strip()
