"""The shim's log: silent unless asked, whole lines, never a reason to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shim import tiny_driver
from tests.shim.conftest import ROOT, Run


@pytest.fixture(scope="module")
def logger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("log") / "logger"
    return tiny_driver.compile_c(output, tiny_driver.SNIPPETS / "log.c", ROOT / "shim/base/log.c")


def test_lines_go_where_they_are_wanted(logger: Path, run: Run, tmp_path: Path) -> None:
    file = tmp_path / "file.log"
    outputs = [run([logger], environment={"VGPU_LOG": "stderr"}).stderr]
    assert run([logger], environment={"VGPU_LOG": str(file)}).returncode == 0
    outputs.append(file.read_text())
    for text in outputs:
        once, long = text.splitlines()
        assert once.startswith("vgpu[") and once.endswith("]: once 0")
        assert text.endswith("\n") and len(long) == 511
    assert file.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("target", [None, "", "/nowhere/at/all.log", "/"])
def test_silent_and_harmless_otherwise(target: str | None, logger: Path, run: Run) -> None:
    result = run([logger], environment={} if target is None else {"VGPU_LOG": target})
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
