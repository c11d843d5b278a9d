"""Training from measured jobs: what is learnt, that nothing is learnt from what is judged by, and what is refused."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import random
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from vgpud.cli import main
from vgpud.predict import boosting, dataset, model, train, train_file
from vgpud.predict.boosting import Setting
from vgpud.predict.features import FEATURES, Features

# Not imported here: every worker of a run would spend two seconds on it.
pytestmark = pytest.mark.skipif(find_spec("sklearn") is None, reason="needs the package scikit-learn")

MIB = 1 << 20
SMALL = Setting(trees=20, depth=3, rate=0.3, leaf=3, rows=0.8)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(train, "SETTINGS", (SMALL,))


def jobs(count: int, seed: int = 1, noise: float = 0.02, **changes: Any) -> list[dataset.Row]:
    """Jobs whose utilisation follows their batch, and memory their allocator, with a context of 500 MiB."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        batch, reserved = draw.randint(1, 512), draw.randint(2, 4000) * MIB
        known = {**dict.fromkeys(FEATURES, 0.0), "batch": batch, "reserved_bytes": reserved, "sm_count": 132}
        row: dict[str, Any] = {
            "device": "H100",
            "family": "cnn",
            "architecture": f"net{number % 3}",
            "features": Features(known),
            "utilisation": min(1.0, 0.9 * batch / (batch + 60) * math.exp(draw.gauss(0, noise))),
            "sm_activity": 0.5 * batch / (batch + 60),
            "memory_bytes": 500 * MIB + reserved,
        }
        made.append(dataset.Row(**{**row, **changes}))
    return made


def test_what_is_learnt_predicts_others(tmp_path: Path) -> None:
    made = train_file.train_model(jobs(300), {"note": "test"})
    path = tmp_path / "ours.json"
    train_file.write(path, made.document)
    ours = model.load(path)
    assert ours.features == ("batch", "reserved_bytes"), "what is the same everywhere is nothing to go by"
    others = jobs(100, seed=2)
    predictions = [ours.predict(row.features) for row in others]
    errors = [abs(each.utilisation.value - row.utilisation) for each, row in zip(predictions, others, strict=True)]
    assert np.mean(errors) < 0.05
    inside = [
        each.utilisation.low <= row.utilisation <= each.utilisation.high
        for each, row in zip(predictions, others, strict=True)
    ]
    assert 0.75 <= np.mean(inside) <= 1
    memory = [each.memory_bytes.value / row.memory_bytes for each, row in zip(predictions, others, strict=True)]
    assert 0.99 < min(memory) <= max(memory) < 1.01, "the estimate and a context are enough"
    assert sum(each.in_range for each in predictions) > 90
    assert all(each.in_range == (each.why == "") for each in predictions)


def test_the_file_says_what_scikit_learn_says() -> None:
    rows = jobs(200)
    table = train.table(rows, "utilisation", ["batch", "reserved_bytes"])
    learnt = train.learn(table, SMALL, 3)
    trees = [model._tree(each, 2) for each in learnt.booster.tables()]
    point = model.coordinates([rows[7].features["batch"], rows[7].features["reserved_bytes"]])
    ours = learnt.booster.start + sum(tree.at(point) for tree in trees)
    assert ours == pytest.approx(float(learnt.logs(table.part(np.arange(200) == 7))[0]), abs=1e-5)


def test_no_row_is_judged_by_what_was_learnt_from_it() -> None:
    """Utilisation that is chance, each configuration measured twice: only a model that saw its twin could know it."""
    draw = random.Random(5)
    rows = []
    for row in jobs(60):
        value = draw.uniform(0.05, 1)
        rows += [dataset.Row(**{**vars(row), "utilisation": value})] * 2
    table = train.table(rows, "utilisation", ["batch", "reserved_bytes"])
    found = train.cross_validate(table, train.folds(rows, 5, 1), train.inner_folds(rows, 1), 1)
    assert train.rmsle(found.logs, table.logs) > 0.8 * float(table.logs.std())
    shuffled = train.cross_validate(table, np.arange(120) % 5, train.inner_folds(rows, 1), 1)
    assert train.rmsle(shuffled.logs, table.logs) < 0.8 * float(table.logs.std()), "the test would see a leak"


def test_nothing_is_tuned_by_what_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = jobs(100)
    table = train.table(rows, "utilisation", ["batch"])
    groups = train.folds(rows, 5, 1)
    seen: list[set[float]] = []
    tuned = train.tune_setting

    def spy(part: train.Table, folds: Any, seed: int, groups: Any) -> train.Tuned:
        seen.append(set(part.values))
        return tuned(part, folds, seed, groups)

    monkeypatch.setattr(train, "tune_setting", spy)
    train.cross_validate(table, groups, train.inner_folds(rows, 1), 1)
    assert seen == [set(table.values[groups != group]) for group in range(5)]


def test_intervals_are_of_groups_that_were_not_seen() -> None:
    """Architectures with batches of their own: what is learnt from some says little about another."""
    in_order = sorted(jobs(400), key=lambda row: row.features["batch"])
    rows = [dataclasses.replace(row, architecture=f"kind{n // 100}") for n, row in enumerate(in_order)]
    table = train.table(rows, "utilisation", ["batch", "reserved_bytes"])
    inner = train.inner_folds(rows, 1)
    by_folds = train.tune_setting(table, inner, 1).spread
    by_groups = train.tune_setting(table, inner, 1, train.list_groups(rows)).spread
    widest = [max(below + above for _, below, above in spread) for spread in (by_folds, by_groups)]
    assert widest[1] > 1.2 * widest[0]
    assert train.tune_setting(table, inner, 1, train.list_groups(rows)[:1]).spread == by_folds, "one group says nothing"


def test_groups_are_architectures_and_ingredients_that_some_have() -> None:
    plain, other = jobs(2)
    rows = [
        dataclasses.replace(plain, architecture="a", ingredients=("linear",)),
        dataclasses.replace(other, architecture="a", ingredients=("dropout", "linear")),
    ]
    assert [group.tolist() for group in train.list_groups(rows)] == [[False, True]]


def test_tuning_takes_what_predicts_better(monkeypatch: pytest.MonkeyPatch) -> None:
    blunt = Setting(trees=1, depth=1, rate=0.1)
    monkeypatch.setattr(train, "SETTINGS", (blunt, SMALL, blunt))
    rows = jobs(100)
    table = train.table(rows, "utilisation", ["batch", "reserved_bytes"])
    assert train.tune_setting(table, train.inner_folds(rows, 1), 1).setting == SMALL


def test_intervals_hold_as_often_as_they_say() -> None:
    draw = np.random.default_rng(1)
    found = draw.uniform(0, 4, 4000)
    off = np.where(found < 1, 0.5, 0.05)  # small ones are predicted less exactly
    wanted = found + draw.normal(0, 1, 4000) * off
    parts = train.spread(found[:2000], wanted[:2000])
    assert len(parts) == train.PARTS
    assert parts[0][1] > 4 * parts[-1][1]
    ends = [train.at(parts, x) for x in found[2000:]]
    inside = [x - b <= y <= x + a for x, y, (b, a) in zip(found[2000:], wanted[2000:], ends, strict=True)]
    assert np.mean(inside) == pytest.approx(train.COVERAGE / 100, abs=0.03)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([], "0 rows with utilisation: at least 50"),
        (jobs(49), "49 rows with utilisation"),
        (jobs(60, memory_bytes=None), "0 rows with memory_bytes"),
        (jobs(60)[:1] * 60, "rows with utilisation are of 1 configurations"),
    ],
)
def test_too_little_to_learn_from(rows: list[dataset.Row], says: str) -> None:
    with pytest.raises(dataset.DataError, match=says):
        train_file.train_model(rows, {})


@pytest.mark.parametrize("having", [0, 49])
def test_sm_activity_need_not_be_measured(having: int) -> None:
    lines: list[str] = []
    made = train_file.train_model(jobs(60, sm_activity=None) + jobs(having, seed=2), {}, lines.append)
    assert any("sm_activity" in line and "left out" in line for line in lines)
    assert set(made.document["targets"]) == {"utilisation", "memory_bytes"}
    assert model.parse(json.dumps(made.document).encode(), "file").predict(jobs(1)[0].features).sm_activity is None


def test_scikit_learn_is_asked_for_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "sklearn.ensemble", None)
    with pytest.raises(Exception, match=r"pip install 'vgpud\[predict\]'"):
        boosting.require()


def run(*args: str) -> Any:
    return CliRunner().invoke(main.cli, ["predict", "train", *args], catch_exceptions=True)


def test_command(tmp_path: Path) -> None:
    data, out = tmp_path / "rows.csv", tmp_path / "ours.json"
    dataset.append(data, jobs(120))
    before = data.read_bytes()
    answer = run("--data", str(data), "--out", str(out), "-o", "json")
    assert answer.exit_code == 0, answer.output
    report = json.loads(answer.stdout)
    assert {each["target"]: each["rows"] for each in report["errors"]} == dict.fromkeys(model.TARGETS, 120)
    assert report["errors"][0]["rmsle"] < 0.3
    assert report["errors"][0]["shipped"]["in_range"] == 0, "the shipped model knows perceptrons"
    assert data.read_bytes() == before
    assert model.load(out).card["data"][0]["file"] == "rows.csv"
    assert sorted(os.listdir(tmp_path)) == ["ours.json", "rows.csv"]
    shown = run("--data", str(data), "--out", str(out))
    assert "SHIPPED MODEL" in shown.stdout
    assert "0 of 120 in range" in shown.stdout


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe", dataset.lines(jobs(5)).encode()])
def test_command_refuses_and_writes_nothing(tmp_path: Path, content: bytes) -> None:
    data, out = tmp_path / "rows.csv", tmp_path / "ours.json"
    data.write_bytes(content)
    out.write_text("before")
    answer = run("--data", str(data), "--out", str(out))
    assert isinstance(answer.exception, dataset.DataError)
    assert "\n" not in str(answer.exception)
    assert out.read_text() == "before"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    document = train_file.train_model(jobs(60), {}).document
    with pytest.raises(dataset.DataError, match="cannot write"):
        train_file.write(tmp_path / "none" / "ours.json", document)
    (tmp_path / "folder").mkdir()
    with pytest.raises(dataset.DataError, match="cannot write"):
        train_file.write(tmp_path / "folder", document)
    assert os.listdir(tmp_path) == ["folder"], "nothing is left behind"
