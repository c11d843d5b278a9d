"""`vgpu top`: a view per sample, bars that mean something."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_server import FakeDaemon

from vgpud.cli.top import BAR_CELLS, bar, frame


def test_bars_show_what_was_got_and_the_limits() -> None:
    assert bar(0.0, 0.0, 1.0) == "[" + "·" * (BAR_CELLS - 2) + "]"
    half = bar(0.5, 0.25, 1.0)
    assert half.count("█") == BAR_CELLS // 2 - 1
    assert half.index("[") == round(0.25 * BAR_CELLS)
    for got in (0.0, 0.33, 1.0, 1.2):
        for low, high in ((0.0, 0.01), (0.5, 0.5), (1.0, 1.0)):
            assert len(bar(got, low, high)) == BAR_CELLS


def test_json_is_a_line_a_view(vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "a", "--gpus", "0.5", host=daemon.host)
    result = vgpu("top", "-n", "3", "-d", "0.1", "-o", "json", host=daemon.host)
    assert result.code == 0
    views = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(views) == 3
    assert all(v["schema_version"] == 1 and v["at"].endswith("Z") for v in views)
    assert views[0]["slices"][0]["devices"][0]["share_ratio"] == 0.25


def test_without_a_terminal_tables_follow_each_other(vgpu: Any, daemon: Any) -> None:
    vgpu("slice", "create", "a", "--gpus", "0.5", host=daemon.host)
    result = vgpu("top", "-n", "2", "-d", "0.1", "--no-headers", host=daemon.host)
    assert [line.split()[:2] for line in result.stdout.splitlines()] == [["a", "0-SIMULATED"]] * 2


@pytest.mark.parametrize("width", [60, 140])
def test_a_frame_names_the_devices_and_their_slices(vgpu: Any, daemon: Any, width: int) -> None:
    from rich.console import Console

    from vgpud.cli import views

    vgpu("slice", "create", "tenant-a", "--gpus", "0.5", host=daemon.host)
    sample = {
        "devices": [views.device_view(d) for d in daemon.devices],
        "slices": [views.slice_view(s, views.simulated_uuids(daemon.devices)) for s in daemon.slices.values()],
    }
    out = Console(file=io.StringIO(), width=width)
    out.print(frame(out, sample))
    text = out.file.getvalue()
    assert "SIMULATED" in text
    assert "tenant-a" in text
    assert "0.5..0.5" in " ".join(text.split())


def test_on_a_terminal_it_draws_and_leaves_the_screen(daemon: Any) -> None:
    command = [sys.executable, "-m", "vgpud.cli.main", "--host", daemon.host, "top", "-n", "2", "-d", "0.1"]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, command, os.environ | {"TERM": "xterm"})
    text = b""
    try:
        while data := os.read(terminal, 4096):
            text += data
    except OSError:  # how Linux says that the other end of a terminal is closed
        pass
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 0
    assert b"no slices" in text
    assert text.count(b"\x1b[?1049h") == text.count(b"\x1b[?1049l") == 1


def test_it_waits_for_a_daemon_that_is_restarted(tmp_path: Path) -> None:
    first = FakeDaemon(tmp_path)
    command = [sys.executable, "-m", "vgpud.cli.main", "--host", first.host, "top", "-d", "0.1", "-o", "name"]
    with first:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == "\n"
            first.stop()
            assert "daemon" in process.stderr.readline()
            with FakeDaemon(tmp_path) as second:
                second.create("back")
                while process.stdout.readline() != "back\n":
                    pass
        finally:
            process.kill()
            process.communicate()
