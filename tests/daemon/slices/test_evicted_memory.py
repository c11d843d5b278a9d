"""How much memory of evicted slices the host may hold."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from vgpud.core.model import AWAY, EVICTED, EVICTING, LEAVING, Denied, Reason
from vgpud.daemon.slices.evicted_memory import EvictedMemory

GIB = 1 << 30


def memory(used_gib: dict[str, int], suspended: dict[str, str], most_gib: int, ram_gib: tuple[int, int]) -> Any:
    """`used_gib`: by slice; the one that is asked for is `a`."""
    share = SimpleNamespace(device_uuid="GPU-0")
    residency = {name: state for name, state in suspended.items() if state in (LEAVING, AWAY)}
    suspended = {name: state for name, state in suspended.items() if name not in residency}
    slices: dict[str, Any] = {
        name: SimpleNamespace(
            name=name,
            serial=number,
            suspended=suspended.get(name, ""),
            shares=[share],
            residency=residency.get(name, ""),
        )
        for number, name in enumerate(used_gib)
    }
    sizes = dict(enumerate(used_gib.values()))
    arbiters: Any = SimpleNamespace(in_ledger=lambda serial, _: sizes[serial] * GIB)
    machine: Any = SimpleNamespace(state=SimpleNamespace(slices=slices))
    all_gib, available_gib = ram_gib
    bound = EvictedMemory(machine, arbiters, lambda: most_gib * GIB, lambda: (all_gib * GIB, available_gib * GIB))
    return bound.refuse(slices["a"])


@pytest.mark.parametrize(
    ("used", "suspended", "bound_gib", "ram", "why"),
    [
        ({"a": 28}, {}, 0, (100, 38), ""),
        ({"a": 28}, {}, 0, (100, 37), "the host has 27GiB for it (a tenth of its RAM stays free)"),
        ({"a": 28}, {}, 0, (100, 5), "the host has 0B for it"),
        ({"a": 0}, {}, 0, (100, 5), ""),
        ({"a": 28, "b": 10}, {"b": EVICTED}, 0, (100, 38), ""),
        ({"a": 28, "b": 10}, {"b": EVICTING}, 0, (100, 38), "the host has 18GiB for it"),
        ({"a": 28, "b": 36}, {"b": EVICTED}, 64, (900, 800), ""),
        (
            {"a": 28, "b": 37},
            {"b": EVICTED},
            64,
            (900, 800),
            "evicted slices have 37GiB of 64GiB",
        ),
        ({"a": 28, "b": 37}, {}, 64, (900, 800), ""),
        ({"a": 28, "b": 10}, {"b": AWAY}, 0, (100, 38), ""),
        ({"a": 28, "b": 10}, {"b": LEAVING}, 0, (100, 38), "the host has 18GiB for it"),
        ({"a": 28, "b": 37}, {"b": AWAY}, 64, (900, 800), "evicted slices have 37GiB of 64GiB"),
    ],
)
def test_what_the_host_may_hold(
    used: dict[str, int], suspended: dict[str, str], bound_gib: int, ram: tuple[int, int], why: str
) -> None:
    found = memory(used, suspended, bound_gib, ram)
    if not why:
        assert found is None
        return
    assert isinstance(found, Denied) and found.reason is Reason.NO_CAPACITY
    assert found.message.startswith("slice a has 28GiB of device memory, and ") and why in found.message
