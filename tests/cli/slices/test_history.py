"""`vgpu history`: a plot for people, all points for programs."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

from tests.cli.fake_server import GIB, NODE
from vgpud.errors import ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.history import fill_cells, plot_lines

NOW_S = time.time_ns() // 60_000_000_000 * 60


def history(*used: int, step_s: int = 60, **fields: Any) -> pb.History:
    """Points up to now."""
    made = pb.History(name="a", node=NODE)
    made.step.FromSeconds(step_s)
    for n, milli in enumerate(used):
        point = made.points.add(
            used_milli=milli, used_peak_milli=milli, mem_used_bytes=GIB, mem_peak_bytes=2 * GIB, **fields
        )
        point.begin_time.FromSeconds(NOW_S - (len(used) - n) * step_s)
    return made


def test_a_plot_says_what_it_shows(vgpu: Any, daemon: Any) -> None:
    daemon.histories["a"] = history(0, 250, 500, min_milli=250, max_milli=500, mem_max_bytes=4 * GIB, waiting_milli=200)
    found = vgpu("history", "slice", "a", host=daemon.host)
    assert found.code == 0, found
    title, share, drawn, memory, _, waited, _ = found.stdout.splitlines()
    assert title.startswith("slice a: ")
    assert title.endswith("a character is 1m")
    assert share == "SM time: mean 0.25, peak 0.5; min 0.25, max 0.5 GPUs"
    assert drawn.strip()[-1] == "█"
    assert memory == "memory: mean 1GiB, peak 2GiB; limit 4GiB"
    assert waited == "waited at the gate: mean 20 %, highest 20 %"


def test_what_is_asked_for(vgpu: Any, daemon: Any) -> None:
    daemon.histories["0"] = daemon.histories[str(os.getuid())] = history(1)
    assert vgpu("history", "device", "0", "--since", "7d", "--step", "1h", host=daemon.host).code == 0
    assert vgpu("history", "user", str(os.getuid()), "-o", "name", host=daemon.host).stdout == "a\n"
    week, user = daemon.requests
    assert (week.kind, week.name, week.step.seconds) == (pb.HISTORY_KIND_DEVICE, "0", 3600)
    assert week.until_time.seconds - week.since_time.seconds == pytest.approx(7 * 86_400, abs=5)
    assert user.until_time.seconds - user.since_time.seconds == pytest.approx(3600, abs=1)


def test_programs_get_every_point(vgpu: Any, daemon: Any) -> None:
    daemon.histories["12"] = history(100, 200)
    found = vgpu("history", "job", "12", "-o", "json", host=daemon.host).json
    assert (found["kind"], found["step_s"]) == ("job", 60)
    assert [point["used_milli"] for point in found["points"]] == [100, 200]
    lines = vgpu("history", "job", "12", "-o", "csv", host=daemon.host).stdout.splitlines()
    assert lines[0].startswith("begin_time,used_milli,")
    assert lines[1].split(",")[1:3] == ["100", "100"]
    assert len(vgpu("history", "job", "12", "-o", "csv", "--no-headers", host=daemon.host).stdout.splitlines()) == 2


def test_what_is_wrong_is_said(vgpu: Any, daemon: Any) -> None:
    missing = vgpu("history", "slice", "b", host=daemon.host)
    assert (missing.code, missing.stderr) == (ExitCode.NOT_FOUND, "vgpu: there is no history of b\n")
    assert vgpu("history", "slice", "a", "--since", "1h", "--until", "2h", host=daemon.host).code == 2
    assert "which slice?" in vgpu("history", "slice", host=daemon.host).stderr
    assert vgpu("history", "nothing", "a", host=daemon.host).code == 2
    assert "no user" in vgpu("history", "user", "no-such-user", host=daemon.host).stderr
    daemon.histories["a"] = pb.History(name="a")
    assert "nothing was recorded" in vgpu("history", "slice", "a", host=daemon.host).stdout


def test_cells_have_the_mean_and_gaps_are_blank() -> None:
    made = history(100, 300, 500, 700, step_s=30)
    begin_s = NOW_S - 240
    assert fill_cells(made, lambda p: p.used_milli, begin_s, NOW_S, 4) == [None, None, 200, 600]
    assert fill_cells(made, lambda p: p.used_milli, NOW_S - 120, NOW_S, 8) == [100, 100, 300, 300, 500, 500, 700, 700]
    drawn = list(plot_lines(made, "slice", begin_s, NOW_S, 4, ascii_only=True))[2]
    assert drawn == "      -*"
