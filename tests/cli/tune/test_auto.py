"""`vgpu submit --gpus auto`: the size that a kept tuning has found."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.core.tune.test_record import COMMAND, RECORD, candidate
from vgpud.cli.common import kept_tunes
from vgpud.core.tune.record import Record, Row


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Record:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return replace(RECORD, directory=os.getcwd(), device="SIMULATED H200")


@pytest.fixture
def submit(vgpu: Any, daemon: Any) -> Any:
    return lambda *words: vgpu("submit", "--gpus", "auto", *words, host=daemon.host)


def test_the_choice_fills_size_and_placeholders(record: Record, submit: Any, daemon: Any) -> None:
    kept_tunes.save(record)
    done = submit("--", *COMMAND)
    assert done.code == 0, done
    spec = daemon.queue.requests[-1].spec
    assert list(spec.command) == [*COMMAND[:-1], "128"]
    assert (spec.slice.gpus_milli, spec.environment["SIZE"]) == (500, "128")
    assert not spec.slice.HasField("mem_max_bytes")
    assert "--gpus 0.5, batch 128: by `vgpu tune`, train of 2023-11-1" in done.stderr


def test_a_command_with_values_gets_the_best_of_these(record: Record, submit: Any, daemon: Any) -> None:
    only_large = replace(record, rows=(record.rows[1], Row(candidate(250, 64)), *record.rows[2:]))
    kept_tunes.save(only_large)
    assert submit("--", *COMMAND[:-1], "64").code == 0
    spec = daemon.queue.requests[-1].spec
    assert (spec.slice.gpus_milli, spec.slice.mem_max_bytes, spec.environment["SIZE"]) == (500, 1 << 31, "64")


def test_what_the_user_gives_stays(record: Record, submit: Any, daemon: Any) -> None:
    kept_tunes.save(replace(record, rows=(record.rows[1],), choice=0))
    assert submit("--mem", "3G", "--class", "latency", "--env", "SIZE=1", "--", *COMMAND).code == 0
    spec = daemon.queue.requests[-1].spec
    assert (spec.slice.mem_max_bytes, spec.slice.service_class, spec.environment["SIZE"]) == (3 << 30, 2, "1")


def test_the_newest_counts(record: Record, submit: Any, daemon: Any) -> None:
    kept_tunes.save(record)
    kept_tunes.save(replace(record, name="other", unix_s=record.unix_s + 1, choice=0))
    assert submit("--", *COMMAND).code == 0
    assert daemon.queue.requests[-1].spec.slice.gpus_milli == 250


@pytest.mark.parametrize("fields", [{"directory": "/elsewhere"}, {"command": ("other",)}])
def test_without_a_tuning_it_says_what_to_do(record: Record, submit: Any, fields: dict[str, Any]) -> None:
    kept_tunes.save(replace(record, **fields))
    done = submit("--", *COMMAND)
    assert done.code == 4 and done.stderr.count("\n") == 1
    assert "no tuning of this command in this directory is kept: run `vgpu tune -- COMMAND` first" in done.stderr


def test_one_of_another_device_is_refused(record: Record, submit: Any) -> None:
    kept_tunes.save(replace(record, device="NVIDIA T4"))
    done = submit("--", *COMMAND)
    assert (
        done.code == 4 and "was on NVIDIA T4, and the daemon has SIMULATED H200: run `vgpu tune` again" in done.stderr
    )


@pytest.mark.parametrize("words", [("--image", "x"), ("--workers", "1-2"), ("--cluster",)])
def test_where_it_makes_no_sense(record: Record, submit: Any, words: tuple[str, ...]) -> None:
    done = submit(*words, "--", *COMMAND)
    assert done.code == 2 and "takes the size from `vgpu tune`" in done.stderr and done.stderr.count("\n") == 1
