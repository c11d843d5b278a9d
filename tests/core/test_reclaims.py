"""What users read of requests to give memory back: each once, and nothing of another user's slices."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import make_slice
from vgpud.core.observed import ADMINS, Reclaim
from vgpud.core.slices.reclaims import Holder, reclaim_entries

GIB = 1 << 30
OPEN = Reclaim(remaining_bytes=GIB, asked_bytes=2 * GIB, begin_ns=5, deadline_ns=10_000_000_005)
ENDED = replace(
    OPEN, remaining_bytes=0, end_count=1, last_asked_bytes=2 * GIB, last_returned_bytes=GIB, last_took_ns=1_250_000_000
)


def messages(past: Reclaim, now: Reclaim, holders: tuple[Holder, ...] = ()) -> list[tuple[str, str]]:
    entries = reclaim_entries(make_slice("a"), "GPU-0", past, now, holders)
    return [(entry.kind, entry.message) for entry in entries]


def test_a_request_and_its_end_are_noted_once() -> None:
    asked = "slice a is asked to give back 2GiB of device memory within 10 s"
    assert messages(Reclaim(), OPEN) == [("memory.asked", asked)]
    assert messages(OPEN, replace(OPEN, remaining_bytes=5)) == []
    came = "slice a was asked for 2GiB of device memory and gave back 1GiB in 1.25 s"
    assert messages(OPEN, ENDED) == [("memory.returned", came)]
    late = f"{came}: its time is up, and it keeps the rest"
    assert messages(OPEN, replace(ENDED, was_late=True)) == [("memory.kept", late)]


def test_one_that_ended_between_two_looks_is_noted() -> None:
    assert [kind for kind, _ in messages(Reclaim(), ENDED)] == ["memory.returned"]
    again = replace(ENDED, remaining_bytes=1, begin_ns=9, asked_bytes=7)
    assert [kind for kind, _ in messages(OPEN, again)] == ["memory.returned", "memory.asked"]


def test_a_shortage_names_other_users_slices_to_admins_alone() -> None:
    own = make_slice("a")
    now = Reclaim(shortages=1, last_short_bytes=GIB)
    holders = (Holder("a", own.owner_uid, GIB), Holder("mine", own.owner_uid, GIB), Holder("other", 77, 3 * GIB))
    entries = list(reclaim_entries(own, "GPU-0", Reclaim(), now, holders))
    text = "slice a misses 1GiB of its guaranteed memory, which is in use by "
    assert [(entry.owner_uid, entry.message) for entry in entries] == [
        (None, f"{text}mine (1GiB beyond its minimum), other users (3GiB)"),
        (ADMINS, f"{text}other (3GiB beyond its minimum), mine (1GiB beyond its minimum)"),
    ]
    (alone,) = reclaim_entries(own, "GPU-0", Reclaim(), now, holders[:2])
    assert alone.message == f"{text}mine (1GiB beyond its minimum)"
    (unknown,) = reclaim_entries(own, "GPU-0", Reclaim(), now, ())
    assert unknown.message == f"{text}programs beyond the ledgers"
