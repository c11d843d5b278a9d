"""How many descriptors the daemon may have, and what of them is for programs' connections."""

from __future__ import annotations

import resource

#: for everything else: connections of the API (two each), engines' requests, sockets of slices, the driver, the store
OTHERS = 6144


def raise_limit() -> None:
    """Takes what the system gives."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def for_programs() -> int:
    """How many of the descriptors that we may have now are for programs' connections: half where there are few."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(soft // 2, soft - OTHERS)
