"""The cases: what is attacked, beside which victims, and how."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from benchmarks.hostile import users
from benchmarks.hostile.frame import Attack, Case
from benchmarks.hostile.listeners import flood
from benchmarks.hostile.page import page_attack
from benchmarks.hostile.service import hoard, read
from benchmarks.sharing.bench import Tenant
from vgpud.cli.demo.private_system import OwnSystem

Start = Callable[[OwnSystem], AbstractContextManager[Attack]]

#: both saturate: what the attacker takes is theirs
LARGE, SMALL = Tenant("large", 0.73, 0.73), Tenant("small", 0.25, 0.25)
#: leaves capacity for the small slices of others
LARGER = Tenant("large", 0.7, 0.7)
PAGE_SLICE = ("--gpus", "0.01", "--max", "0.01", "--mem", "8G")
#: one that wants more than its maximum beside one that pauses: only reports say whose time it was
CAPPED = (Tenant("capped", 0.25, 0.25),)
CAPPED_PAUSING = (Tenant("capped", 0.25, 0.25, burst=8, gap_us=500),)
LIAR_SLICE = ("--gpus", "0.5", "--max", "1", "--mem", "8G")


def page(mode: str, amounts: Sequence[str], period_us: int, processes: int = 1) -> Start:
    """An attacker that writes into its own report page every period_us."""
    return functools.partial(page_attack, mode=mode, period_us=period_us, processes=processes, amounts=amounts)


CASES: dict[str, Case] = {
    case.name: case
    for case in (
        Case(
            "page",
            "a slice of .01 says every 50 us that it waits and that nothing is outstanding, and rings",
            (LARGE, SMALL),
            page("claim", PAGE_SLICE, 50),
        ),
        Case(
            "page-alternating",
            "the same, but every other time it says that it does not wait",
            (LARGE, SMALL),
            page("alternate", PAGE_SLICE, 50),
        ),
        Case(
            "page-processes",
            "as page, from eight processes of the slice",
            (LARGE, SMALL),
            page("claim", PAGE_SLICE, 50, processes=8),
        ),
        Case(
            "page-working",
            "as page, while the slice also runs kernels as fast as it may; honest: it only runs them",
            (LARGE, SMALL),
            page("working", PAGE_SLICE, 50),
        ),
        Case(
            "lying-page",
            "a slice of .5 that pauses says that its work took all time there is, beside one that saturates",
            CAPPED,
            page("done", LIAR_SLICE, 20),
        ),
        Case(
            "lying-page-pausing",
            "the same beside a neighbour that pauses as well",
            CAPPED_PAUSING,
            page("done", LIAR_SLICE, 20),
        ),
        Case(
            "lying-page-counters",
            "as lying-page, with impossible values of all counters",
            CAPPED,
            page("counters", LIAR_SLICE, 20),
        ),
        Case(
            "attaches",
            "one process of a user with four slices of .005 attaches up to 2,048 times",
            (LARGER, SMALL),
            hoard,
            users.why_not,
        ),
        Case(
            "reads",
            "a user has 16 watches every millisecond and 100 ListJobs in flight",
            (LARGE, SMALL),
            read,
            users.why_not,
        ),
        Case(
            "listeners",
            "a user makes 2,000 connections to all listeners, silent, half, slow, huge and looping ones",
            (LARGER, SMALL),
            flood,
            users.why_not,
            calls_percent=100.0,
        ),
    )
}
