"""A trained model's file: what it predicts, where it may be believed, and that no file does more than be refused."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.predict import model, ranges
from vgpud.predict.features import FEATURES, Features

STUMP = {"feature": [0, -1, -1], "number": [math.log1p(100), -1.0, 1.0], "right": [2, 0, 0]}
SHARE = {
    "offset": 1.0,
    "scale": 100.0,
    "start": math.log(40),
    "estimate": "",
    "base": 0.0,
    "most": 1.0,
    "trees": [STUMP],
    "spread": [[3.0, 0.5, 0.25], [1e9, 0.1, 0.2]],
}
MEMORY = {
    "offset": 1.0,
    "scale": 1.0,
    "start": math.log(2),
    "estimate": "reserved_bytes",
    "base": 0.0,
    "most": 1e12,
    "trees": [],
    "spread": [[1e9, 0.0, 0.5]],
}
WHOLE: dict[str, Any] = {
    "format": model.FORMAT,
    "features": ["batch", "kernels"],
    "targets": {"utilisation": SHARE, "sm_activity": SHARE, "memory_bytes": MEMORY},
    "trained": {
        "families": ["mlp"],
        "devices": ["A100"],
        "ranges": {"batch": [4, 1024], "kernels": [1, 99], "convolutions": [0, 0], "sm_count": [108, 108]},
    },
    "card": {"rows": 3},
}


def make_features(**values: float) -> Features:
    return Features({**dict.fromkeys(FEATURES, 0.0), "batch": 64, "kernels": 9, "sm_count": 108, **values})


def make_model(document: Any = WHOLE) -> model.Model:
    return model.parse(json.dumps(document).encode(), "file")


def change_document(path: str, value: Any) -> dict[str, Any]:
    """WHOLE, with something else at a place such as targets/utilisation/trees/0/left/0."""
    whole = copy.deepcopy(WHOLE)
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]
    at: Any = whole
    for step in way:
        at = at[step]
    at[last] = value
    return whole


def test_the_sum_of_the_trees_on_the_scale_of_what_is_measured() -> None:
    found = make_model().predict(make_features(batch=64))
    value = (40 / math.e - 1) / 100
    assert found.utilisation.value == pytest.approx(value)
    assert found.utilisation.low == pytest.approx((40 * math.exp(-1.5) - 1) / 100), "the interval of small predictions"
    assert found.in_range
    assert found.why == ""
    assert make_model().predict(make_features(batch=101)).utilisation.value == 1.0, "no more than a whole device"


def test_a_value_at_the_threshold_goes_left() -> None:
    tree = model.Tree((0, -1, -1), (2.5, -1.0, 1.0), (2, 0, 0))
    assert [tree.at([x]) for x in (2.4, 2.5, 2.6)] == [-1.0, -1.0, 1.0]


def test_a_target_adds_its_estimate() -> None:
    found = make_model().predict(make_features(reserved_bytes=1e6)).memory_bytes
    assert found.value == pytest.approx(2e6, rel=1e-5)
    assert found.low == pytest.approx(found.value)
    assert found.high == pytest.approx(2e6 * math.exp(0.5), rel=1e-5)
    based = (
        make_model(change_document("targets/memory_bytes/base", 1e9))
        .predict(make_features(reserved_bytes=1e6))
        .memory_bytes
    )
    assert based.value == pytest.approx(2 * 1.001e9, rel=1e-5)


def test_sm_activity_need_not_have_been_measured() -> None:
    whole = copy.deepcopy(WHOLE)
    del whole["targets"]["sm_activity"]
    assert make_model(whole).predict(make_features()).sm_activity is None


def test_types_of_operations_that_training_never_saw_are_out_of_range() -> None:
    found = make_model().predict(make_features(convolutions=53))
    assert not found.in_range
    assert "53 convolutions" in found.why
    assert "mlp" in found.why
    assert (
        make_model(change_document("trained/ranges/convolutions", [0, 20]))
        .predict(make_features(convolutions=53))
        .in_range
    )


def test_sizes_beyond_those_of_training_are_out_of_range() -> None:
    assert make_model().predict(make_features(batch=1100)).in_range, "a little more is no other model"
    found = make_model().predict(make_features(batch=4096))
    assert not found.in_range
    assert "batch" in found.why
    assert "4096" in found.why
    assert "1024" in found.why


def test_another_device_widens_the_interval_and_says_so() -> None:
    here, there = make_model().predict(make_features()), make_model().predict(make_features(sm_count=132))
    assert there.in_range
    assert "A100" in there.why
    assert there.utilisation.low < here.utilisation.low
    assert there.utilisation.high > here.utilisation.high


def test_what_another_device_always_holds_is_not_known() -> None:
    ours = make_model(change_document("targets/memory_bytes/base", 1e9))
    here, there = (ours.predict(make_features(reserved_bytes=1e6, sm_count=count)).memory_bytes for count in (108, 132))
    assert there.value == here.value
    assert there.low == pytest.approx(here.low - 0.5e9)
    assert there.high > here.high + 1e9


def test_a_sentence_is_of_bounded_length() -> None:
    found = make_model(change_document("trained/devices", [f"device{number}" for number in range(900)]))
    assert "device0, device1, device2 and 897 more" in found.predict(make_features(sm_count=132)).why


def test_a_missing_feature_is_named() -> None:
    with pytest.raises(ValueError, match="kernels"):
        make_model().predict(Features({"batch": 3}))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("format", "other"),
        ("features", ["batch", "colour"]),
        ("features", "batch"),
        ("card", []),
        ("targets/utilisation/trees/0/right/0", 0),  # a cycle
        ("targets/utilisation/trees/0/right/0", 1),  # both children are one
        ("targets/utilisation/trees/0/right/0", 3),
        ("targets/utilisation/trees/0/right/0", -1),
        ("targets/utilisation/trees/0/feature/2", 0),  # a node without children
        ("targets/utilisation/trees/0/right/0", True),
        ("targets/utilisation/trees/0/feature/0", 2),
        ("targets/utilisation/trees/0/feature/0", -2),
        ("targets/utilisation/trees/0/feature/0", 0.0),
        ("targets/utilisation/trees/0/number/1", math.nan),
        ("targets/utilisation/trees/0/number/1", math.inf),
        ("targets/utilisation/trees/0/number/1", "1"),
        ("targets/utilisation/trees/0/number", [1.0]),
        ("targets/utilisation/trees/0/number/1", 10**400),
        ("targets/utilisation/trees/0/number/1", 1.7e308),  # a sum of such is no number
        ("targets/utilisation/start", -1.7e308),
        ("targets/utilisation/most", 1.5),
        ("targets/memory_bytes/most", 1e300),  # bytes with 300 digits
        ("targets/utilisation/trees/0", {}),
        ("targets/utilisation/trees/0", {key: [] for key in STUMP}),
        ("targets/utilisation/scale", 0),
        ("targets/utilisation/spread", []),
        ("targets/utilisation/spread/0", [1.0, -0.5, 0.5]),
        ("targets/utilisation/spread/0", [1.0, 0.5]),
        ("targets/memory_bytes/estimate", "nothing"),
        ("targets/memory_bytes/base", -1),
        ("targets", []),
        ("trained/ranges/batch", [9, 4]),
        ("trained/ranges/batch", [4, math.nan]),
        ("trained/ranges/colour", [4, 9]),
        ("trained/families", []),
        ("trained/families", [3]),
        ("trained/families", ["x" * 101]),
        ("trained", None),
    ],
)
def test_what_is_no_model_is_refused_in_one_line(path: str, value: Any) -> None:
    with pytest.raises(model.ModelError, match="vgpu predict train") as error:
        make_model(change_document(path, value))
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_a_part_that_is_missing_is_named() -> None:
    whole = copy.deepcopy(WHOLE)
    del whole["targets"]["memory_bytes"]
    with pytest.raises(model.ModelError, match="memory_bytes"):
        make_model(whole)


def chain(depth: int) -> dict[str, list[Any]]:
    """A tree that has one leaf at each depth."""
    size = 2 * depth + 1
    split = [number % 2 == 0 and number < size - 1 for number in range(size)]
    return {
        "feature": [0 if inner else -1 for inner in split],
        "number": [float(number) for number in range(size)],
        "right": [number + 2 if inner else 0 for number, inner in enumerate(split)],
    }


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert make_model(change_document("targets/utilisation/trees/0", chain(model.DEPTH_MAX)))
    with pytest.raises(model.ModelError, match="deeper"):
        make_model(change_document("targets/utilisation/trees/0", chain(model.DEPTH_MAX + 1)))
    monkeypatch.setattr(model, "TREES_MAX", 3)
    assert make_model(change_document("targets/memory_bytes/trees", [STUMP]))
    with pytest.raises(model.ModelError, match="more than 3 trees"):
        make_model(change_document("targets/memory_bytes/trees", [STUMP, STUMP]))
    monkeypatch.setattr(model, "NODES_MAX", 5)
    with pytest.raises(model.ModelError, match="5 nodes"):
        make_model()


@pytest.mark.parametrize("data", [b"", b"\x80\x04\x95", b"{", b"[" * 100_000, b"null", b"3", b'{"format": 1}', b"\xff"])
def test_files_of_something_else(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model"
    path.write_bytes(data)
    with pytest.raises(model.ModelError, match="not a trained model"):
        model.load(path)


def test_huge_files_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with path.open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(model.ModelError, match="MiB"):
        model.load(path)
    with pytest.raises(model.ModelError, match="/dev/zero: it is not a regular file"):
        model.load(Path("/dev/zero"))
    with pytest.raises(model.ModelError, match="cannot read"):
        model.load(tmp_path)
    with pytest.raises(model.ModelError, match="cannot read"):
        model.load(tmp_path / "none")


@given(st.data())
def test_a_file_that_was_damaged_is_refused_or_predicts(data: st.DataObject) -> None:
    whole = json.dumps(WHOLE).encode()
    cut = data.draw(st.integers(0, len(whole)))
    put = data.draw(st.one_of(st.binary(max_size=4), st.sampled_from([b"-1", b"1e999", b"9", b"[]", b"null", b"0"])))
    try:
        parsed = model.parse(whole[:cut] + put + whole[cut + data.draw(st.integers(0, 6)) :], "file")
        predicted = parsed.predict(make_features())
    except (model.ModelError, ValueError):
        return
    for each in (predicted.utilisation, predicted.memory_bytes):
        assert 0 <= each.low <= each.value <= each.high < math.inf


def test_an_ingredient_that_training_never_saw_is_out_of_range() -> None:
    """Where the file says which there were: older ones do not."""
    trained = ranges.Trained(("mlp",), ("A100",), {}, ("linear", "relu"))
    unseen = trained.judge(Features({}), ("linear", "dropout", "gelu"))
    assert not unseen.is_in_range and "the model has dropout, gelu" in unseen.why
    assert trained.judge(Features({}), ("linear", "pointwise")).is_in_range
    assert trained.judge(Features({})).is_in_range, "what is not known is not judged"
    old = ranges.parse({"families": ["mlp"], "devices": ["A100"], "ranges": {}})
    assert old.judge(Features({}), ("gelu",)).is_in_range
    assert ranges.parse(ranges.as_json(trained)) == trained
    with pytest.raises(ValueError, match="ingredients"):
        ranges.parse({"families": ["mlp"], "devices": ["A100"], "ranges": {}, "ingredients": [3]})
