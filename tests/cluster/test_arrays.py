"""Arrays of which only so many elements run at once: the queue offers no more, so that what is free is others'."""

from __future__ import annotations

import contextlib

import pytest

from tests.cluster.fake_slurm import FakeSlurm
from tests.cluster.system import System
from tests.cluster.world import World
from vgpud.cluster.core.model import Hold, SlurmJob
from vgpud.cluster.shell import arrays as limits
from vgpud.cluster.shell import slurm as shell
from vgpud.simulate import replay


@pytest.fixture
def system(quick_system: System) -> System:
    return quick_system


def test_no_more_elements_have_gpus_than_the_array_allows() -> None:
    world = World(FakeSlurm(n1=8))
    keys = world.slurm.array("gpu:1", 6, limit=2)
    world.looks(2)
    assert world.running() == keys[:2]
    assert [world.state(key) for key in keys] == ["running"] * 2 + ["pending"] * 4
    reason = world.controller.machine.reason(world.job(keys[2]).job_id, world.now_ns)
    assert reason == "the array of job 1 is at its limit: 2 jobs are running or starting"
    wide = world.slurm.submit("gpu:6")
    world.looks(2)
    assert world.running() == [*keys[:2], wide], "in the books of the queue there is space for it"
    world.slurm.end(keys[0])
    world.slurm.end(wide)
    world.looks(2)
    assert world.running() == keys[1:3]
    assert list(replay.same_commands(world.recording())) == []


def test_all_elements_run_in_the_end_and_never_too_many() -> None:
    world = World(FakeSlurm(n1=4))
    keys = world.slurm.array("shard:500", 9, limit=3)
    done = []
    for _ in range(60):
        world.look()
        running = world.running()
        assert len(running) <= 3
        for key in running[:1]:
            world.slurm.end(key)
            done.append(key)
    assert sorted(done) == sorted(keys)


def test_an_element_that_a_node_loses_keeps_its_turn() -> None:
    world = World(FakeSlurm(n1=1, n2=1, n3=1))
    keys = world.slurm.array("gpu:1", 3, limit=1)
    world.looks(2)
    (node,) = world.slurm.jobs[keys[0]].has
    world.slurm.fail(node)
    world.looks(9)  # its start may be on its way to that node still
    assert world.running() == keys[:1]


@pytest.mark.parametrize("limit", [4, 0])
def test_its_user_raises_the_limit(limit: int) -> None:
    world = World(FakeSlurm(n1=8))
    keys = world.slurm.array("gpu:1", 6, limit=2)
    world.looks(2)
    world.slurm.limits[1] = limit
    world.looks(3)
    assert world.running() == (keys[:limit] if limit else keys)


def test_its_user_lowers_the_limit() -> None:
    world = World(FakeSlurm(n1=8))
    keys = world.slurm.array("gpu:1", 6, limit=4)
    world.looks(2)
    world.slurm.limits[1] = 1
    world.looks(2)
    for key in keys[:3]:
        world.slurm.end(key)
        world.looks(2)
    assert world.running() == [keys[3]]
    world.slurm.end(keys[3])
    world.looks(2)
    assert len(world.running()) == 1


def test_the_next_controller_knows_the_limit() -> None:
    world = World(FakeSlurm(n1=8))
    keys = world.slurm.array("gpu:1", 4, limit=2)
    world.looks(2)
    world.kill()
    world.slurm.limits[1] = 0  # it is not shown any more, as when no elements wait undivided
    world.looks(2)
    assert world.running() == keys[:2]


def test_elements_wait_until_the_limit_is_known() -> None:
    """They would be in the queue's books beyond the limit, on GPUs that others could use."""
    world = World(FakeSlurm(n1=8))
    keys = world.slurm.array("gpu:1", 6, limit=2)
    world.slurm.unknown_limits.add(1)
    plain = world.slurm.submit("gpu:2")
    world.looks(2)
    assert world.running() == [plain] and world.controller.bindings.keys() == {plain}
    world.slurm.unknown_limits.clear()
    world.looks(2)
    assert world.running() == [*keys[:2], plain]
    assert [world.state(key) for key in keys[2:]] == ["pending"] * 4


def test_elements_that_slurm_would_start_by_itself_are_held_meanwhile() -> None:
    world = World(FakeSlurm(n1=8))
    (key,) = world.slurm.array("gpu:1", 1, limit=2, held=False)
    world.slurm.unknown_limits.add(1)
    assert world.look().orders == [Hold(key)]


def test_a_limit_stays_while_the_next_controller_has_not_asked_for_it() -> None:
    world = World(FakeSlurm(n1=8))
    keys = world.slurm.array("gpu:1", 4, limit=2)
    world.looks(2)
    world.kill()
    world.slurm.unknown_limits.add(1)
    world.looks(2)
    world.slurm.unknown_limits.clear()
    world.looks(2)
    assert world.running() == keys[:2]
    assert [world.job(key).spec.array_limit for key in keys] == [2] * 4


def test_a_limit_that_slurm_never_tells_is_waited_for_a_minute(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, run = [1000.0], shell.run
    monkeypatch.setattr(shell.time, "monotonic", lambda: now_s[0])

    def silent(words: list[str], **options: object) -> str:
        if words[:2] == ["scontrol", "--oneliner"]:
            raise shell.SlurmError("scontrol did not answer")
        return run(words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(shell, "run", silent)
    system.change(lambda slurm: slurm.array("gpu:3", 2, limit=1))
    one = shell.Slurm("gpu")
    assert [job.array_limit for job in one.look().jobs] == [None, None]
    now_s[0] += limits.WAIT_S - 1
    assert [job.array_limit for job in one.look().jobs] == [None, None]
    now_s[0] += 1
    assert [job.array_limit for job in one.look().jobs] == [0, 0]
    monkeypatch.setattr(shell, "run", run)
    assert [job.array_limit for job in one.look().jobs] == [1, 1], "it is asked for all the same"


def test_arrays_that_do_not_answer_keep_no_others_from_being_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ASKED_MAX", 2)
    asked, jobs = limits.Limits(), [SlurmJob(f"{number}_0") for number in range(1, 6)]

    def silent() -> int | None:
        raise shell.SlurmError("scontrol did not answer")

    order = []
    for turn in range(3):
        for array in asked.due(jobs, turn + 1.0):
            order.append(array)
            with contextlib.suppress(shell.SlurmError):
                asked.ask(array, turn + 1.0, silent)
    assert order == [1, 2, 3, 4, 5, 1]


def test_arrays_wait_for_the_answer_however_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute without an answer counts from the question: of arrays that were not asked for yet no element enters the
    queue without a limit. Other users' are asked for in turn with those of one who has many."""
    monkeypatch.setattr(limits, "ASKED_MAX", 2)
    asked = limits.Limits()
    jobs = [SlurmJob(f"{number}_0", uid=1000) for number in range(1, 41)]
    jobs += [SlurmJob("41_0", uid=2000), SlurmJob("42_0", uid=2000), SlurmJob("43_0", uid=3000)]
    order, late_s = [], 1000.0 + limits.WAIT_S
    for now_s in (1000.0, 1002.0, late_s, late_s + 2):
        for array in asked.due(jobs, now_s):
            order.append(array)
            asked.ask(array, now_s, lambda: 1)
    assert order == [1, 41, 43, 2, 42, 3, 43, 4]
    assert [asked.of(job, late_s + 2).array_limit for job in jobs[3:6]] == [1, None, None]


def test_a_slow_slurm_is_not_asked_for_ever(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look must end before others take the controller for gone; the rest is asked for in the next look."""
    now_s, run, asked = [1000.0], shell.run, list[str]()
    monkeypatch.setattr(shell.time, "monotonic", lambda: now_s[0])

    def run_slowly(words: list[str], **options: object) -> str:
        if words[:2] == ["scontrol", "--oneliner"]:
            now_s[0] += 4
            asked.append(words[-1])
            if len(asked) == 1:
                raise shell.SlurmError("scontrol did not answer")
        return run(words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(shell, "run", run_slowly)
    for _ in range(5):
        system.change(lambda slurm: slurm.array("gpu:3", 2, limit=1))
    one = shell.Slurm("gpu")
    assert [job.array_limit for job in one.look().jobs] == [None, None, 1, 1, 1, 1, None, None, None, None]
    assert [job.array_limit for job in one.look().jobs] == [1] * 10 and len(asked) == 6


def test_what_slurm_forgets_of_an_array_is_kept(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements that wait one by one do not say the limit."""
    monkeypatch.setattr(limits, "EVERY_S", 0.0)
    system.change(lambda slurm: slurm.array("gpu:3", 2, limit=1))
    one = shell.Slurm("gpu")
    assert [job.array_limit for job in one.look().jobs] == [1, 1]
    run = shell.run

    def forgetful(words: list[str], **options: object) -> str:
        shows = words[:2] == ["scontrol", "--oneliner"]
        return "JobId=9 ArrayJobId=1 ArrayTaskId=0 JobName=x" if shows else run(words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(shell, "run", forgetful)
    assert [job.array_limit for job in one.look().jobs] == [1, 1]


def test_limits_are_asked_once_in_a_while(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    run = shell.run
    monkeypatch.setattr(shell, "run", lambda words, **more: (asked.append(list(words)), run(words, **more))[1])

    def arrays() -> int:
        return sum(words[:4] == ["scontrol", "--oneliner", "show", "job"] for words in asked)

    system.change(lambda slurm: slurm.array("gpu:1", 4, limit=1))
    system.submit("shard:100")
    one = system.service()
    one.look()
    assert [job.state for job in system.slurm().jobs.values()] == [
        "RUNNING",
        "PENDING",
        "PENDING",
        "PENDING",
        "RUNNING",
    ]
    one.look()
    assert arrays() == 1, "not with every look"
    monkeypatch.setattr(limits, "EVERY_S", 0.0)
    system.change(lambda slurm: slurm.limits.update({1: 2}))
    one.look()
    one.look()
    assert arrays() > 1 and [job.state for job in system.slurm().jobs.values()].count("RUNNING") == 3
    one.close()
