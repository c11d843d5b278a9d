"""The event loop's thread comes before programs of users; jobs and further threads do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from vgpud.host import thread_priority

#: becomes this user, asks, and prints whether it was given, its own nice value, a child's, a later thread's
PROGRAM = """
import json, os, subprocess, sys, threading
from vgpud.host import thread_priority
os.setgid(int(sys.argv[1]))
os.setuid(int(sys.argv[1]))
found = [thread_priority.raise_own(), os.getpriority(os.PRIO_PROCESS, 0)]
found.append(int(subprocess.run(["nice"], capture_output=True, check=True).stdout))
thread = threading.Thread(target=lambda: found.append(os.getpriority(os.PRIO_PROCESS, 0)))
thread.start()
thread.join()
print(json.dumps([*found, os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK]))
"""


def ask(uid: int, prepare: Callable[[], None] | None = None) -> list[int]:
    """`prepare`: as the unit of the daemon does it."""
    command = [sys.executable, "-c", PROGRAM, str(uid)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, preexec_fn=prepare)
    found: list[int] = json.loads(done.stdout)
    return found


@pytest.mark.root
def test_the_thread_alone_has_it() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert ask(0) == [True, thread_priority.NICE, 0, 0, os.SCHED_OTHER] and os.getpriority(os.PRIO_PROCESS, 0) == before


@pytest.mark.root
def test_one_who_may_not_goes_on_as_before() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    assert ask(65534) == [False, before, before, before, os.SCHED_OTHER]


@pytest.mark.root
def test_what_the_site_has_set_stays_and_is_the_daemons_alone() -> None:
    assert ask(0, lambda: os.setpriority(os.PRIO_PROCESS, 0, -15)) == [True, -15, 0, 0, os.SCHED_OTHER]
    found = ask(0, lambda: os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0)))
    assert found == [False, 0, 0, 0, os.SCHED_BATCH]
