"""`vgpu reserve`: what is sent, what is shown, what is refused."""

from __future__ import annotations

import time
from typing import Any

import pytest

USAGE = 2


def test_create_ls_and_rm(vgpu: Any, daemon: Any) -> None:
    begins = ("--begin", "2099-01-02T08:00+00:00", "--for", "4h")
    words = ("--device", "0", *begins, "--queue", "team", "--reason", "a course")
    assert vgpu("reserve", "create", "course", *words, host=daemon.host).code == 0
    (made,) = daemon.queue.reservations.values()
    assert (made.name, list(made.device_uuids), made.queue, made.reason) == ("course", ["0"], "team", "a course")
    assert (made.begin_time.ToJsonString(), made.end_time.seconds - made.begin_time.seconds) == (
        "2099-01-02T08:00:00Z",
        4 * 3600,
    )
    answer = vgpu("reserve", "ls", "-o", "json", host=daemon.host).json["reservations"][0]
    assert (answer["begin_time"], answer["queue"]) == ("2099-01-02T08:00:00Z", "team")
    lines = vgpu("reserve", "ls", host=daemon.host).stdout.splitlines()
    assert lines[0].split() == ["RESERVATION", "DEVICES", "BEGIN", "END", "QUEUE", "REASON"]
    assert lines[1].split()[0] == "course" and lines[1].endswith("team   a course")
    result = vgpu("reserve", "rm", "course", host=daemon.host)
    assert (result.code, result.stderr) == (0, "vgpu: reservation course removed\n")
    assert daemon.queue.reservations == {}


def test_one_without_a_begin_begins_now(vgpu: Any, daemon: Any) -> None:
    begin_s = time.time_ns() // 10**9
    assert vgpu("reserve", "create", "now", "--device", "0", "--for", "1h", host=daemon.host).code == 0
    made = daemon.queue.reservations["now"]
    assert not made.HasField("begin_time")
    assert 0 <= made.end_time.seconds - begin_s - 3600 <= 60


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--device", "0"), "specify the end: either --for 4h or --end 16:00"),
        (("--device", "0", "--for", "1h", "--end", "16:00"), "specify the end: either --for 4h or --end 16:00"),
        (("--for", "1h"), "--device"),
        (("--device", "0", "--for", "soon"), "'soon' is not a time: write for example 90s"),
        (("--device", "0", "--for", "1h", "--begin", "yesterday"), "'yesterday' is not a point in time"),
        (("--device", "0", "--end", "2020-01-01"), "'2020-01-01' is in the past"),
        (("--device", "0", "--begin", "2h", "--end", "1h"), "--end is before --begin: swap them"),
    ],
)
def test_reservations_that_are_refused(vgpu: Any, daemon: Any, words: tuple[str, ...], message: str) -> None:
    result = vgpu("reserve", "create", "a", *words, host=daemon.host)
    assert result.code == USAGE
    assert message in result.stderr and result.stderr.count("\n") == 1
