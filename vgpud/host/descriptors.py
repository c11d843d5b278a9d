"""How many descriptors the daemon may have, and what of them is for programs' connections."""

from __future__ import annotations

import resource

#: for everything else: connections of the API (two each), engines' requests, sockets of slices, the driver, the store
OTHERS = 6144


def raise_limit() -> None:
    """Takes what the system gives."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def limit() -> int:
    """How many we may have now."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else soft


def for_programs() -> int:
    """How many of them are for programs' connections: half where there are few."""
    return max(limit() // 2, limit() - OTHERS)
