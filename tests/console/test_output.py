"""The output of a job: what a page shows of it, the pieces that follow, and the file."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon
from vgpud.console.pages import output
from vgpud.console.pages.output import PIECE_BYTES, Piece, read_piece

from .conftest import FakeBroker, text_of
from .test_pages import add_job


def read_bytes(data: bytes, begin: int | None = None, end: int | None = None) -> Piece:
    fd = os.memfd_create("log")
    os.write(fd, data)
    return read_piece(fd, begin, end)


@given(st.lists(st.binary(max_size=200), max_size=12))
def test_pieces_that_follow_each_other_are_the_file(parts: list[bytes]) -> None:
    """As a page puts them together: whole lines stay, the line without an end is shown again."""
    data, lines, rest, at = b"", "", "", None
    for part in parts:
        data += part
        piece = read_bytes(data, at)
        lines, rest, at = lines + piece.text, piece.rest, piece.next
    whole = read_bytes(data)
    assert (lines + rest, at or 0) == (whole.text + whole.rest, whole.next)


def test_a_long_file_begins_with_a_whole_line() -> None:
    data = b"".join(b"line %d\n" % number for number in range(20_000))
    piece = read_bytes(data)
    assert piece.text.startswith("line ") and piece.text.endswith("line 19999\n")
    assert 0 < len(data) - piece.begin <= PIECE_BYTES
    assert data[piece.begin - 1 : piece.begin] == b"\n"
    earlier = read_bytes(data, end=piece.begin)
    assert (earlier.text + piece.text).endswith(data[earlier.begin :].decode())


def test_a_page_that_is_far_behind_gets_the_end() -> None:
    data = b"a line\n" * 30_000
    assert read_bytes(data, begin=7).begin > len(data) - PIECE_BYTES
    assert read_bytes(b"new\n", begin=9999) == Piece(0, 4, 4, "new\n", ""), "the file was cut"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"header\n 1 %\r 50 %\r 99 %\ndone\r\n", "header\n 99 %\ndone\n"),
        (b" 10 %\r", " 10 %"),
        (b"\x1b[1;31mred\x1b[0m \x1b]0;title\x07plain\x1b[2K\n", "red plain\n"),
        (b"\xff\xfe broken \xe2\x82", "\ufffd\ufffd broken \ufffd"),
        (b"\x1b", "\x1b"),
    ],
)
def test_it_is_shown_as_a_terminal_shows_it(data: bytes, text: str) -> None:
    piece = read_bytes(data)
    assert piece.text + piece.rest == text


def test_escapes_of_any_length_take_linear_time() -> None:
    data = b"\x1b]" * 32_000 + b"\x1b[" * 1000 + b"\x1bP" * 1000
    assert isinstance(read_bytes(data[:PIECE_BYTES]).rest, str)


def test_a_page_follows_the_output(alice: TestClient, daemon: FakeDaemon, fake_broker: FakeBroker) -> None:
    add_job(daemon, 7, "running", uid=5)
    fake_broker.files["/logs/7"] = b"epoch 1\nepo"
    first = alice.get("/job/7/output.json").json()
    assert (first["text"], first["rest"], first["next"], first["ended"]) == ("epoch 1\n", "epo", 8, False)
    fake_broker.files["/logs/7"] += b"ch 2\n"
    following = alice.get(f"/job/7/output.json?from={first['next']}").json()
    assert (following["begin"], following["text"], following["rest"]) == (8, "epoch 2\n", "")
    assert fake_broker.read[-1] == (1, 5, "/logs/7"), "the owner's rights are asked for"
    for wrong in ("from=-1", "from=x", "before=" + "9" * 400):
        assert alice.get(f"/job/7/output.json?{wrong}").json()["next"] == 16


def test_a_problem_is_a_sentence(alice: TestClient, daemon: FakeDaemon) -> None:
    add_job(daemon, 7, "running")
    assert alice.get("/job/7/output.json").json()["problem"] == "/logs/7: No such file or directory"
    answer = alice.get("/job/7/output")
    assert (answer.status_code, answer.text) == (404, "/logs/7: No such file or directory")


def test_all_of_it_is_downloaded_as_it_is(
    alice: TestClient, daemon: FakeDaemon, fake_broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "_SENT_BYTES", 1000)
    add_job(daemon, 7, "completed")
    fake_broker.files["/logs/7"] = data = os.urandom(4321)
    answer = alice.get("/job/7/output")
    assert answer.content == data
    assert answer.headers["content-disposition"] == 'attachment; filename="vgpu-7.log"'
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_the_page_has_the_end_without_scripts(alice: TestClient, daemon: FakeDaemon, fake_broker: FakeBroker) -> None:
    add_job(daemon, 7, "running")
    fake_broker.files["/logs/7"] = b"<b>bold</b>\nlast"
    page = alice.get("/job/7").text
    assert "&lt;b&gt;bold&lt;/b&gt;\nlast" in page
    assert 'href="/job/7/output" download' in page
    assert "no output yet" not in text_of(page)
