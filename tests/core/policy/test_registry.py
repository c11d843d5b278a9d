"""Policies by name: what is known is made, what is not is refused in one line that says what there is."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from vgpud.core.policy import registry
from vgpud.core.policy.registry import PolicyError, make


@pytest.mark.parametrize("name", registry.NAMES)
def test_every_name_is_made_without_parameters(name: str) -> None:
    policy = make(name)
    assert policy.name == name
    assert (policy.preempts, policy.dynamic, policy.drifts, policy.epoch) == (
        name not in {"fifo", "priority"},
        name in {"fair", "ftf"},
        name in {"srtf", "srsf"},
        0,
    )
    assert registry.NAMES[name]
    assert "\n" not in registry.NAMES[name]


@pytest.mark.parametrize(
    "text",
    [
        "2d-las(3250,7200,promote=8)",
        " 2d-las ( 3250 , 7200.5 , quantum=0.5 ) ",
        "las(450,1800,7200,narrow,promote=4)",
        "2d-las(every=1,keep)",
        "2d-gittins(4,8,12)",
        "priority(preempt)",
        "fair(memory=80,half-life=24,1000=2,1001=0.5)",
        "ftf(lease=600)",
    ],
)
def test_parameters_are_kept_in_the_name(text: str) -> None:
    assert make(text).name == text.strip()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lottery", "there is no policy 'lottery': choose one of fifo, priority, srtf"),
        ("", "there is no policy '': choose one of"),
        ("gitins", "there is no policy 'gitins', did you mean gittins or 2d-gittins?"),
        ("DRF", "there is no policy 'DRF', did you mean fair?"),
        ("Tiresias(9)", "there is no policy 'Tiresias', did you mean 2d-las or 2d-gittins?"),
        ("2d-las(3250", "no closing bracket: write 2d-las(...)"),
        ("2d-las(", "no closing bracket: write 2d-las(...)"),
        ("fifo(3)", "fifo does not take '3': it takes nothing"),
        ("2d-las(speed=3)", "does not take 'speed=3': it takes thresholds in GPU-seconds, promote=NUMBER"),
        ("2d-las(promote=8,promote=9)", "does not take 'promote=9'"),
        ("2d-las(-1)", "does not take '-1'"),
        ("las(promote=often)", "'promote=often' has no number of 0 or more"),
        ("las(1e9)", "'1e9' has no number of 0 or more"),
        ("las(7200,3250)", "thresholds must rise"),
        ("las(0,0)", "thresholds must rise"),
        ("las(every=0)", "every=SECONDS"),
        ("las(every=0.999)", "every=SECONDS"),
        ("las(0,promote=8)", "from above 0"),
        ("2d-las(0.0000000001,5)", "from above 0"),
        ("ftf(lease=0)", "1 second or more"),
        ("gittins(0.0000000001)", "none of the jobs"),
        ("las(3250,every=1)", "every=SECONDS"),
        ("las(keep)", "keep needs every=SECONDS"),
        ("gittins(0)", "none of the jobs in the table needed anything"),
        ("gittins(file=jobs.csv)", "no files are read here"),
        ("fair(1000=0)", "a weight of 0 is never served"),
        ("fair(root=2)", "fair does not take 'root=2': it takes memory=NUMBER, half-life=NUMBER, UID=WEIGHT"),
        ("las(" + ",".join(map(str, range(99))) + ")", "99 parameters: at most 64 are allowed"),
    ],
)
def test_what_is_invalid_is_refused(text: str, message: str) -> None:
    with pytest.raises(PolicyError) as refused:
        make(text)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_document_names_every_policy_and_its_examples_are_valid() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "queue.md").read_text()
    table = text.partition("\n## Policies\n")[2].partition("\n## ")[0]
    written = re.findall(r"^\| (`.*?`) \|", table, re.M)
    examples = [example for cell in written for example in re.findall("`(.+?)`", cell)]
    assert {make(example).name.partition("(")[0] for example in examples} == set(registry.NAMES)


def test_a_table_comes_from_the_shell() -> None:
    asked = []

    def read(path: str) -> list[Fraction]:
        asked.append(path)
        return [Fraction(4), Fraction(8), Fraction(12)]

    made, written = make("2d-gittins(file=jobs.csv)", read), make("2d-gittins(4,8,12)")
    assert asked == ["jobs.csv"]
    assert vars(made) | {"name": ""} == vars(written) | {"name": ""}
