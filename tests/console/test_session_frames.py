"""Which pieces of a WebSocket are the user's doing."""

from __future__ import annotations

import pytest

from vgpud.console.sessions.frames import FrameWatch

MASK = b"\1\2\3\4"
PONG = b"\x8a\x80" + MASK
CLOSE = b"\x88\x82" + MASK + b"xx"


def message(size: int, opcode: int = 1) -> bytes:
    head = bytes([0x80 | opcode])
    if size < 126:
        return head + bytes([0x80 | size]) + MASK + bytes(size)
    if size < 1 << 16:
        return head + b"\xfe" + size.to_bytes(2, "big") + MASK + bytes(size)
    return head + b"\xff" + size.to_bytes(8, "big") + MASK + bytes(size)


@pytest.mark.parametrize(
    ("data", "is_use"),
    [
        (PONG, False),
        (PONG + CLOSE, False),
        (message(0), True),
        (message(5), True),
        (message(5, opcode=2), True),
        (PONG + message(300), True),
        (message(70_000) + PONG, True),
        (b"", False),
    ],
)
def test_messages_are_use_and_control_frames_are_not(data: bytes, is_use: bool) -> None:
    assert FrameWatch().has_message(data) is is_use


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_of_any_size(size: int) -> None:
    """Zeros in a message look like the head of another one."""
    data = PONG + message(300) + PONG + message(66_000, opcode=2) + PONG * 3 + message(4)
    watch, begins = FrameWatch(), 0
    for at in range(0, len(data), size):
        begins += watch.has_message(data[at : at + size])
    assert begins == 3
    assert not watch.has_message(PONG * 10)


def test_the_rest_of_a_message_is_no_second_one() -> None:
    watch = FrameWatch()
    whole = message(1000)
    assert watch.has_message(whole[:100])
    assert not watch.has_message(whole[100:])
