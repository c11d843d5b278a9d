"""Changing one member of a user's JSON: every other byte stays."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from vgpud.setup.jsontext import drop_member, set_member

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), JSON_VALUES, max_size=4), st.sampled_from([None, 1, 4, "\t"]), st.booleans())
def test_one_member_changes_and_comes_back(document: dict[str, Any], indent: Any, is_ascii: bool) -> None:
    document = {key: value for key, value in document.items() if key != "runtimes"}
    document["runtimes"] = {"a": {"path": "ä"}}
    text = json.dumps(document, indent=indent, ensure_ascii=is_ascii)
    entry = {"path": "/usr/lib/vgpu/current/vgpu-runtime"}
    changed = set_member(text, ("runtimes", "vgpu"), entry)
    assert json.loads(changed) == {**document, "runtimes": {**document["runtimes"], "vgpu": entry}}
    assert list(json.loads(changed)) == list(document)
    assert drop_member(changed, ("runtimes", "vgpu")) == text
    elsewhere = set_member(text, ("new", "deep"), 1)
    assert json.loads(elsewhere) == {**document, "new": {"deep": 1}}
    assert drop_member(elsewhere, ("new",)) == text


def test_members_first_last_only_and_none() -> None:
    assert drop_member('{"a": 1, "b": 2, "c": 3}', ("a",)) == '{"b": 2, "c": 3}'
    assert drop_member('{"a": 1, "b": 2, "c": 3}', ("c",)) == '{"a": 1, "b": 2}'
    assert drop_member('{ "a": {"b": 1} }', ("a", "b")) == '{ "a": {} }'
    assert drop_member('{"a": {}}', ("b", "c")) == '{"a": {}}'
    assert set_member('{"a": {"path": 1}}', ("a",), 2) == '{"a": 2}'
