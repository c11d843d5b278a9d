"""Results: complete, or refused; and every result that is kept is a good one."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import results

GOOD: dict[str, Any] = {"parameters": {}, "goals": {}, "figures": {"x": 1}, "raw": {}}


def test_a_result_names_machine_date_and_commit(tmp_path: Path) -> None:
    path = results.write("thing", is_simulated=True, device="SIMULATED H200", folder=tmp_path, **GOOD)
    assert path.name == "thing-sim.json"
    read = json.loads(path.read_text())
    assert results.problems(read) == []
    assert read["machine"]["cores"] >= 1


def test_a_simulated_result_must_say_so_in_the_device(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="SIMULATED"):
        results.write("thing", is_simulated=True, device="H200", folder=tmp_path, **GOOD)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", [*results.REQUIRED])
def test_a_missing_key_is_a_problem(key: str) -> None:
    whole = {name: kind() for name, kind in results.REQUIRED.items()}
    del whole[key]
    assert f"{key} is missing" in results.problems(whole)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(values)
def test_the_layout_changes_no_value(value: object) -> None:
    assert json.loads(results.format_json(value)) == value


def test_what_json_cannot_say_becomes_null() -> None:
    assert results.finite({"a": [1.0, math.inf, {"b": math.nan}], "c": "x"}) == {
        "a": [1.0, None, {"b": None}],
        "c": "x",
    }


def test_lists_stand_on_one_line() -> None:
    samples = list(range(100))
    flat, inner = json.dumps(samples), json.dumps({"case": ".5/.5", "met": True})
    text = results.format_json({"raw": samples, "rows": [{"case": ".5/.5", "met": True}] * 5})
    assert text == f'{{\n "raw": {flat},\n "rows": [\n' + ",\n".join([f"  {inner}"] * 5) + "\n ]\n}"


@pytest.mark.parametrize("path", sorted(results.RESULTS.glob("*.json")), ids=lambda path: str(path.name))
def test_kept_results_are_complete(path: Path) -> None:
    read = json.loads(path.read_text())
    assert results.problems(read) == []
    assert path.stem == f"{read['benchmark']}-{'sim' if read['simulated'] else 'real'}"
