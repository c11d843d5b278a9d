"""tools/setup on machines where something is missing: one line that names the package, and nothing half-made."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "tools" / "setup"
NO_NETWORK = "ERROR: Could not find a version that satisfies the requirement cffi (from versions: none)"


def script(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """tools/setup with nothing on the PATH but what the test puts there."""
    env = {"PATH": str(folder / "bin"), **environment}
    command = ["/bin/sh", str(SETUP), str(folder / "venv"), "demo"]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("python", "compiler", "line"),
    [
        (None, "exit 0", "python3 is missing: apt-get install python3"),
        (
            'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac',
            "exit 0",
            "Python 3.9.2 is too old: Python 3.10",
        ),
        ("exit 0", None, "gcc is missing: apt-get install gcc"),
        ("exit 0", "exit 1", "the headers of the C library are missing: apt-get install libc6-dev"),
        ('case "$2" in *ensurepip*) exit 1;; esac', "exit 0", "python3-venv is missing: apt-get install python3-venv"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, python: str | None, compiler: str | None, line: str) -> None:
    for name, text in (("python3", python), ("gcc", compiler)):
        if text is not None:
            script(tmp_path / "bin" / name, text)
    done = run(tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1
    assert done.stdout == "" and not (tmp_path / "venv").exists()


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (NO_NETWORK, "the Python package index cannot be reached: check the network"),
        ("error: subprocess-exited-with-error", "pip failed: error: subprocess-exited-with-error"),
    ],
)
def test_a_failure_of_pip_is_one_line(tmp_path: Path, output: str, line: str) -> None:
    for name in ("python3", "gcc"):
        script(tmp_path / "bin" / name, "exit 0")
    script(tmp_path / "venv" / "bin" / "pip", f"echo '{output}'; exit 1")
    done = run(tmp_path, PATH=f"{tmp_path / 'bin'}:/usr/bin:/bin")
    assert done.returncode == 1
    assert done.stderr.startswith(line) and done.stderr.count("\n") == 1
    assert str(tmp_path / "venv" / "pip.log") in done.stderr
