"""The source distribution and the wheel that are published, built once for all workers of a run."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import build_wheel  # noqa: E402


def build_packages(factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(source distribution, wheel), as `make wheel` makes them for this machine."""
    run = factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else factory.getbasetemp()
    folder = run / "published"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("wheel/*.whl")):
            (folder / "source").mkdir(exist_ok=True)
            build_wheel.build(build_wheel.source_distribution(folder / "source"), os.uname().machine, folder / "wheel")
    (archive,) = folder.glob("source/*.tar.gz")
    (wheel,) = folder.glob("wheel/*.whl")
    return archive, wheel
