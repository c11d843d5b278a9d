"""Files with a test marked alone are run by one worker when no other is left, in whatever order workers end or die."""

from __future__ import annotations

import gc
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from xdist.workermanage import WorkerController

from tests import collecting, scheduling
from tests.collecting import rotate_places
from tests.scheduling import ByFile

BESIDE = [f"tests/test_{name}.py::test_{number}" for name in "abc" for number in range(3)]
LAST = ["tests/test_measured.py::test_0", "tests/test_measured.py::test_1"]


@pytest.fixture(autouse=True)
def _no_length_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "LONG", {})


class Worker:
    """What the scheduler sees of a worker: it ends its last test only when it gets what comes next, or the stop."""

    def __init__(self) -> None:
        self.shutting_down = False
        self.indices: list[int] = []
        self.gateway = SimpleNamespace(id="gw")

    def send_runtest_some(self, indices: list[int]) -> None:
        assert not self.shutting_down
        self.indices += indices

    def shutdown(self) -> None:
        self.shutting_down = True


class Run:
    def __init__(self, rootpath: Path, workers: int, ids: list[str]) -> None:
        for name in {nodeid.split("::")[0] for nodeid in ids}:
            (rootpath / name).parent.mkdir(parents=True, exist_ok=True)
            texts = {"measured": "[pytest.mark.alone, pytest.mark.root]", "long": "pytest.mark.slow"}
            marks = [text for word, text in texts.items() if word in name]
            (rootpath / name).write_text("".join(f"pytestmark = {mark}" for mark in marks))
        option = SimpleNamespace(loadscopereorder=True, maxprocesses=None)
        config = SimpleNamespace(
            rootpath=rootpath, option=option, getvalue=lambda name: [f"{workers}*popen"] if name == "tx" else []
        )
        self.ids = ids
        self.scheduler = ByFile(cast(pytest.Config, config))
        self.workers = [self.new() for _ in range(workers)]
        self.scheduler.schedule()
        self.ran: list[tuple[int, str, int]] = []  # worker, test, how many workers there were

    def new(self) -> Worker:
        worker = Worker()
        node = cast(WorkerController, worker)
        self.scheduler.add_node(node)
        self.scheduler.add_node_collection(node, self.ids)
        return worker

    def step(self, worker: Worker) -> bool:
        """One test of a worker, or its end; False: it waits."""
        node = cast(WorkerController, worker)
        if node not in self.scheduler.nodes:
            return False
        if len(worker.indices) > (0 if worker.shutting_down else 1):
            index = worker.indices.pop(0)
            self.ran.append((self.workers.index(worker), self.ids[index], len(self.scheduler.nodes)))
            self.scheduler.mark_test_complete(node, index)
            return True
        if worker.shutting_down:
            assert self.scheduler.remove_node(node) is None
            return True
        return False

    def to_the_end(self, order: Any = iter) -> None:
        while any(list(map(self.step, order(list(self.workers))))):
            if self.scheduler.tests_finished:
                for worker in self.workers:
                    worker.shutdown()
        assert not self.scheduler.has_pending


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize("order", [iter, reversed])
def test_they_come_last_and_are_alone(tmp_path: Path, workers: int, order: Any) -> None:
    run = Run(tmp_path, workers, [*LAST, *BESIDE])
    run.to_the_end(order)
    assert sorted(test for _, test, _ in run.ran) == sorted(BESIDE + LAST)
    assert [test for _, test, _ in run.ran[-2:]] == LAST
    assert {there for _, test, there in run.ran if test in LAST} == {1}
    for name in "abc":
        assert len({worker for worker, test, _ in run.ran if f"test_{name}.py" in test}) == 1, "a file has one worker"


@pytest.mark.parametrize("ids", [LAST, BESIDE, LAST[:1], BESIDE[:1]])
def test_a_selection_may_hold_one_kind_only(tmp_path: Path, ids: list[str]) -> None:
    run = Run(tmp_path, 4, ids)
    run.to_the_end()
    assert sorted(test for _, test, _ in run.ran) == sorted(ids)


def test_only_marked_tests_of_a_file_are_alone(tmp_path: Path) -> None:
    path = "tests/test_mixed.py"
    run = Run(tmp_path, 2, [f"{path}::test_other", f"{path}::test_shares[1-a]", f"{path}::test_shares[2-b]", *BESIDE])
    (tmp_path / path).write_text(
        "@pytest.mark.parametrize('x', [])\n@pytest.mark.alone\ndef test_shares(): ...\n\n\ndef test_other(): ...\n"
    )
    scheduling._marked_functions.cache_clear()
    units = {test: run.scheduler._split_scope(test) for test in run.ids}
    assert {test for test, unit in units.items() if unit == scheduling.ALONE} == set(run.ids[1:3])


@pytest.mark.parametrize("workers", [1, 2])
def test_files_with_slow_tests_come_first(tmp_path: Path, workers: int) -> None:
    """Begun at the end, such a file would be waited for by all other workers."""
    slow = "tests/test_long.py::test_0"
    run = Run(tmp_path, workers, [*LAST, *BESIDE, slow])
    run.to_the_end()
    assert run.ran[0][1] == slow
    assert [test for _, test, _ in run.ran[-2:]] == LAST


def test_a_unit_that_is_known_to_be_long_comes_before_many_short_tests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduling, "LONG", {"tests/test_c.py": 9})
    run = Run(tmp_path, 1, [*(f"tests/test_a.py::test_{number}" for number in range(8)), "tests/test_c.py::test_0"])
    run.to_the_end()
    assert run.ran[0][1] == "tests/test_c.py::test_0"


def test_a_folder_of_engines_has_units_that_need_not_wait_for_each_other(tmp_path: Path) -> None:
    names = {"images": 0, "lifecycle": 1, "restarts": 1, "bypass": 2, "cdi": 2}
    run = Run(tmp_path, 3, [f"tests/containers/test_{name}.py::test_0" for name in names])
    units = [run.scheduler._split_scope(nodeid) for nodeid in run.ids]
    parts = ["tests/containers/test_images.py", "tests/containers/test_lifecycle.py", "tests/containers/"]
    assert units == [parts[number] for number in names.values()]


@pytest.mark.parametrize("unit", scheduling.APART)
def test_files_of_units_are_there_once(unit: str) -> None:
    files = [file for first, others in scheduling.APART.items() for file in (first, *others)]
    assert len(files) == len(set(files))
    assert all((Path(__file__).parents[1] / file).exists() for file in (unit, *scheduling.APART[unit]))


@pytest.mark.parametrize("unit", scheduling.LONG)
def test_units_that_are_long_are_there(unit: str) -> None:
    assert (Path(__file__).parents[1] / unit).exists()


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_each_worker_begins_to_collect_at_another_place(workers: int) -> None:
    orders = [rotate_places(35, worker, workers) for worker in range(3 * workers)]  # two thirds replace dead ones
    assert all(sorted(order) == list(range(35)) for order in orders)
    assert len({order[0] for order in orders}) == len({order[0] for order in orders[:workers]}) == workers


def test_what_is_told_of_a_test_is_sent_at_once(request: pytest.FixtureRequest) -> None:
    connection = request.config.failures_db.sock  # type: ignore[attr-defined]
    assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_what_was_collected_is_no_garbage() -> None:
    assert gc.isenabled() and gc.get_freeze_count() > 0


class Child:
    """A file or folder of tests/."""

    def __init__(self, name: str) -> None:
        self.name = name


@pytest.mark.parametrize("worker", [0, 1, 2])
def test_what_was_collected_in_another_order_is_reported_in_the_same(worker: int) -> None:
    """Two folders with two tests each and a file with one."""
    config: Any = SimpleNamespace(stash=pytest.Stash(), workerinput={"workerid": f"gw{worker}", "workercount": 3})
    nodes = [Child(name) for name in ("a", "b", "test_c.py")]
    folder = SimpleNamespace(config=config, path=collecting.TESTS)
    hook = collecting.pytest_make_collect_report(cast(Any, folder))
    next(hook)
    with pytest.raises(StopIteration) as ended:
        hook.send(cast(Any, SimpleNamespace(result=list(nodes))))
    found = ended.value.value.result
    assert found[0] is nodes[worker]
    items: list[Any] = [
        SimpleNamespace(name=f"{node.name}-{n}", listchain=lambda node=node: [Child("tests"), node])
        for node in found
        for n in range(1 if node.name == "test_c.py" else 2)
    ]
    collecting.pytest_collection_modifyitems(config, items)
    assert [item.name for item in items] == ["a-0", "a-1", "b-0", "b-1", "test_c.py-0"]


def test_a_worker_that_dies_is_replaced_and_its_test_has_failed(tmp_path: Path) -> None:
    run = Run(tmp_path, 2, [*BESIDE, *LAST])
    died = run.workers.pop(0)
    crashed = run.scheduler.remove_node(cast(WorkerController, died))
    assert crashed == run.ids[died.indices[0]]
    run.workers.append(run.new())
    run.scheduler.schedule()
    run.to_the_end()
    assert sorted([crashed, *(test for _, test, _ in run.ran)]) == sorted(BESIDE + LAST)


@pytest.mark.parametrize("tests_run", range(6))
def test_a_worker_that_dies_leaves_no_file_that_has_been_run(tmp_path: Path, tests_run: int) -> None:
    """A worker that was given such a file would wait for its first test for ever."""
    run = Run(tmp_path, 2, [*BESIDE, *LAST])
    died = run.workers[0]
    for _ in range(tests_run):
        run.step(died)
    crashed = run.scheduler.remove_node(cast(WorkerController, died))
    units = [tests for units in run.scheduler.assigned_work.values() for tests in units.values()]
    assert not [tests for tests in [*run.scheduler.workqueue.values(), *units] if all(tests.values())]
    run.workers.append(run.new())
    run.scheduler.schedule()
    run.to_the_end()
    assert sorted([crashed or "", *(test for _, test, _ in run.ran)]) == sorted(BESIDE + LAST)


def test_a_worker_that_finds_other_tests_is_sent_home(tmp_path: Path) -> None:
    run = Run(tmp_path, 2, [*BESIDE, *LAST])
    late = Worker()
    node = cast(WorkerController, late)
    run.scheduler.add_node(node)
    run.scheduler.add_node_collection(node, BESIDE)
    assert late.shutting_down
    run.workers.append(late)
    run.to_the_end()
    assert sorted(test for _, test, _ in run.ran) == sorted(BESIDE + LAST)


def test_a_worker_in_another_s_place_runs_a_single_test_that_is_left(tmp_path: Path) -> None:
    """All others have ended: no end of a test would show that this one is the last."""
    run = Run(tmp_path, 1, LAST)
    died = run.workers.pop()
    assert run.scheduler.remove_node(cast(WorkerController, died)) == LAST[0]
    run.workers.append(run.new())
    run.scheduler.schedule()
    run.to_the_end()
    assert [test for _, test, _ in run.ran] == LAST[1:]
