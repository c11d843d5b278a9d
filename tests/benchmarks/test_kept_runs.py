"""Runs of a long row are kept as they end."""

from __future__ import annotations

from pathlib import Path

from benchmarks.scheduling.kept_runs import KeptRuns, digest_sources


def double(task: str) -> dict[str, float]:
    return {"value": 2.0 * int(task)}


def fail(task: str) -> dict[str, float]:
    raise AssertionError(task)


def test_a_row_that_was_interrupted_continues(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "runs.jsonl"
    KeptRuns(path).measure(double, ["1", "2"])
    path.write_text(path.read_text() + '["3", {"val')  # the machine was switched off
    kept = KeptRuns(path)
    kept.measure(fail, ["2", "1"])
    assert (kept["1"], kept["2"]) == ({"value": 2}, {"value": 4})
    kept.measure(double, ["3", "1"])
    assert kept["3"] == {"value": 6}


def test_a_digest_of_what_decides() -> None:
    assert digest_sources() == digest_sources()
    assert len(digest_sources()) == 12
