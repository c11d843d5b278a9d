"""A virtual environment with PyTorch's build for CUDA and none of NVIDIA's wheels: it runs the programs of this folder.

It is made once, in .venv/torch: a download of half a gigabyte, and 1.2 GB on the disk.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
#: `===` takes this build alone, where `==` also takes one for processors (2.13.0+cpu) that lies on the machine
WANTED = "torch===2.13.0"
LIMIT_S = 240.0
#: for the environment, the wheel, and the copy of it that pip keeps
DISK_BYTES_MIN = 3 << 30
COMPLETE = ".complete"


class CannotMakeError(Exception):
    """Says in one line why there is no such environment."""


def read_dependencies(text: str) -> list[str]:
    """The extra `pytorch` of a pyproject.toml. Python 3.10 reads no TOML."""
    found = re.search(r"^pytorch = \[(.*)\]$", text, re.MULTILINE)
    assert found, "pyproject.toml has no extra `pytorch` in one line"
    return re.findall(r'"(.+?)"', found[1])


def find_reason(log: str) -> str:
    """The last error that pip reports, or its last line."""
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["pip said nothing"]
    return next((line for line in reversed(lines) if line.startswith("ERROR")), lines[-1])


def describe() -> str:
    """What a complete environment has: another one is replaced."""
    return "\n".join([WANTED, *read_dependencies(PYPROJECT.read_text()), sys.version])


def make(folder: Path, index: Sequence[str] = (), limit_s: float = LIMIT_S) -> Path:
    """The interpreter of the environment in a folder, which is used as it is if it is complete. Another that makes it
    at the moment is waited for. index: options of pip. Raises CannotMakeError."""
    folder.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        complete = folder / COMPLETE
        if not complete.exists() or complete.read_text() != describe():
            try:
                _install(folder, index, limit_s)
            except CannotMakeError:
                shutil.rmtree(folder, ignore_errors=True)  # it may have a gigabyte already
                raise
            complete.write_text(describe())
    return folder / "bin/python"


def _install(folder: Path, index: Sequence[str], limit_s: float) -> None:
    if (free := shutil.disk_usage(folder).free) < DISK_BYTES_MIN:
        raise CannotMakeError(f"{folder} has {free >> 20} MiB of free disk, and {DISK_BYTES_MIN >> 20} are needed")
    # --no-compile: what the programs import is compiled then, and that is a part of it.
    pip = [
        folder / "bin/python",
        "-m",
        "pip",
        "install",
        "--retries",
        "1",
        "--no-compile",
        "--progress-bar",
        "off",
        *index,
    ]
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", "--clear", folder],
        [*pip, *read_dependencies(PYPROJECT.read_text())],
        [*pip, "--no-deps", WANTED],
    ]
    deadline_s = time.monotonic() + limit_s
    for command in commands:
        left_s = max(0.0, deadline_s - time.monotonic())
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=left_s, check=False)
        except subprocess.TimeoutExpired:
            raise CannotMakeError(f"{WANTED} was not installed after {limit_s:.0f} s") from None
        if done.returncode:
            raise CannotMakeError(find_reason(done.stdout + done.stderr))
