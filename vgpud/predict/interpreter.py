"""The PyTorch that a command will use, asked of the command's own interpreter without importing it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_LOOK = """
import importlib.util, json, os, runpy
spec = importlib.util.find_spec("torch")
if spec is not None and spec.origin:
    found = runpy.run_path(os.path.join(os.path.dirname(spec.origin), "version.py"))
    print(json.dumps([str(found.get("__version__", "")), found.get("cuda")]))
"""
_LOOK_S = 20
_LINE_BYTES_MAX = 1024


@dataclass(frozen=True, slots=True)
class Torch:
    """A version of PyTorch, and that of CUDA it was built for; "": for none."""

    version: str
    cuda: str


def find_interpreter(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The Python that runs the command: itself, or what its first line names; "" for any other program."""
    program = shutil.which(command[0], path=environment.get("PATH"))
    if program is None or Path(program).name.startswith("python"):
        return program or ""
    try:
        with open(program, "rb") as file:
            first = file.readline(_LINE_BYTES_MAX).decode(errors="replace")
    except OSError:
        return ""
    words = first[2:].split() if first.startswith("#!") else []
    if words and Path(words[0]).name == "env":
        words = [found for word in words[1:2] if (found := shutil.which(word, path=environment.get("PATH")))]
    return words[0] if words and Path(words[0]).name.startswith("python") else ""


def find_torch(command: Sequence[str], environment: Mapping[str, str]) -> Torch | None:
    """The command's PyTorch; None where it has none, or is no Python program."""
    interpreter = find_interpreter(command, environment)
    if not interpreter or not os.access(interpreter, os.X_OK):
        return None
    try:
        done = subprocess.run(
            [interpreter, "-c", _LOOK], env=dict(environment), capture_output=True, timeout=_LOOK_S, check=False
        )
        version, cuda = json.loads(done.stdout)
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        return None  # no PyTorch, or one whose version cannot be read
    return Torch(version, cuda or "")
