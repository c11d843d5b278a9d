"""The CSV of measured jobs: what it holds comes back, what is invalid is refused with its line."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from vgpud.predict import dataset
from vgpud.predict.features import FEATURES, Features

NUMBERS = st.floats(0, 1e30).map(lambda x: float(f"{x:.9g}"))
SHARES = st.none() | st.floats(0, 1).map(lambda x: float(f"{x:.9g}"))
TEXTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
    lambda text: text.strip() == text and text.isprintable()
)


def row(batch: float = 8, **rest: Any) -> dataset.Row:
    known = Features({**dict.fromkeys(FEATURES, 1.0), "batch": batch})
    return dataset.Row(**{"device": "A100", "family": "mlp", "architecture": "deep", "features": known, **rest})


def text(**changes: str) -> str:
    """A file of one row, with other cells."""
    cells = dict.fromkeys(dataset.COLUMNS, "1") | {"step_ns": "", **changes}
    return ",".join(cells) + "\n" + ",".join(cells.values()) + "\n"


@given(
    device=TEXTS,
    features=st.fixed_dictionaries(dict.fromkeys(FEATURES, NUMBERS)),
    utilisation=SHARES,
    memory=st.none() | st.floats(1, 2e15).map(lambda x: float(f"{x:.9g}")),
)
def test_what_is_written_comes_back(
    device: str, features: dict[str, float], utilisation: float | None, memory: float | None
) -> None:
    made = dataset.Row(device, "mlp", "a, b", Features(features), utilisation=utilisation, memory_bytes=memory)
    assert dataset.parse(dataset.lines([made, made]), "file") == [made, made]


@given(st.text(st.characters() | st.characters(categories=["Cs", "Cc"])))
@example("\0")
@example("\ud800")
@example(" ")
def test_any_text_can_be_read_again(architecture: str) -> None:
    found = dataset.parse(dataset.lines([row(architecture=architecture)]).encode().decode(), "file")
    assert found[0].architecture


def test_other_columns_and_order_are_fine() -> None:
    turned = ",".join(reversed(text().splitlines()[0].split(","))) + ",note"
    cells = dict.fromkeys(turned.split(","), "1")
    assert len(dataset.parse(turned + "\n" + ",".join(cells.values()) + "\n\n", "file")) == 1


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch": "-1"}, "file:2: batch is -1"),
        ({"flops": "nan"}, "file:2: flops is nan"),
        ({"flops": "inf"}, "file:2: flops is inf"),
        ({"flops": "1e31"}, "file:2: flops is 1e31"),
        ({"flops": "many"}, "not a number"),
        ({"flops": ""}, "flops is empty"),
        ({"utilisation": "37"}, "from 0 to 1"),
        ({"memory_bytes": "-5"}, "memory_bytes is -5"),
        ({"memory_bytes": "0"}, "memory_bytes is 0"),
        ({"memory_bytes": "1e-300"}, "memory_bytes is 1e-300"),
        ({"device": " "}, "device is empty"),
        ({"device": "x" * 200_000}, "field larger"),
        ({"device": "x,y"}, "values where the header has"),
    ],
)
def test_cells_that_are_invalid(changes: dict[str, str], says: str) -> None:
    with pytest.raises(dataset.DataError) as error:
        dataset.parse(text(**changes), "file")
    assert says in str(error.value)
    assert len(str(error.value)) < 200


def test_headers_that_are_invalid() -> None:
    with pytest.raises(dataset.DataError, match=r"columns missing: .* and \d+ more"):
        dataset.parse("model,batch\nx,1\n", "file")
    with pytest.raises(dataset.DataError, match="'batch' appears twice"):
        dataset.parse(text().replace("flops", "batch"), "file")
    with pytest.raises(dataset.DataError, match="columns missing"):
        dataset.parse("", "file")
    with pytest.raises(dataset.DataError, match="columns missing"):  # quadratic, it would take hours
        dataset.parse(",".join(f"{number:x}" for number in range(1_000_000)) + "\n", "file")


def test_files_that_are_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    with pytest.raises(dataset.DataError, match="cannot read"):
        dataset.read(path)
    path.write_bytes(b"device\xff\n")
    with pytest.raises(dataset.DataError, match=r"not text \(UTF-8\) at byte 6"):
        dataset.read(path)
    with path.open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(dataset.DataError, match="has more than"):
        dataset.read(path)
    with pytest.raises(dataset.DataError, match="/dev/zero has more than"):
        dataset.read(Path("/dev/zero"))
    monkeypatch.setattr(dataset, "ROWS_MAX", 2)
    with pytest.raises(dataset.DataError, match="more than 2 rows"):
        dataset.parse(dataset.lines([row()] * 3), "file")


def test_append_makes_one_header(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    dataset.append(path, [row(1)])
    dataset.append(path, [row(2), row(3, utilisation=0.5)])
    assert [each.features["batch"] for each in dataset.read(path)] == [1, 2, 3]
    with path.open("ab") as file:
        file.write(b"A100,ml")  # a writer that died
    dataset.append(path, [row(4)])
    assert path.read_text().splitlines()[-1].startswith("A100,mlp")


def test_append_leaves_other_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("device,batch\nA100,3\n")
    with pytest.raises(dataset.DataError, match="other columns"):
        dataset.append(path, [row()])
    assert path.read_text() == "device,batch\nA100,3\n"
    link = tmp_path / "link"
    link.symlink_to(path)
    with pytest.raises(dataset.DataError, match="cannot write"):
        dataset.append(link, [row()])
    path.unlink()
    dataset.append(path, [row()])
    monkeypatch.setattr(dataset, "FILE_BYTES_MAX", path.stat().st_size + 10)
    with pytest.raises(dataset.DataError, match="full"):
        dataset.append(path, [row()])
    assert len(dataset.read(path)) == 1


def test_writers_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    dataset.append(path, [row(1)])
    writer = threading.Thread(target=dataset.append, args=(path, [row(2)]))
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        writer.start()
        writer.join(0.2)
        assert writer.is_alive()
        assert len(dataset.read(path)) == 1
    writer.join()
    assert len(dataset.read(path)) == 2


@given(st.integers(2, 9), st.integers(0, 99))
def test_runs_of_one_configuration_are_in_one_fold(folds: int, seed: int) -> None:
    assert row(utilisation=0.1).fold(folds, seed) == row(utilisation=0.9, architecture="wide").fold(folds, seed)
    found = {row(number).fold(folds, seed) for number in range(200)}
    assert found == set(range(folds)), "and others are spread"


def test_the_columns_are_documented() -> None:
    document = (Path(__file__).resolve().parents[2] / "docs" / "predict.md").read_text()
    assert [name for name, words in FEATURES.items() if f"| `{name}` | {words} |" not in document] == []
    assert [name for name in (*dataset.TEXTS, *dataset.MEASURED) if f"`{name}`" not in document] == []


def test_ingredients_are_read_again_and_need_not_be_there() -> None:
    written = row(ingredients=("linear", "smooth activation"))
    lines = dataset.lines([written])
    assert dataset.parse(lines, "x")[0].ingredients == written.ingredients
    without = "\n".join(line.rpartition(",")[0] for line in lines.splitlines())
    assert dataset.parse(without, "x")[0].ingredients == ()
