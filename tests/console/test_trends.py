"""Trends and top users of the overview, and alerts that are dismissed."""

from __future__ import annotations

import re

from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon
from vgpud.console.live.alert_book import DISMISSED_MAX, USERS_MAX, AlertBook, AlertBooks
from vgpud.console.pages import trends
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import Post, text_of
from .test_pages import add_slice


def history(*values: int) -> pb.History:
    found = pb.History()
    for number, value in enumerate(values):
        found.points.add(used_milli=value).begin_time.FromSeconds(1000 + 60 * number)
    return found


# ---- trends ----


def test_a_trend_is_drawn_over_its_width() -> None:
    found = trends.trend(history(0, 1000, 2000), "used_milli", 2000, 0)
    assert found.points == "0.0,23.0 50.0,12.0 100.0,1.0"
    assert found.first == 0


def test_a_trend_begins_at_its_moment_and_stays_within_its_height() -> None:
    found = trends.trend(history(500, 1000, 5000), "used_milli", 2000, 1060)
    assert (found.points, found.first) == ("0.0,12.0 100.0,1.0", 0.5)


def test_no_trend_of_one_point_or_of_no_device() -> None:
    assert trends.trend(history(5), "used_milli", 2000, 0) == trends.Trend("", None)
    assert trends.node_trends(history(5, 6), [], 0)["used"] == trends.Trend("", None)


def test_users_by_what_they_were_granted() -> None:
    usage = [pb.Usage(uid=uid, jobs=1, gpu_seconds_granted=10 * uid, gpu_seconds_used=uid) for uid in range(1, 12)]
    item = pb.Slice(owner_uid=50)
    item.devices.add(min_milli=500, mem_used_bytes=7)
    item.devices.add(min_milli=250, mem_used_bytes=1)
    found = trends.top_users([*usage, pb.Usage(gpu_seconds_granted=99)], [item, pb.Slice()])
    assert [use.uid for use in found] == [11, 10, 9, 8, 7, 6, 5, 4]
    (only,) = trends.top_users([], [item])
    assert (only.uid, only.now_milli, only.mem_bytes, only.granted_s) == (50, 750, 8, 0)


def test_the_overview_has_trends_and_users(alice: TestClient, daemon: FakeDaemon) -> None:
    add_slice(daemon, "train", owner=0)
    html = alice.get("/").text
    assert "root" in text_of(html).partition("Top users")[2]
    assert daemon.requests[-1].kind == pb.HISTORY_KIND_NODE


def test_a_daemon_without_history_is_no_problem(alice: TestClient) -> None:
    assert "Nothing new arrives" not in alice.get("/").text


# ---- alerts ----


def test_an_alert_has_time_and_user(alice: TestClient, daemon: FakeDaemon) -> None:
    event = pb.Event(sequence=5, kind="job.lost", message="job 3 is gone", owner_uid=0)
    event.create_time.GetCurrentTime()
    daemon.events.append(event)
    daemon.devices[1].drained = "fan broken"
    html = alice.get("/").text
    shown = re.search(r'<ul class="alerts">.*?</ul>', html, re.S)
    assert shown
    assert re.search(r"urgent \d\d:\d\d:\d\d root job\.lost: job 3 is gone", text_of(shown[0]))
    assert re.search(r"look at since \d\d:\d\d:\d\d device 1 is drained", text_of(shown[0])), "seen, not when it was"


def test_an_alert_is_dismissed_until_it_comes_back(alice: TestClient, daemon: FakeDaemon, post: Post) -> None:
    daemon.devices[1].drained = "fan broken"
    html = alice.get("/").text
    keys = re.findall(r'name="key" value="([^"]*)"', html)
    assert len(keys) == 1
    html = post("/alerts/dismiss", key=keys[0])
    assert "fan broken" not in html and "1 dismissed" in text_of(html)
    assert "fan broken" in post("/alerts/restore")
    alice.post("/alerts/dismiss", data={"csrf": "token-of-alice-1", "key": keys[0]}, headers={"hx-request": "true"})
    alice.cookies.set("vgpu", "bob-2")
    assert "fan broken" in alice.get("/").text, "others still see it"


def test_a_book_forgets_what_has_ended() -> None:
    book = AlertBook()
    book.see(["a", "b"], 10)
    book.see(["a", "b"], 20)
    assert book.seen_s("a") == 10
    book.dismiss("a")
    book.see(["b"], 30)
    book.see(["a", "b"], 40)
    assert not book.is_dismissed("a") and book.seen_s("a") == 40


def test_a_book_is_bounded() -> None:
    book = AlertBook()
    book.dismiss("x" * 100_000)
    assert not book.is_dismissed("x" * 100_000), "what there is not cannot be dismissed"
    keys = [str(number) for number in range(DISMISSED_MAX + 5)]
    book.see(keys, 0)
    for key in keys:
        book.dismiss(key)
    assert sum(map(book.is_dismissed, keys)) == DISMISSED_MAX
    books = AlertBooks()
    first = books.of(0)
    for uid in range(1, USERS_MAX + 1):
        books.of(uid)
    assert books.of(0) is not first
