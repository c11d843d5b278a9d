"""Loop time divided among users, on a clock that the test turns; and calls found in the bytes of a connection."""

from __future__ import annotations

import random

import pytest

from vgpud.core.fairness.accounts import ADMINS, Accounts, Shares
from vgpud.core.fairness.frames import HEADERS, PREFACE_BYTES, Frames

MS, S = 1_000_000, 1_000_000_000
SHARES = Shares()
ALICE, BOB = 1000, 1001


def spent_ms(accounts: Accounts, uid: int, seconds: int, others: tuple[int, ...] = (), piece_ns: int = MS) -> int:
    """What a user gets who asks all the time, while others use the API 20 times a second."""
    spent = 0
    for now_ns in range(0, seconds * S, MS):
        if now_ns % (50 * MS) == 0:
            for other in others:
                accounts.record_use(other, now_ns)
        if not accounts.wait_ns(uid, now_ns):
            accounts.record_use(uid, now_ns)
            accounts.charge(uid, piece_ns, now_ns)
            spent += piece_ns
    return spent // MS


@pytest.mark.parametrize(
    ("others", "milli"), [((), SHARES.alone_milli), ((ADMINS,), SHARES.user_milli), ((BOB,), SHARES.user_milli)]
)
def test_a_user_gets_their_part_and_what_they_saved(others: tuple[int, ...], milli: int) -> None:
    got = spent_ms(Accounts(), ALICE, 10, others)
    most = 10 * milli + SHARES.saved_ns // MS
    assert most - 5 <= got <= most + 5


def test_pieces_that_are_too_long_are_paid_back() -> None:
    got = spent_ms(Accounts(), ALICE, 20, (ADMINS,), piece_ns=100 * MS)
    assert got <= 20 * SHARES.user_milli + SHARES.saved_ns // MS + 100


def test_a_debt_is_bounded() -> None:
    accounts = Accounts()
    accounts.record_use(ADMINS, 0)
    accounts.record_use(ALICE, 0)
    accounts.charge(ALICE, 3600 * S, 0)
    assert accounts.wait_ns(ALICE, 0) == SHARES.overdrawn_ns * 1000 // SHARES.user_milli


def test_many_users_share_what_all_may_have() -> None:
    accounts, spent = Accounts(), 0
    for now_ns in range(0, 10 * S, MS):
        for uid in range(20):
            accounts.record_use(uid, now_ns)
            if not accounts.wait_ns(uid, now_ns):
                accounts.charge(uid, MS, now_ns)
                spent += 1
    assert spent <= 10 * SHARES.users_milli + SHARES.saved_ns // MS + 5


def test_one_users_debt_is_not_anothers() -> None:
    accounts = Accounts()
    for uid in (ALICE, BOB):
        accounts.record_use(uid, 0)
    accounts.charge(ALICE, S, 0)
    assert accounts.wait_ns(ALICE, 0) >= 4 * S
    assert accounts.wait_ns(BOB, 0) <= S // 10
    accounts = Accounts(Shares(users_max=2))
    for uid in range(100):
        accounts.charge(uid, 1, 0)
    assert len(accounts._users) == 2, "a host may have many users"


def frame(kind: int, body: bytes = b"") -> bytes:
    return len(body).to_bytes(3, "big") + bytes([kind, 0, 0, 0, 0, 1]) + body


def test_each_call_is_a_piece() -> None:
    call, data, settings = frame(HEADERS, b"h" * 30), frame(0, b"d" * 100), frame(4)
    stream = b"P" * PREFACE_BYTES + settings + call + data + frame(8, b"1234") + call + call + data
    frames, sizes, calls, others = Frames(), [], [], 0
    rest = stream
    while rest:
        piece = frames.piece(rest, 4096)
        sizes.append(piece.size_bytes)
        calls.append(piece.calls)
        others += piece.others
        rest = rest[piece.size_bytes :]
    assert calls == [1, 1, 1]
    assert others == 4
    assert sum(sizes) == len(stream)


@pytest.mark.parametrize("seed", range(20))
def test_calls_are_found_however_the_bytes_come(seed: int) -> None:
    draw = random.Random(seed)
    frame_types = [draw.choice((HEADERS, 0, 3, 4, 6)) for _ in range(200)]
    stream = b"P" * PREFACE_BYTES + b"".join(frame(kind, b"\x01" * draw.randrange(40)) for kind in frame_types)
    frames, held, at, calls, others, passed = Frames(), bytearray(), 0, 0, 0, b""
    while at < len(stream) or held:
        step = draw.randrange(1, 60)
        held += stream[at : at + step]
        at += step
        piece = frames.piece(held, draw.randrange(1, 50))
        assert piece.calls <= 1
        assert piece.size_bytes or not held or at < len(stream), "nothing waits for ever"
        passed += bytes(held[: piece.size_bytes])
        del held[: piece.size_bytes]
        calls, others = calls + piece.calls, others + piece.others
    assert passed == stream
    assert (calls, others) == (frame_types.count(HEADERS), len(frame_types) - frame_types.count(HEADERS))


def test_a_frame_is_passed_on_in_parts() -> None:
    """A client that waits for an answer sends no more: nothing may be held back for bytes that do not come."""
    frames = Frames()
    assert frames.piece(b"P" * PREFACE_BYTES + frame(HEADERS, b"hhhh")[:12], 4096).size_bytes == PREFACE_BYTES + 12
