"""`vgpu submit`: arrays, times at which jobs begin, and notifications, as they are sent."""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest

from vgpud.client.arrays import parse_array
from vgpud.v1alpha1 import vgpud_pb2 as pb


@pytest.mark.parametrize(
    ("text", "indices", "limit"),
    [
        ("1-3", (1, 2, 3), 0),
        ("7", (7,), 0),
        ("0-3", (0, 1, 2, 3), 0),
        ("1,3,5", (1, 3, 5), 0),
        ("9,1-2", (1, 2, 9), 0),
        ("1-9:2", (1, 3, 5, 7, 9), 0),
        ("1-10%2", tuple(range(1, 11)), 2),
        ("1-5:4,8%3", (1, 5, 8), 3),
    ],
)
def test_arrays_as_slurm_takes_them(text: str, indices: tuple[int, ...], limit: int) -> None:
    assert parse_array(text) == (indices, limit)


def test_a_begin_is_sent_as_a_time(vgpu: Any, daemon: Any) -> None:
    begin_ns = time.time_ns()
    assert vgpu("submit", "--gpus", "0.5", "--begin", "2h", "true", host=daemon.host).code == 0
    sent = daemon.queue.requests[-1].spec.begin_time
    assert 0 <= sent.seconds - (begin_ns // 10**9 + 7199) <= 60
    assert vgpu("submit", "--gpus", "0.5", "--begin", "2099-01-02T03:04+00:00", "true", host=daemon.host).code == 0
    assert daemon.queue.requests[-1].spec.begin_time.ToJsonString() == "2099-01-02T03:04:00Z"
    assert vgpu("submit", "--gpus", "0.5", "--begin", "16:00", "true", host=daemon.host).code == 0
    at = datetime.datetime.fromtimestamp(daemon.queue.requests[-1].spec.begin_time.seconds, datetime.timezone.utc)
    assert (at.astimezone().hour, at.astimezone().minute) == (16, 0)
    left = at - datetime.datetime.now(datetime.timezone.utc)
    assert datetime.timedelta(minutes=-1) < left <= datetime.timedelta(hours=25), "the next one"


def test_a_notification_is_sent(vgpu: Any, daemon: Any) -> None:
    ways = ("--notify-mail", "ann@example.org", "--notify-command", "sh -c 'echo \"$VGPU_JOB_ID\"'")
    assert vgpu("submit", "--gpus", "0.5", "--notify", "start,failure", *ways, "true", host=daemon.host).code == 0
    sent = daemon.queue.requests[-1].spec.notification
    assert (sent.mail, sent.webhook) == ("ann@example.org", "")
    assert list(sent.events) == [pb.NOTIFICATION_EVENT_START, pb.NOTIFICATION_EVENT_FAILURE]
    assert sent.command[0].endswith("/sh") and list(sent.command[1:]) == ["-c", 'echo "$VGPU_JOB_ID"']


@pytest.mark.parametrize("text", ["USR1@300", "SIGUSR1@5m", "usr1@300s"])
def test_a_signal_and_a_grace_are_sent(vgpu: Any, daemon: Any, text: str) -> None:
    words = ("--signal", text, "--grace", "60s", "--time-limit", "1h")
    assert vgpu("submit", "--gpus", "0.5", *words, "true", host=daemon.host).code == 0
    spec = daemon.queue.requests[-1].spec
    assert (spec.signal, spec.signal_lead.seconds, spec.grace.seconds) == ("USR1", 300, 60)
    daemon.queue.jobs[1].state = pb.JOB_STATE_PENDING
    shown = vgpu("job", "show", "1", host=daemon.host).stdout
    assert "time limit    1h, USR1 5m before" in shown and "grace         1m" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--signal", "KILL@5"), "'KILL@5' names no signal: choose from HUP, INT"),
        (("--signal", "USR1"), "'USR1' says no time: write for example USR1@300, or USR1@5m"),
        (("--signal", "USR1@soon"), "'soon' is not a time"),
        (("--signal", "USR1@60"), "--signal is sent before the time limit: add --time-limit"),
        (("--grace", "soon"), "'soon' is not a time"),
    ],
)
def test_a_signal_or_a_grace_that_is_refused(vgpu: Any, daemon: Any, words: tuple[str, ...], message: str) -> None:
    result = vgpu("submit", "--gpus", "0.5", *words, "true", host=daemon.host)
    assert result.code == 2 and message in result.stderr and result.stderr.count("\n") == 1


def test_an_array_is_sent_as_indices_and_a_limit(vgpu: Any, daemon: Any) -> None:
    assert vgpu("submit", "--gpus", "0.5", "--array", "0,4-6%2", "true", host=daemon.host).code == 0
    spec = daemon.queue.requests[-1].spec
    assert (list(spec.array_indices), spec.array_limit) == ([0, 4, 5, 6], 2)
    assert vgpu("submit", "--gpus", "0.5", "--array", "2-4", "true", host=daemon.host).code == 0
    spec = daemon.queue.requests[-1].spec
    assert list(spec.array_indices) == [2, 3, 4]


def test_a_maximum_of_the_link_is_sent_and_a_minimum_is_none_of_its_options(vgpu: Any, daemon: Any) -> None:
    assert vgpu("submit", "--gpus", "0.5", "--copy-max", "0.2", "true", host=daemon.host).code == 0
    assert daemon.queue.requests[-1].spec.slice.copy_max_milli == 200
    assert vgpu("submit", "--gpus", "0.5", "--copy-min", "0.2", "true", host=daemon.host).code == 2
    for wrong in ("2", "30%", "-1"):
        said = vgpu("submit", "--gpus", "0.5", "--copy-max", wrong, "true", host=daemon.host)
        assert said.code == 2 and "is no part of a link: write one up to 1, for example 0.3" in said.stderr
