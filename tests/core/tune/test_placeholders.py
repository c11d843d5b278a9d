"""Placeholders of a command, and commands that are a template with values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.tune.placeholders import fill, find_names, match


@pytest.mark.parametrize(
    ("word", "names", "text"),
    [
        ("{batch}", ["batch"], "8"),
        ("--batch={batch},{workers}", ["batch", "workers"], "--batch=8,2"),
        ("${batch}", [], "${batch}"),
        ("{{batch}}", [], "{batch}"),
        ('{"a": 1}', [], '{"a": 1}'),
        ("{}", [], "{}"),
        ("bs{batch}.pt", ["batch"], "bs8.pt"),
        ("a{{batch}}", [], "a{batch}"),
        ("{Batch}", [], "{Batch}"),
    ],
)
def test_what_is_a_placeholder(word: str, names: list[str], text: str) -> None:
    assert find_names([word]) == names
    assert fill(word, {"batch": 8, "workers": 2}) == text


@given(st.lists(st.text("ab-{}$ .*(8", max_size=8), min_size=1, max_size=4), st.integers(0, 999), st.integers(0, 99))
def test_a_filled_command_matches_its_template(words: list[str], batch: int, workers: int) -> None:
    template = [*words, "{batch}", "x={workers}"]
    values = {"batch": batch, "workers": workers}
    if set(find_names(template)) == set(values):
        assert match(template, [fill(word, values) for word in template]) == values


@pytest.mark.parametrize(
    ("template", "command", "values"),
    [
        (["a", "{batch}"], ["a", "64"], {"batch": 64}),
        (["a", "{batch}"], ["a", "many"], None),
        (["a", "{batch}"], ["b", "64"], None),
        (["a", "{batch}"], ["a", "64", "c"], None),
        (["{batch}", "{batch}"], ["1", "2"], None),
        (["{batch}", "{batch}"], ["2", "2"], {"batch": 2}),
        (["a.c"], ["abc"], None),
        (["a"], ["a"], {}),
    ],
)
def test_which_command_is_a_template(template: list[str], command: list[str], values: dict[str, int] | None) -> None:
    assert match(template, command) == values
