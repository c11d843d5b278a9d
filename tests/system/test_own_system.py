"""A system of one's own is the one that was installed, wherever its user stands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from vgpud.cli.demo.private_system import OwnSystem


def test_modules_of_the_current_folder_are_not_run(
    make_system: Callable[..., OwnSystem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In /tmp any user can lay a folder called vgpud."""
    (tmp_path / "vgpud").mkdir()
    (tmp_path / "vgpud" / "__init__.py").write_text("raise SystemExit('somebody else was run')")
    monkeypatch.chdir(tmp_path)
    system = make_system()
    system.vgpu("slice", "ls")
    part = system.run("a", ("--gpus", "0.5"), ["true"])
    assert part.process.wait(60) == 0, part.error_file.read_text()
