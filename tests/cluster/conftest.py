"""A system of folders and stand-ins for each test that asks for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.system import System


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    return System(tmp_path, monkeypatch)


@pytest.fixture
def quick_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    """The same without a process for each of Slurm's programs."""
    return System(tmp_path, monkeypatch, quick=True)
