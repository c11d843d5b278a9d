"""Arrays in the queue: a row each, unfolded by an address."""

from __future__ import annotations

import re

from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import text_of
from .test_pages import add_job


def add_array(daemon: FakeDaemon, first: int, states: list[str], name: str = "sweep") -> None:
    for index, state in enumerate(states):
        add_job(daemon, first + index, state, name=name)
        daemon.queue.jobs[first + index].array_id = first
        daemon.queue.jobs[first + index].array_index = index + 1


def rows(html: str) -> list[str]:
    return re.findall(r'<tr id="(\w+)"', html)


def test_an_array_is_one_row(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 1, "running")
    add_array(daemon, 2, ["running", "running", "pending", "held", "pending"])
    add_job(daemon, 9, "pending")
    daemon.queue.jobs[4].reason = daemon.queue.jobs[6].reason = "the array is at its limit"
    html = alice.get("/queue").text
    assert rows(html) == ["j1", "a2", "j9"]
    text = text_of(html)
    assert "sweep[1-5]" in text and "2 running 2 pending 1 held" in text
    assert "the array is at its limit (1 wait for other reasons)" in text
    assert "8 jobs" not in text and "7 jobs" in text


def test_it_is_unfolded_and_folded_by_a_link(alice: TestClient, daemon: FakeDaemon) -> None:
    add_array(daemon, 2, ["running", "pending"])
    html = alice.get("/queue?user=&state=active").text
    assert 'href="/queue?state=active&amp;page=1&amp;open=2"' in html and 'aria-expanded="false"' in html
    html = alice.get("/queue?state=active&open=2").text
    assert rows(html) == ["a2", "j2", "j3"]
    assert 'href="/queue?state=active&amp;page=1"' in html and 'aria-expanded="true"' in html
    assert 'hx-sse:connect="/live/queue?state=active&amp;page=1&amp;open=2"' in html, "and stays so while it changes"


def test_the_only_job_of_an_array_that_a_filter_takes_is_a_row(alice: TestClient, daemon: FakeDaemon) -> None:
    add_array(daemon, 2, ["running", "pending", "pending"])
    assert rows(alice.get("/queue?state=running").text) == ["j2"]
    assert rows(alice.get("/queue?text=3").text) == ["j3"]


def test_pages_count_rows(alice: TestClient, daemon: FakeDaemon) -> None:
    add_array(daemon, 100, ["pending"] * 400)
    html = alice.get("/queue").text
    assert rows(html) == ["a100"] and "Further jobs" not in html
    html = alice.get("/queue?open=100&page=9").text
    assert rows(html)[-1] == "j499" and "page 9 of 9" in html


def test_other_words_unfold_nothing(alice: TestClient, daemon: FakeDaemon) -> None:
    add_array(daemon, 2, ["running", "pending"])
    for words in ("x", "-2", "2x", "9" * 500, "," * 500, "<script>"):
        answer = alice.get("/queue", params={"open": words})
        assert rows(answer.text) == ["a2"], words


def test_an_array_of_ended_jobs(alice: TestClient, daemon: FakeDaemon) -> None:
    add_array(daemon, 2, ["completed", "failed", "completed"])
    text = text_of(alice.get("/queue?state=ended").text)
    assert "2 completed" in text and "1 failed" in text


def test_an_array_is_cancelled_from_each_of_its_jobs(alice: TestClient, daemon: FakeDaemon) -> None:
    add_array(daemon, 2, ["running", "pending"])
    page = alice.get("/job/3").text
    form = re.search(r'<form method="post" action="/job/2/cancel">.*?</form>', page)
    assert form and 'name="array" value="yes"' in form[0]
    answer = alice.post("/job/2/cancel", data={"csrf": "token-of-alice-1", "array": "yes"})
    assert answer.status_code == 303
    request = daemon.queue.requests[-1]
    assert isinstance(request, pb.CancelJobRequest) and request.whole_array
