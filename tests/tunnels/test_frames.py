"""Which pieces of a WebSocket are the user's doing, and where its frames end."""

from __future__ import annotations

import asyncio
import socket

import pytest

from vgpud.tunnels.ends import End
from vgpud.tunnels.frames import FrameWatch, close_frame

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


@pytest.mark.parametrize("size", [1, 2, 5, 300, 70_000])
def test_a_close_frame_stands_between_two_frames(size: int) -> None:
    """What had begun is passed on to its end, whatever pieces it comes in, and nothing behind it."""
    whole = message(69_986)
    data = whole[:size], whole[size:] + message(9) + CLOSE

    async def use() -> None:
        (sender, ours), (its, receiver) = socket.socketpair(), socket.socketpair()
        loop = asyncio.get_running_loop()
        _, far = await loop.create_connection(lambda: End(60.0, FrameWatch()), sock=ours)
        _, near = await loop.create_connection(lambda: End(60.0), sock=its)
        near.join(far)
        far.join(near)
        far.data_received(data[0])
        far.end_with(close_frame(1001, "bye"))
        for at in range(0, len(data[1]), 1000):
            far.data_received(data[1][at : at + 1000])
        far.end_with(close_frame(1011, "once only"))
        near.transport.close()
        receiver.setblocking(False)
        found = b""
        while piece := await loop.sock_recv(receiver, 65536):
            found += piece
        rest = whole[:size] if size == len(whole) else whole
        assert found == rest + b"\x88\x05\x03\xe9bye"
        far.transport.close()
        sender.close()
        receiver.close()

    asyncio.run(use())


def test_a_side_that_has_closed_itself_has_said_its_last() -> None:
    watch = FrameWatch()
    watch.has_message(message(3) + CLOSE)
    assert watch.has_close and watch.is_between
