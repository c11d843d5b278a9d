"""`collect` on the CPU, as no device is here: rows, resuming, pairs, and that simulated rows stay apart."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.predict import architectures, collect, collect_pairs, collect_process
from benchmarks.predict.collect import Workload
from benchmarks.qualify import checks, steps
from vgpud.predict import dataset, graph_counts, torch_trace
from vgpud.predict.features import FEATURES, Features

#: by torch alone: torchvision and transformers need not be here
PLAIN = ("mlp", "mlp_deep", "lenet", "unet", "lstm", "gru", "encoder")


def row(device: str, architecture: str, batch: int, utilisation: float | None = 0.5, gib: float = 1.0) -> dataset.Row:
    known = Features({**dict.fromkeys(FEATURES, 1.0), "batch": batch})
    return dataset.Row(device, "cnn", architecture, known, utilisation, None, gib * 2**30, 1e6)


def test_the_plan() -> None:
    """At least 13 architectures of three families and more, at least 100 workloads; a part of it is spread."""
    whole = collect.plan()
    assert len({one.name for one in whole}) >= 13 and len(whole) >= 100
    assert {one.family for one in whole} >= {"cnn", "rnn", "transformer"}
    assert len({(one.architecture, one.batch) for one in whole}) == len(whole)
    first = [one.family for one in whole if one.batch in (8, 128)]
    assert set(first) == {one.family for one in whole}
    few = collect.plan(["lstm"], 2, ["fp32"])
    assert [(one.name, one.batch) for one in few] == [("lstm", 2), ("lstm", 64)]
    # a process, PyTorch and a context for each architecture, a measurement and its warming up for each workload
    names = len({one.name for one in whole})
    assert names * 8 + len(whole) * (collect.MEASURE_S + 2) < collect.TOTAL_S < 540


@pytest.mark.parametrize(("count", "batches"), [(1, [4]), (2, [1, 16]), (3, [1, 4, 16]), (9, [1, 2, 4, 8, 16])])
def test_spread(count: int, batches: list[int]) -> None:
    assert collect.spread((1, 2, 4, 8, 16), count) == batches


@pytest.mark.parametrize("name", PLAIN)
def test_architectures_are_entry_points_of_their_families(name: str) -> None:
    made = torch_trace.trace(f"benchmarks.predict.architectures:{name}", 2, True)
    counts = graph_counts.count(made, 2)
    assert counts.family == architectures.ALL[name].family and counts.unknown == ()


def run(capsys: pytest.CaptureFixture[str], *args: object) -> tuple[int, dict[str, Any], str]:
    code = collect.main(["--cpu", "--json", *map(str, args)])
    out = capsys.readouterr().out
    return code, json.loads(out.splitlines()[-1]), out


@pytest.mark.slow
def test_a_dry_run_appends_rows_and_continues(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Then two of what it found at once."""
    data = tmp_path / "cpu.csv"
    few = ("--data", data, "--only", "lenet", "--batches", 1)
    code, found, _out = run(capsys, *few)
    assert (code, found["rows"], found["of"], found["failed"]) == (0, 2, 2, 0)
    rows = dataset.read(data)
    assert {one.architecture for one in rows} == {"lenet", "lenet fp16"}
    for one in rows:
        assert one.device.startswith("SIMULATED ") and one.family == "cnn"
        assert one.utilisation is None and one.memory_bytes is None and (one.step_ns or 0) > 0
        assert one.features["batch"] == 512 and one.features["convolutions"] == 2
    before = data.read_bytes()
    code, found, out = run(capsys, *few)
    assert (code, found["rows"]) == (0, 2) and "2 are in" in out and data.read_bytes() == before
    assert collect.main(["--cpu", "--data", str(data), "--pairs", "1", "--total", "200"]) == 0
    output = capsys.readouterr().out
    assert "times as long" in output
    lines = (tmp_path / "cpu-pairs.csv").read_text().splitlines()
    assert lines[0].split(",") == list(collect_pairs.COLUMNS) and len(lines) == 2
    assert lines[1].startswith("SIMULATED ")


def test_simulated_and_measured_rows_are_never_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    real = tmp_path / "real.csv"
    dataset.append(real, [row("h100", "lenet", 8)])
    assert collect.main(["--cpu", "--data", str(real)]) == 2
    assert "never mixed" in capsys.readouterr().err
    assert collect.read_measured(real, "h100") == {("lenet", 8.0)}
    assert collect.read_measured(real, "h200") == set()
    simulated = tmp_path / "simulated.csv"
    dataset.append(simulated, [row("SIMULATED h100", "lenet", 8)])
    with pytest.raises(dataset.DataError, match="has SIMULATED rows"):
        collect.read_measured(simulated, "h100")


def test_without_a_device_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("a device is here")
    assert collect.main([]) == collect.NO_DEVICE == checks.MISSING
    assert capsys.readouterr().out == "collect: PyTorch sees no device: nothing measured; --cpu tries the program\n"


class Asked:
    """A worker that reports what it is asked; some fail, some die."""

    def __init__(self, _python: str) -> None:
        self.number = 0

    def __enter__(self) -> Asked:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def measure(self, request: dict[str, Any], timeout_s: float) -> dict[str, Any]:
        assert timeout_s > 0
        if request["name"] == "dying":
            raise collect_process.WorkerError("it ended with code -9")
        if request["batch"] > 4:
            return {"failed": "out of memory"}
        known = {**dict.fromkeys(FEATURES, 1.0), "batch": request["batch"]}
        estimate = {"low": 1, "value": 2, "high": 3}
        measured = {"utilisation": 0.4, "sm_activity": None, "memory_bytes": 2, "step_ns": 5.0}
        return {"features": known, "estimate_bytes": estimate, **measured}


def test_what_fails_costs_only_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "Worker", Asked)
    todo = [Workload("dying", "cnn", 1, "fp32"), Workload("dying", "cnn", 2, "fp32")]
    todo += [Workload("good", "cnn", batch, "fp16") for batch in (1, 8, 2)]
    data = tmp_path / "rows.csv"
    rows = list(collect.collect(todo, data, "h100", "h100", 100, sys.executable, 1))
    assert [(one.name, one.batch, "failed" in found) for one, found in rows] == [
        ("dying", 1, True),
        ("good", 1, False),
        ("good", 8, True),
        ("good", 2, False),
    ]
    assert collect.read_measured(data, "h100") == {("good fp16", 1.0), ("good fp16", 2.0)}
    assert not list(collect.collect(todo, data, "h100", "h100", 1, sys.executable, 1)), "no time is left"


def test_pairs_are_spread_over_their_sums_and_fit_together() -> None:
    rows = [row("h100", f"m{n}", 1, n / 10, 8.0 if n < 9 else 70.0) for n in range(1, 10)]
    rows.append(row("h100", "none", 1, None))
    pairs = collect_pairs.choose_pairs(rows, 5, 80e9)
    sums = [sum(one.utilisation or 0 for one in pair) for pair in pairs]
    assert len(set(map(id, pairs))) == 5 and sums == sorted(sums)
    assert sums[0] == pytest.approx(0.3) and sums[-1] == pytest.approx(1.5)
    assert all(one.architecture not in ("m9", "none") for pair in pairs for one in pair)
    assert len(collect_pairs.choose_pairs(rows[:3], 99, 80e9)) == 3


def test_a_worker_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    silent = tmp_path / "silent"
    silent.write_text("#!/bin/sh\nsleep 60\n")
    dying = tmp_path / "dying"
    dying.write_text("#!/bin/sh\nexit 9\n")
    for path in (silent, dying):
        path.chmod(0o755)
    begin = time.monotonic()
    with collect_process.Worker(str(silent)) as worker, pytest.raises(collect_process.WorkerError, match="no answer"):
        worker.measure({}, 0.5)
    assert time.monotonic() - begin < 30
    with collect_process.Worker(str(dying)) as worker, pytest.raises(collect_process.WorkerError, match="code 9"):
        worker.measure({}, 30)


def test_the_step_of_qualify_is_skipped_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated, and on a machine whose PyTorch sees no device; otherwise its last line is the figures."""

    class Own:
        is_simulated = True
        env: dict[str, str] = {}

    own: Any = Own()
    (step,) = [one for one in steps.plan(sys.executable) if one.name == "collect"]
    assert step.check(own).skip_reason == "the simulated device runs no PyTorch"
    assert step.budget_s > checks.COLLECT_S + collect.WORKLOAD_S
    own.is_simulated = False
    said = {3: "collect: PyTorch is not installed: nothing measured", 0: 'a row\n{"rows": 4, "of": 34}', 1: "no rows"}
    for code, text in said.items():
        done = checks.subprocess.CompletedProcess([], code, text, "")
        monkeypatch.setattr(checks.subprocess, "run", lambda *_a, _done=done, **_k: _done)
        found = step.check(own)
        if code == 3:
            assert found.skip_reason == text and not found.problems
        elif code == 0:
            assert found.figures == {"rows": 4, "of": 34}
        else:
            assert found.problems == ["code 1: no rows"]
