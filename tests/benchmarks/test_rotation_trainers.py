"""What the rows of trainers in turn are made of: their reports, and why a framework is left out."""

import pytest

from benchmarks import rotation_trainers


def test_what_was_completed_is_what_was_reported_last() -> None:
    lines = [
        {"event": "start", "time_ns": 1},
        {"event": "training", "time_ns": 5},
        {"event": "progress", "time_ns": 10, "samples": 100},
        {"event": "progress", "time_ns": 20, "samples": 300},
    ]
    assert [rotation_trainers.samples_at(lines, time_ns) for time_ns in (0, 9, 10, 19, 25)] == [0, 0, 100, 100, 300]


def test_a_framework_that_is_not_there_is_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VGPU_TORCH_PYTHON", raising=False)
    found = rotation_trainers.measure("torch", (2,), 1)
    assert found == {"skipped": "VGPU_TORCH_PYTHON names no interpreter with torch and numpy"}
