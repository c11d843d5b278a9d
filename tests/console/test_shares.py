"""Links that open one session for a time, on a fake clock, and their file."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from vgpud.console.login import shares, shares_file
from vgpud.console.login.shares import NS, SHARES_MAX, SPAN_MAX_NS, SPAN_MIN_NS, USED_NS, ShareError, Shares

HOUR_NS = 3600 * NS


def table() -> Shares:
    numbers = itertools.count()
    return Shares(lambda: f"secret-{next(numbers)}")


def test_a_link_is_to_one_session_and_ends() -> None:
    known = table()
    made, secret = known.make(1000, "alice", 7, HOUR_NS, 0)
    found = known.find(secret, HOUR_NS - 1)
    assert found and (found.uid, found.name, found.job_id) == (1000, "alice", 7)
    assert known.find(secret, HOUR_NS) is None and known.find("secret-99", 0) is None
    assert known.find(made.digest, 0) is None and known.find(made.share_id, 0) is None


def test_a_link_is_revoked_by_its_user_alone() -> None:
    known = table()
    made, secret = known.make(1000, "alice", 7, HOUR_NS, 0)
    assert not known.revoke(1001, made.share_id) and not known.revoke(1000, "x")
    assert known.find(secret, 0)
    assert known.revoke(1000, made.share_id) and known.find(secret, 0) is None
    other, secret = known.make(1000, "alice", 7, HOUR_NS, 0)
    assert known.revoke(None, other.share_id), "root"


@pytest.mark.parametrize("span_ns", [0, SPAN_MIN_NS - 1, SPAN_MAX_NS + 1, -1])
def test_a_link_has_a_time(span_ns: int) -> None:
    with pytest.raises(ShareError, match="1 minute to 7 days"):
        table().make(1000, "alice", 7, span_ns, 0)


def test_a_user_has_a_share_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    known = table()
    for _ in range(SHARES_MAX):
        known.make(1000, "alice", 7, HOUR_NS, 0)
    with pytest.raises(ShareError, match=f"you have {SHARES_MAX} links"):
        known.make(1000, "alice", 7, HOUR_NS, 1)
    known.make(1001, "bob", 8, HOUR_NS, 1)
    known.make(1000, "alice", 7, HOUR_NS, HOUR_NS + 1)
    monkeypatch.setattr(shares, "ALL_MAX", 1)
    with pytest.raises(ShareError, match="all users together"):
        known.make(1002, "eve", 9, HOUR_NS, 1)


def test_users_of_links_are_active_for_a_while() -> None:
    known = table()
    _, secret = known.make(1000, "alice", 7, 2 * HOUR_NS, 0)
    assert known.uids(0) == set(), "nobody has opened it"
    known.find(secret, 5)
    assert known.uids(5) == {1000} and known.uids(5 + USED_NS) == set()


def test_secrets_are_not_kept() -> None:
    known = table()
    _, secret = known.make(1000, "alice", 7, HOUR_NS, 0)
    assert secret not in repr(vars(known)) and secret not in json.dumps(known.as_plain())


def test_links_outlive_the_console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / shares_file.FILE_NAME
    known, again = table(), table()
    _, secret = known.make(1000, "alice", 7, HOUR_NS, 0)
    _, short = known.make(1000, "alice", 8, SPAN_MIN_NS, 0)
    shares_file.save(path, known)
    assert path.stat().st_mode & 0o777 == 0o600
    shares_file.load(path, again, SPAN_MIN_NS)
    assert again.find(secret, SPAN_MIN_NS) and again.find(short, SPAN_MIN_NS) is None
    monkeypatch.setattr(shares_file, "boot_id", lambda: "another")
    later = table()
    shares_file.load(path, later, 0)
    assert later.of(None, 0) == [], "its times are since another boot"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"boot": "b"}', '{"boot": "b", "links": [{"x": 1}]}', '{"boot": "b", "links": 5}', "x"],
)
def test_a_file_that_cannot_be_read_ends_the_links(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(shares_file, "boot_id", lambda: "b")
    (tmp_path / "f").write_text(text)
    known = table()
    shares_file.load(tmp_path / "f", known, 0)
    assert known.of(None, 0) == [] and "shared links of before have ended" in caplog.text


def test_a_link_in_the_file_lasts_no_longer_than_one_can(tmp_path: Path) -> None:
    known, again = table(), table()
    known.make(1000, "alice", 7, SPAN_MAX_NS, HOUR_NS)
    shares_file.save(tmp_path / "f", known)
    shares_file.load(tmp_path / "f", again, 0)
    assert again.of(None, 0) == [], "a clock that has gone back"
