"""Workers of pytest-xdist collect the same tests, each beginning with another folder: in a fresh clone they would all
compile the assertions of the same file at the same time, and now find what another has compiled. What they collect
lives as long as they do, so the garbage collector does not look at it.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
#: a file or folder of tests/ -> its place in the order in which pytest collects and runs them
_PLACE = pytest.StashKey[dict[pytest.Item | pytest.Collector, int]]()


def rotate_places(length: int, worker: int, workers: int) -> list[int]:
    """Places 0 to length - 1, beginning with the first one of a worker's part. `worker` counts on where one takes the
    place of another that has died."""
    begin = length * (worker % workers) // workers
    return [*range(begin, length), *range(begin)]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Half of the time of collecting would go into looking, again and again, at objects of which none is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    worker = getattr(collector.config, "workerinput", None)
    if worker and collector.path == TESTS:
        found = report.result
        collector.config.stash[_PLACE] = {node: place for place, node in enumerate(found)}
        order = rotate_places(len(found), int(worker["workerid"].removeprefix("gw")), worker["workercount"])
        report.result = [found[place] for place in order]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All workers must report the same order to the controller."""
    places = config.stash.get(_PLACE, {})
    items.sort(key=lambda item: next((places[node] for node in item.listchain() if node in places), 0))
