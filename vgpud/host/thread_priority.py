"""The priority of the event loop's thread: a user who keeps all processors busy delays no calls of others by that."""

from __future__ import annotations

import os

#: as arbiters have it where they may not have more (shim/arbiter/thread_priority.c)
NICE = -10


def raise_own() -> bool:
    """Puts the calling thread before programs of users, as far as this process may (CAP_SYS_NICE, or an RLIMIT_NICE).
    Its children and later threads begin as usual: jobs are started by this thread. A policy or a higher priority that
    the site has set stays. Returns whether it does."""
    try:
        policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy | os.SCHED_RESET_ON_FORK, os.sched_getparam(0))
        if policy != os.SCHED_OTHER:
            return policy in (os.SCHED_FIFO, os.SCHED_RR)
        if os.getpriority(os.PRIO_PROCESS, 0) > NICE:
            os.setpriority(os.PRIO_PROCESS, 0, NICE)
    except OSError:
        return False
    return True
