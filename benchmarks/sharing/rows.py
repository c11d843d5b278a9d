"""The rows of the table: what each runs and asks, with which kernels, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.sharing.figures import SharingFigure
from benchmarks.sharing.plan import Plan
from benchmarks.sharing.rows_adversaries import w10
from benchmarks.sharing.rows_bursts import w2, w2b, w4
from benchmarks.sharing.rows_coast import c1
from benchmarks.sharing.rows_gang import g1
from benchmarks.sharing.rows_got import w11
from benchmarks.sharing.rows_live import w7
from benchmarks.sharing.rows_long import w3
from benchmarks.sharing.rows_lookahead import l1
from benchmarks.sharing.rows_return import w6
from benchmarks.sharing.rows_scale import w9
from benchmarks.sharing.rows_shares import w1, w5
from benchmarks.sharing.rows_solo import w8
from benchmarks.sharing.rows_trainers import w2c


@dataclass(frozen=True)
class Row:
    """simulated_only: it needs the simulated device's log of single spans, its number, or its model of a trainer."""

    figures: Callable[[Plan], Iterator[SharingFigure]]
    what: str
    kernels: str
    simulated_only: bool = False


ROWS: dict[str, Row] = {
    "W1": Row(
        w1,
        "saturating tenants: worst one-second window, sum against one tenant alone, fairness of equal parts",
        "0.02, 0.2, 2 and 40 ms as the case says, 0.2 ms where it says nothing",
    ),
    "W2": Row(
        w2, "launch-bound tenants in equal parts against the same without a hook", "50 x 0.02 ms, then 1 ms idle"
    ),
    "W2b": Row(
        w2b,
        "a launch-bound tenant beside a saturating one: each against the smaller of its demand and its part",
        "50 x 0.02 ms, then 1 ms idle; saturating 0.2 ms",
    ),
    "W2c": Row(
        w2c,
        "two CIFAR trainers against the same without a hook",
        "the trainers' own, as benchmarks/cifar/kernels.model times them",
        simulated_only=True,
    ),
    "W3": Row(
        w3,
        "tenants that hold the device for long: worst five-second window",
        "40 ms; 1 s; 1000 x 0.2 ms queued on each of 8 streams; graphs of 250 x 0.2 ms; beside each 0.2 ms",
    ),
    "W4": Row(
        w4,
        "inference of the latency class beside saturating training: its p99 against alone, what training keeps",
        "20 x 0.2 ms every 8 ms; training 0.2 ms and 2 ms",
    ),
    "W5": Row(
        w5,
        "a capped tenant alone: worst one-second window; what one below its cap loses",
        "0.2 ms and 40 ms as the case says; below the cap 15 x 0.2 ms every 10 ms",
    ),
    "W6": Row(w6, "a neighbour that goes for half a second and comes back", "0.2 ms, both"),
    "W7": Row(w7, ".2 and .8 swapped every second through the API", "0.2 ms, both"),
    "W8": Row(
        w8,
        "a solo tenant against the same without a hook, in pairs; ns of a launch over the direct call",
        "0.2 ms; 0.02 ms; 50 x 0.02 ms, then 1 ms idle; launches of nothing over a stub driver",
    ),
    "W9": Row(
        w9, "four tenants at work of 64 with 1000 processes: hand-over, the daemon", "0.2 ms", simulated_only=True
    ),
    "W10": Row(
        w10,
        "what an honest tenant with .75 misses of its guarantee beside an adversary",
        "0.2 ms, both; the adversary 1 s where the case says so",
    ),
    "W11": Row(
        w11,
        "the device time that a slice is said to have used against the device's log; what a capped slice computes",
        "0.01, 0.02, 0.1 and 1 ms as the case says; beside it 0.2 ms",
        simulated_only=True,
    ),
    "G1": Row(
        g1,
        "two data-parallel tenants whose kernels wait for each other over two shared devices, against one alone",
        "8 x 0.2 ms, then one that meets its peer on the other device for 0.1 ms",
        simulated_only=True,
    ),
    "C1": Row(
        c1,
        "two saturating tenants, .25/.75, whose daemon is killed and comes back",
        "0.2 ms, both",
        simulated_only=True,
    ),
    "L1": Row(l1, "two saturating tenants, .5/.5, without and with the overlapped hand-over", "0.2 ms, both"),
}
