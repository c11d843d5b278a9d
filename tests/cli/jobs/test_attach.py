"""The pure parts of `vgpu job attach`: the keys that leave a terminal, and what is done to the user's own."""

from __future__ import annotations

import random
from typing import Any

import pytest

from vgpud.cli.jobs.detach_keys import DEFAULT, Finder, parse, words
from vgpud.cli.jobs.screen import Modes, shown_again


@pytest.mark.parametrize(
    ("text", "keys", "description"),
    [
        (DEFAULT, b"\x1cd", "Ctrl-\\ d"),
        ("ctrl-p,ctrl-q", b"\x10\x11", "Ctrl-P Ctrl-Q"),
        ("Ctrl-A,D", b"\x01D", "Ctrl-A D"),
        ("ctrl-@", b"\x00", "Ctrl-@"),
        ("ctrl-],ctrl-^,ctrl-_,ctrl-[", b"\x1d\x1e\x1f\x1b", "Ctrl-] Ctrl-^ Ctrl-_ Ctrl-["),
        ("ctrl-x,.", b"\x18.", "Ctrl-X ."),
    ],
)
def test_keys_are_read(text: str, keys: bytes, description: str) -> None:
    assert parse(text) == keys
    assert words(keys) == description


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a key"),
        ("ctrl-", "is not a key"),
        ("ctrl-1", "is not a key"),
        ("ctrl-a,,d", "is not a key"),
        ("ctrl-a,dd", "is not a key"),
        ("ctrl-ä", "is not a key"),
        ("d", "begins with a letter"),
        (",".join(["ctrl-a"] * 9), "has 9 keys"),
    ],
)
def test_keys_that_are_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse(text)


def test_the_option(vgpu: Any, daemon: Any) -> None:
    done = vgpu("job", "attach", "1", "--detach-keys", "d", host=daemon.host)
    assert done.code == 125
    assert "begins with a letter" in done.stderr


@pytest.mark.parametrize(
    ("keys", "typed_bytes", "passed_bytes", "leaves"),
    [
        (b"\x1cd", b"ls\n", b"ls\n", False),
        (b"\x1cd", b"ls\x1cdrest", b"ls", True),
        (b"\x1cd", b"\x1cq", b"\x1cq", False),  # Ctrl-\ and another key: both are the job's
        (b"\x1cd", b"\x1c\x1c", b"\x1c", False),  # twice: once
        (b"\x1cd", b"\x1c\x1cd", b"\x1c", True),
        (b"\x01\x01\x02", b"\x01\x01\x01\x02", b"\x01", True),  # begins again within itself
        (b"\x01\x01\x02", b"\x01\x01\x03", b"\x01\x01\x03", False),
    ],
)
def test_keys_are_found_however_they_arrive(keys: bytes, typed_bytes: bytes, passed_bytes: bytes, leaves: bool) -> None:
    for seed in range(20):
        dice, finder, left = random.Random(seed), Finder(keys), typed_bytes
        found, done = b"", False
        while left and not done:
            count = dice.randint(1, len(left))
            part, done = finder.feed(left[:count])
            found, left = found + part, left[count:]
        assert (found, done) == (passed_bytes, leaves)


def test_modes_are_undone() -> None:
    modes = Modes()
    modes.see(b"plain \x1b[1mbold\x1b[0m")
    assert modes.undo() == b"\x1b[0m", "a terminal that was not changed stays as it is"
    modes.see(b"\x1b[?1049h\x1b[?1000;1006h\x1b[?25l\x1b[?2004h")
    undone = modes.undo()
    for sequence in (b"\x1b[?1049l", b"\x1b[?1000l", b"\x1b[?1006l", b"\x1b[?2004l", b"\x1b[?25h"):
        assert sequence in undone
    modes.see(b"\x1b[?1049l\x1b[?1006;1000l\x1b[?25h\x1b[?2004l")
    assert modes.undo() == b"\x1b[0m", "the program has done it by itself"


@pytest.mark.parametrize(
    ("set_sequence", "reset_sequence", "undone"),
    [
        (b"\x1b[>4;2m", b"\x1b[>4;0m", b"\x1b[>4m"),  # keys with modifiers, xterm's
        (b"\x1b[>1u", b"\x1b[<u", b"\x1b[<1u"),  # kitty's, a stack
        (b"\x1b[>1u\x1b[>3u", b"\x1b[<2u", b"\x1b[<2u"),
        (b"\x1b[=5;1u", b"\x1b[=0u", b"\x1b[=0u"),
        (b"\x1b=", b"\x1b>", b"\x1b>"),  # the keypad
        (b"\x1b[3;20r", b"\x1b[r", b"\x1b7\x1b[r\x1b8"),  # lines that scroll; the cursor stays
        (b"\x1b(0", b"\x1b(B", b"\x1b(B"),  # line drawing
        (b"\x0e", b"\x0f", b"\x0f"),
    ],
)
def test_what_else_is_undone(set_sequence: bytes, reset_sequence: bytes, undone: bytes) -> None:
    modes = Modes()
    modes.see(b"a" + set_sequence + b"b")
    assert modes.undo() == undone + b"\x1b[0m"
    modes.see(b"c" + reset_sequence + b"d")
    assert modes.undo() == b"\x1b[0m", "the program has done it by itself"
    for at in range(len(set_sequence)):
        modes = Modes()
        modes.see(set_sequence[:at])
        modes.see(set_sequence[at:])
        assert modes.undo() == undone + b"\x1b[0m"


def test_each_screen_has_its_own_stack_of_keys() -> None:
    modes = Modes()
    modes.see(b"\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[>7u")
    assert modes.undo() == b"\x1b[<2u\x1b[?1049l\x1b[<1u\x1b[0m"


def test_modes_across_pieces_of_output() -> None:
    output = b"x" * 100 + b"\x1b[?1049h\x1b[?25l" + b"y" * 100 + b"\x1b[?1049l" + b"z" * 100
    for size in (1, 2, 3, 7, 50, 1000):
        modes = Modes()
        for at in range(0, len(output), size):
            modes.see(output[at : at + size])
        assert modes.undo() == b"\x1b[?25h\x1b[0m"


def test_output_is_shown_again_without_questions() -> None:
    asked = (
        b"a\x1b[6nb\x1b[cc\x1b[>0cd\x1b[?6ne\x1bZf\x1b]11;?\x07g\x1b]4;1;?\x1b\\h\x1bP+q544e\x1b\\i\x1b[>0qj\x1b[18tk"
    )
    assert shown_again(asked, b"") == b"abcdefghijk"
    kept = b"\x1b[31mred\x1b[0m\x1b[2J\x1b[?1049h\x1b]0;title\x07\x1b[10;20H"
    assert shown_again(kept, b"") == kept


def test_what_has_been_shown_is_not_shown_again() -> None:
    assert shown_again(b"one\ntwo\nthree\n", b"two\n") == b"three\n"
    assert shown_again(b"one\ntwo\n", b"two\n") == b""
    assert shown_again(b"three\nfour\n", b"two\n") == b"three\nfour\n", "more has come than is kept"


def test_no_output_takes_long_to_look_through() -> None:
    """Whatever a job prints: patterns are bounded."""
    for piece in (b"\x1b[?", b"\x1bP+q", b"\x1b]1;", b"\x1b[?1;", b"\x1b[?" + b"1;" * 40, b"\x1bP$q" + b"x" * 300):
        output = piece * (65536 // len(piece))
        modes = Modes()
        for at in range(0, len(output), 4096):
            modes.see(output[at : at + 4096])
        assert len(shown_again(output, b"no such")) <= len(output)
