"""The same program without a daemon: alone, from a checkpoint, and as so many workers as torchrun starts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.elastic.fake_coordinator import wait_for
from tests.elastic.forked import Forked
from tests.ports import find_free_ports

pytest.importorskip("torch")

OPTIONS = ["--batch", "30", "--width", "4", "--records", "200", "--double", "--steps", "40"]


def start_program(folder: Path, name: str, *options: str, **env: str) -> Forked:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("VGPU_")}
    return Forked([*OPTIONS, *options], clean | env, folder / f"{name}.out", folder / f"{name}.err")


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    path = folder / f"{name}.out"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def losses(folder: Path, *names: str) -> dict[int, float]:
    return {line["step"]: line["loss"] for name in names for line in lines(folder, name) if line["event"] == "step"}


def test_as_many_as_torchrun_starts(tmp_path: Path) -> None:
    (port,) = find_free_ports(1)
    env = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo"}
    three = [start_program(tmp_path, f"rank-{rank}", RANK=str(rank), **env) for rank in range(3)]
    assert [process.wait(120) for process in three] == [0, 0, 0]
    assert start_program(tmp_path, "alone").wait(120) == 0
    wanted = losses(tmp_path, "alone")
    assert len(wanted) == 40
    for rank in range(3):
        assert losses(tmp_path, f"rank-{rank}") == pytest.approx(wanted, rel=1e-9)


def test_continues_from_a_checkpoint(tmp_path: Path) -> None:
    checkpoint = ("--checkpoint", str(tmp_path / "state.pt"))
    first = start_program(tmp_path, "first", *checkpoint, "--pause", "0.05")
    wait_for("a checkpoint", (tmp_path / "state.pt").exists)
    first.kill()
    with pytest.raises(AssertionError):
        assert first.wait(120) == 0
    assert start_program(tmp_path, "second", *checkpoint).wait(120) == 0
    assert start_program(tmp_path, "alone").wait(120) == 0
    assert min(losses(tmp_path, "second")) >= 10, "it did not begin anew"
    assert losses(tmp_path, "first", "second") == pytest.approx(losses(tmp_path, "alone"), rel=1e-9)
