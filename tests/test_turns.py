"""Whose tests run beside each other, with several workers."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from tests.turns import turn

PATIENCE_S = 60


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    """Not those that the workers of this run use."""
    made = tmp_path / "room", tmp_path / "door"
    for place in made:
        place.mkdir()
    return made


def is_locked(place: Path) -> bool:
    fd = os.open(place, os.O_RDONLY)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def test_others_run_beside_each_other(places: tuple[Path, Path]) -> None:
    both = threading.Barrier(2)
    met: list[int] = []

    def enter() -> None:
        with turn(False, *places):
            met.append(both.wait(PATIENCE_S))

    threads = [threading.Thread(target=enter) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(met) == [0, 1]


def test_who_is_alone_waits_for_all_and_lets_nobody_in(places: tuple[Path, Path]) -> None:
    order: list[str] = []

    def enter(name: str, alone: bool) -> None:
        with turn(alone, *places):
            order.append(name)

    with turn(False, *places):
        first = threading.Thread(target=enter, args=("alone", True))
        first.start()
        while not is_locked(places[1]):
            time.sleep(0.01)
        later = threading.Thread(target=enter, args=("later", False))
        later.start()
        later.join(0.3)
        assert order == [], "one waits for the room to be empty, the other for him"
    first.join()
    later.join()
    assert order == ["alone", "later"]
