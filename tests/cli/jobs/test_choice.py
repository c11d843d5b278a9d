"""`vgpu job cancel`, `hold` and `release` of jobs that filters choose: which, the question, what is refused."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.cli.conftest import Screen
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.user_names import user_name

OTHER, USAGE, CONFLICT = 1, 2, 8
OTHER_UID = os.getuid() + 12345


@pytest.fixture
def queue(daemon: Any) -> Any:
    """Jobs of two users, with two names, in two queues."""
    fake = daemon.queue
    fake.add(1, "completed")
    for job_id, state in ((2, "running"), (3, "pending"), (4, "held"), (5, "pending"), (6, "pending")):
        fake.add(job_id, state)
    fake.jobs[5].spec.name, fake.jobs[5].spec.queue = "sweep", "team"
    fake.jobs[6].uid = OTHER_UID
    return fake


def list_targets(queue: Any, request: type) -> list[int]:
    return [one.job_id for one in queue.requests if isinstance(one, request)]


@pytest.mark.parametrize(
    ("words", "job_ids"),
    [
        (("--mine",), [2, 3, 4, 5]),
        (("--state", "pending", "--yes"), [3, 5, 6]),
        (("--mine", "--state", "pending,held"), [3, 4, 5]),
        (("--mine", "--state", "pending", "--state", "held"), [3, 4, 5]),
        (("--name", "sweep"), [5]),
        (("--name", "sweep", "--name", "train", "--yes"), [2, 3, 4, 5, 6]),
        (("--queue", "team", "--queue", "default", "--yes"), [2, 3, 4, 5, 6]),
        (("--queue", "team", "--queue", "team2", "--yes"), [5]),
        (("--queue", "team", "--name", "train"), []),
        (("--queue", "team", "--mine", "--yes"), [5]),
    ],
)
def test_filters_narrow_what_is_cancelled(
    vgpu: Any, daemon: Any, queue: Any, words: tuple[str, ...], job_ids: list[int]
) -> None:
    result = vgpu("job", "cancel", *words, host=daemon.host)
    assert result.code == 0, result
    assert list_targets(queue, pb.CancelJobRequest) == job_ids
    if not job_ids:
        assert result.stderr == "vgpu: there is no such job to cancel\n"


def test_jobs_of_others_are_not_chosen_in_silence_without_a_terminal(vgpu: Any, daemon: Any, queue: Any) -> None:
    result = vgpu("job", "cancel", "--state", "pending", host=daemon.host)
    assert result.code == 2 and "not all of these jobs are yours: write --yes" in result.stderr
    assert list_targets(queue, pb.CancelJobRequest) == []


@pytest.mark.parametrize(("command", "job_ids"), [("hold", [3, 5]), ("release", [4])])
def test_jobs_in_the_state_for_it_are_held_and_released(
    vgpu: Any, daemon: Any, queue: Any, command: str, job_ids: list[int]
) -> None:
    assert vgpu("job", command, "--mine", host=daemon.host).code == 0
    assert list_targets(queue, pb.HoldJobRequest if command == "hold" else pb.ReleaseJobRequest) == job_ids


@pytest.mark.parametrize(("answer", "code", "job_ids"), [("n\n", OTHER, []), ("\n", OTHER, []), ("y\n", 0, [3, 5, 6])])
def test_a_terminal_is_asked(
    vgpu: Any,
    daemon: Any,
    queue: Any,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
    job_ids: list[int],
) -> None:
    monkeypatch.setattr(sys, "stdin", Screen(answer))
    result = vgpu("job", "cancel", "--state", "pending", host=daemon.host)
    assert (result.code, list_targets(queue, pb.CancelJobRequest)) == (code, job_ids), result
    assert "cancel 3 jobs of 2 users: 3 (train), 5 (sweep), 6 (train)? [y/N]" in result.stderr
    assert ("nothing was changed" in result.stderr) == (not job_ids)


def test_yes_answers_the_question_and_many_jobs_are_counted(
    vgpu: Any, daemon: Any, queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in range(10, 20):
        queue.add(job_id, "pending").spec.name = "evil\x1b[2J"
    monkeypatch.setattr(sys, "stdin", Screen(""))
    result = vgpu("job", "cancel", "--name", "evil\x1b[2J", "-y", host=daemon.host)
    assert result.code == 0
    first = result.stderr.splitlines()[0]
    assert first.startswith(f"vgpu: cancel 10 jobs of {user_name(os.getuid())}: 10 (evil")
    assert first.endswith("and 2 more") and "\x1b" not in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("cancel",), "say which jobs: their numbers, or a filter such as --mine --state pending"),
        (("cancel", "--yes"), "say which jobs"),
        (("hold",), "say which jobs: their numbers, or a filter such as --mine"),
        (("release",), "say which jobs"),
        (("cancel", "3", "--mine"), "name jobs by number, or choose them by filters, not both"),
        (("cancel", "--array", "--mine"), "--array cancels whole arrays by the number of their first job"),
        (("cancel", "--name", ""), "the name is empty: leave the option out, or set the variable"),
        (("hold", "--queue", ""), "the name is empty"),
        (("cancel", "--state", "failed"), "there is no state 'failed': choose from pending, held, running, suspended"),
    ],
)
def test_what_is_refused(vgpu: Any, daemon: Any, queue: Any, words: tuple[str, ...], message: str) -> None:
    result = vgpu("job", *words, host=daemon.host)
    assert result.code == USAGE
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert not queue.requests


def test_a_job_that_ended_after_it_was_chosen_is_no_failure(
    vgpu: Any, daemon: Any, queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LateAnswer(Screen):
        def readline(self, size: int | None = -1, /) -> str:
            queue.end(3)
            return "y\n"

    monkeypatch.setattr(sys, "stdin", LateAnswer())
    result = vgpu("job", "cancel", "--mine", "--state", "pending", host=daemon.host)
    assert result.code == 0
    assert "job 3 has completed" in result.stderr and queue.state(5) == "cancelled"
    assert vgpu("job", "cancel", "3", "5", host=daemon.host).code == CONFLICT
