"""`vgpu demo` as a user runs it, on the simulated device: what it leaves behind, and what it does not."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

DEMO = [sys.executable, "-m", "vgpud.cli.main", "demo"]
SIMULATED = "SIMULATED"
#: the demo where only vgpud is installed
BARE = """
import sys
from vgpud.cli.demo import demo_programs
from vgpud.cli.main import invoke
demo_programs.is_installed = lambda name: False
sys.exit(invoke(sys.argv[1:]))
"""


def environment(short_dir: Path) -> dict[str, str]:
    """Temporary files where we can look at them; caches stay the user's, so that nothing is compiled twice."""
    return {**os.environ, "TMPDIR": str(short_dir)}


def left_running(short_dir: Path) -> list[str]:
    """Processes that name this test's folder."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(short_dir / "vgpu-demo-") in word for word in words):
            found.append(" ".join(words))
    return found


def off_rows(figures: dict[str, Any]) -> list[bool]:
    """Of each row that is outside its limits: whether the host denied the demo as much processor, which excuses it."""
    over = [(row["off_pp"] - row["target"]["tolerance_pp"], row["denied_part"]) for row in figures["rows"]]
    return [pp <= 100 * (denied or 0) for pp, denied in over if pp > 0]


@pytest.mark.slow
def test_the_demo_needs_nothing_but_vgpud(short_dir: Path) -> None:
    out = short_dir / "out"
    command = [sys.executable, "-c", BARE, "demo", "--sim", "--seconds", "2", "--out", str(out)]
    done = subprocess.run(command, env=environment(short_dir), capture_output=True, text=True, timeout=280)
    assert "vgpu sim load trainer" in done.stdout and "no plot" in done.stdout
    figures = json.loads((out / "demo.json").read_text())
    assert [row["tenant"] for row in figures["rows"]] == ["alone", "small", "large", "small", "large", "small"]
    small, large = figures["rows"][1:3]
    off = off_rows(figures)
    assert small["share"] > 0 and (small["share"] < large["share"] or any(off))  # 0.25 and 0.75
    assert done.returncode == any(not by_host for by_host in off), done.stdout + done.stderr
    assert done.stdout.count("points outside (at most") == len(off)
    assert sum("█" in line for line in done.stdout.split("\n")) >= 2  # alone, and small when the other has ended
    assert left_running(short_dir) == []
    assert [p.name for p in out.iterdir()] == ["demo.json"]


@pytest.mark.slow
def test_the_demo_ends_with_table_plot_and_figures_and_leaves_nothing(short_dir: Path) -> None:
    pytest.importorskip("tinygrad")
    pytest.importorskip("matplotlib")
    out = short_dir / "out"
    command = [*DEMO, "--sim", "--seconds", "2", "--out", str(out)]
    done = subprocess.run(command, env=environment(short_dir), capture_output=True, text=True, timeout=280)
    assert done.stdout.startswith(SIMULATED)
    assert "timing only, numbers are not computed" in done.stdout and "loss" not in done.stdout
    figures = json.loads((out / "demo.json").read_text())
    assert figures["simulated"] is True and SIMULATED in figures["device"]
    assert [row["tenant"] for row in figures["rows"]] == ["alone", "small", "large", "small", "large", "small"]
    assert all(0 < row["memory_peak_bytes"] <= row["memory_limit_bytes"] for row in figures["rows"])
    assert all(row["rate"] > 0 and 0 < row["share"] <= 1.001 for row in figures["rows"]), figures["rows"]
    small, large = figures["rows"][1:3]
    off = off_rows(figures)
    assert small["share"] < large["share"] or any(off)  # 0.25 and 0.75
    assert done.stdout.count("points outside (at most") == len(off)  # how many is what benchmarks/shares.py measures
    assert done.returncode == any(not by_host for by_host in off), done.stdout + done.stderr
    assert (out / "shares.png").read_bytes()[:4] == b"\x89PNG"
    assert left_running(short_dir) == []
    assert [p.name for p in short_dir.iterdir()] == ["out"]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_stops_everything(short_dir: Path, number: signal.Signals) -> None:
    command = [*DEMO, "--sim", "--out", str(short_dir / "out")]
    running = subprocess.Popen(
        command, env=environment(short_dir), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert running.stdout
    while "set-up" not in running.stdout.readline():
        assert running.poll() is None
    running.send_signal(number)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "Traceback" not in errors
    assert left_running(short_dir) == []
    assert [p.name for p in short_dir.iterdir()] == ["out"]


def test_an_output_that_is_a_file_is_refused_by_name(short_dir: Path) -> None:
    path = short_dir / "file"
    path.touch()
    done = subprocess.run([*DEMO, "--sim", "--out", str(path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert str(path) in done.stderr and "Traceback" not in done.stderr


def test_a_temporary_folder_too_deep_for_sockets_is_refused_by_name(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    command = [*DEMO, "--sim", "--out", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment(deep), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert str(deep) in done.stderr and "TMPDIR" in done.stderr and done.stderr.count("\n") == 1
    assert list(deep.iterdir()) == []


def test_a_phase_that_is_too_short_is_refused() -> None:
    done = subprocess.run([*DEMO, "--sim", "--seconds", "0.5"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "0.5" in done.stderr
