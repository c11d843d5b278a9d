"""Classes of jobs: what is alike and what is not."""

from __future__ import annotations

import pytest

from vgpud.core.jobs.model import Ask, Elastic, JobSpec
from vgpud.core.jobs.similarity import WORDS, classes, sharing, word_of
from vgpud.core.model import Spec


def spec(milli: int = 500, members: int = 1, elastic: Elastic | None = None) -> JobSpec:
    return JobSpec(Ask(Spec(milli)), members=members, elastic=elastic)


def of(
    command: str, name: str = "train", image: str = "", uid: int = 1000, job_spec: JobSpec | None = None
) -> tuple[str, ...]:
    return classes(name, image, command.split(), uid, job_spec or spec())


def common(one: tuple[str, ...], other: tuple[str, ...]) -> set[str]:
    return {word_of(name) for name in set(one) & set(other)}


def test_narrowest_first_each_once_and_short() -> None:
    found = of("python train.py " + "--more " * 10_000)
    assert tuple(map(word_of, found)) == tuple(WORDS)
    assert max(map(len, found)) <= 30
    assert found == of("python train.py " + "--more " * 10_000), "the same each time"
    assert sharing(found) == found[1]
    assert sharing(()) == ""


@pytest.mark.parametrize(
    ("command", "alike"),
    [
        ("python train.py --lr 0.1 --epochs 10", {"exact", "same", "program", "name", "user", "size"}),
        ("python train.py --lr 3e-4 --epochs 20", {"same", "program", "name", "user", "size"}),
        ("python3.12 /other/path/train.py --small", {"program", "name", "user", "size"}),
        ("python evaluate.py", {"name", "user", "size"}),
        ("bash -c make", {"name", "user", "size"}),
    ],
)
def test_commands(command: str, alike: set[str]) -> None:
    assert common(of("python train.py --lr 0.1 --epochs 10"), of(command)) == alike


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("train-1", "train_27", True),
        ("run 2026-11-22", "run", True),
        ("7", "8", True),
        ("train", "evaluate", False),
        ("a1b", "a2b", False),
    ],
)
def test_names_without_their_number(one: str, other: str, alike: bool) -> None:
    assert ("name" in common(of("x", name=one), of("x", name=other))) is alike


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("registry:5000/team/train:1", "registry:5000/team/train:2", True),
        ("train@sha256:1234", "train", True),
        ("registry:5000/train", "registry:6000/train", False),
    ],
)
def test_images_without_their_tag(one: str, other: str, alike: bool) -> None:
    assert ("exact" in common(of("x", image=one), of("x", image=other))) is alike


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("env A=1 python -m torch.distributed.run train.py", "env A=2 python -m torch.distributed.run --n 4 eval.py"),
        ("torchrun --nproc 4 train.py", "torchrun --nproc 8 train.py -v"),
    ],
)
def test_launchers_are_looked_through(one: str, other: str) -> None:
    assert "program" in common(of(one), of(other))


def test_size_and_user() -> None:
    assert common(of("x"), of("x", uid=1001)) == {"size"}
    assert common(of("x"), of("x", job_spec=spec(1000))) == {"name"}
    assert common(of("x"), of("x", job_spec=spec(members=2))) == {"name"}
    elastic_spec = spec(250, elastic=Elastic(250, 1000))
    assert common(of("x", job_spec=spec(250)), of("x", job_spec=elastic_spec)) == {"name"}
    grown = spec(750, elastic=Elastic(250, 1000))
    assert common(of("x", job_spec=elastic_spec), of("x", job_spec=grown)) == set(WORDS), (
        "as it was submitted, whatever it has"
    )


def test_words_that_cannot_be_confused() -> None:
    assert "exact" not in common(classes("a", "", ["b c"], 1, spec()), classes("a", "", ["b", "c"], 1, spec()))
    assert "exact" not in common(of("python 1"), of("python 2"))
