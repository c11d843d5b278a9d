"""How vgpu-runtime is linked: static where the C library allows it, and with a note and working where it does not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def interpreter(program: Path) -> bool:
    """Whether a program asks for a dynamic loader."""
    done = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True, check=True)
    return "INTERP" in done.stdout


def test_static_where_it_can_be(programs: Mapping[str, Path], tmp_path: Path) -> None:
    (tmp_path / "probe.c").write_text("int main(void) { return 0; }")
    command = [os.environ.get("CC", "gcc"), "-static", "-o", str(tmp_path / "probe"), str(tmp_path / "probe.c")]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("no static C library here")
    assert not interpreter(programs["shipped"]), "it would need the C library of whatever root it runs in"


def test_dynamic_with_a_note_where_it_cannot(tmp_path: Path) -> None:
    """A compiler that refuses -static, as one without a static C library does."""
    compiler = tmp_path / "cc"
    real = os.environ.get("CC", "gcc")
    compiler.write_text(f'#!/bin/sh\nfor word; do [ "$word" = -static ] && exit 1; done\nexec {real} "$@"\n')
    compiler.chmod(0o755)
    code = f"import build_shim, pathlib; build_shim.build_target('vgpu-runtime', pathlib.Path({str(tmp_path)!r}))"
    env = {**os.environ, "CC": str(compiler)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "shim", env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "linked dynamically" in done.stdout
    built = tmp_path / "vgpu-runtime"
    assert interpreter(built)
    Path(f"{built}.conf").write_text("runtime = true\n")
    assert subprocess.run([built, "state", "c1"], check=False).returncode == 0
