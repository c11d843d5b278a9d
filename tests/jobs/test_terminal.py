"""Joining a terminal: messages of a keeper, also of a hostile one, and connections that end while they are in use."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from vgpud.core.jobs import terminal as wire
from vgpud.core.jobs.terminal import Heard, Kind
from vgpud.jobs import terminal as terminals
from vgpud.jobs.terminal import Terminal, join

PATIENCE_S = 60.0


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **options), PATIENCE_S))

    return run


def pair() -> tuple[Terminal, socket.socket]:
    """A terminal, and its keeper's side."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    return Terminal(ours), theirs


@pytest.mark.parametrize(
    ("message", "parsed_message"),
    [
        (b"Rtext", Heard(Kind.REPLAY, b"text")),
        (b"A", Heard(Kind.JOINED)),
        (b"O\x00\xff", Heard(Kind.OUTPUT, b"\x00\xff")),
        (b"L" + (2**40).to_bytes(8, "little"), Heard(Kind.LOST, count=2**40)),
        (b"T", Heard(Kind.TAKEN)),
        (b"", Heard(Kind.ENDED)),
    ],
)
def test_messages(message: bytes, parsed_message: Heard) -> None:
    assert wire.parse(message) == parsed_message


@pytest.mark.parametrize("message", [b"X", b"Atext", b"Ttext", b"L", b"L1234567", b"L123456789", b"O" + b"x" * 16385])
def test_messages_that_are_none(message: bytes) -> None:
    with pytest.raises(ValueError, match=r"a message of|a count of|with 4 bytes|is not a valid Kind"):
        wire.parse(message)


def test_what_is_sent() -> None:
    assert wire.encode_keys(b"ls\n") == b"Ils\n"
    assert wire.encode_size(24, 300) == b"W\x18\x00\x2c\x01"
    assert wire.encode_size(wire.SIZE_MAX, 1) == b"W\xff\xff\x01\x00"


@on_a_loop
async def test_the_replay_is_one_message() -> None:
    terminal, keeper = pair()
    with keeper:
        for message in (b"Rone ", b"Rtwo", b"A", b"Othree ", b"Ofour", b"T"):
            keeper.send(message)
        assert await terminal.hear() == Heard(Kind.REPLAY, b"one two")
        assert await terminal.hear() == Heard(Kind.OUTPUT, b"three four"), "what is there comes as one"
        assert await terminal.hear() == Heard(Kind.TAKEN)
        await terminal.resize(30, 90)
        await terminal.type(b"x" * 5000)
        assert [len(keeper.recv(10_000)) for _ in range(3)] == [5, 4097, 905]
    assert await terminal.hear() == Heard(Kind.ENDED)
    await terminal.type(b"into nothing")
    terminal.close()


@on_a_loop
async def test_a_replay_without_end() -> None:
    terminal, keeper = pair()
    keeper.setblocking(False)
    with keeper:
        for _ in range(5):
            keeper.send(b"R" + b"x" * (16 << 10))
        assert await terminal.hear() == Heard(Kind.ENDED)
        terminal.close()


@on_a_loop
async def test_a_keeper_that_does_not_answer() -> None:
    """A socket that no process serves takes viewers all the same; once it has answered it may be silent."""
    terminal, keeper = pair()
    with keeper, pytest.MonkeyPatch.context() as patch:
        patch.setattr(terminals, "ANSWER_S", 0.05)
        assert await terminal.hear() == Heard(Kind.ENDED)
        keeper.send(b"A")
        assert await terminal.hear() == Heard(Kind.REPLAY)
        hearing = asyncio.create_task(terminal.hear())
        done, _ = await asyncio.wait((hearing,), timeout=0.3)
        assert not done
        keeper.send(b"Olate")
        assert await hearing == Heard(Kind.OUTPUT, b"late")
    terminal.close()


@on_a_loop
async def test_garbage_ends_it() -> None:
    dice = random.Random(5)
    for _ in range(200):
        terminal, keeper = pair()
        with keeper:
            keeper.send(dice.randbytes(dice.randint(1, 40)))
        while (await terminal.hear()).kind is not Kind.ENDED:
            pass
        terminal.close()


@on_a_loop
async def test_closing_ends_what_waits() -> None:
    """A program that reads nothing, and one that prints nothing."""
    terminal, keeper = pair()
    with keeper:
        hearing = asyncio.create_task(terminal.hear())
        typing = asyncio.create_task(terminal.type(b"x" * (4 << 20)))
        done, _ = await asyncio.wait((hearing, typing), timeout=0.2)
        assert not done
        terminal.close()
        assert await hearing == Heard(Kind.ENDED)
        await typing
        assert terminal._socket.fileno() < 0
        await terminal.resize(1, 1)
        assert await terminal.hear() == Heard(Kind.ENDED)


@on_a_loop
async def test_joining(tmp_path: Path) -> None:
    assert join(tmp_path / "none") is None
    assert join(tmp_path) is None
    deep = tmp_path.joinpath(*["a-name-of-thirty-characters-abc"] * 6)  # longer than an address may be
    deep.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as keeper:
        directory = os.open(deep, os.O_PATH)
        keeper.bind(f"/proc/self/fd/{directory}/terminal")
        os.close(directory)
        assert join(deep) is None, "it is there, and not served"
        keeper.listen(1)
        terminal = join(deep)
        assert terminal
        with keeper.accept()[0] as viewer:
            viewer.send(b"A")
            assert await terminal.hear() == Heard(Kind.REPLAY)
            terminal.close()
            assert viewer.recv(1) == b""
    assert join(deep) is None, "its keeper has gone"
