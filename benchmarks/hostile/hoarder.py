"""A user whose one process attaches as often as it is let: `hoarder SOCKET...`, of all their slices.

From SIGUSR1 it attaches, keeps every connection, and keeps trying where it is refused; from SIGUSR2 it closes all of
them and keeps running.
"""

from __future__ import annotations

import resource
import signal
import socket
import sys
import time
from types import FrameType

from benchmarks.hostile import users
from benchmarks.hostile.attacker import BEGIN, END
from tests.attach import client as wire

HELD_MAX = 2048
REPORT_S = 0.05
REFUSED_PAUSE_S = 0.001


def main() -> None:
    """Until it is ended."""
    users.become(users.ATTACKER_UID)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    attacking = False

    def switch(number: int, _frame: FrameType | None) -> None:
        nonlocal attacking
        attacking = number == BEGIN

    for number in (BEGIN, END):
        signal.signal(number, switch)
    held: list[socket.socket] = []
    counts = {"accepted": 0, "refused": 0}
    turn, report_s, refused_before = 0, 0.0, 0
    while True:
        if not attacking:
            refused_before = counts["refused"]
            while held:
                held.pop().close()
        if time.monotonic() >= report_s:
            full = len(held) == HELD_MAX or counts["refused"] > refused_before
            users.say(held=len(held), settled=full if attacking else not held, attacking=attacking, **counts)
            report_s = time.monotonic() + REPORT_S
        if not attacking or len(held) == HELD_MAX:
            time.sleep(REFUSED_PAUSE_S * 10)
            continue
        turn += 1
        sock = attach(sys.argv[1 + turn % (len(sys.argv) - 1)])
        counts["accepted" if sock else "refused"] += 1
        if sock:
            held.append(sock)
        else:
            time.sleep(REFUSED_PAUSE_S)


def attach(path: str) -> socket.socket | None:
    """The connection of a new attach, without the descriptors that came with it; None when it was refused."""
    try:
        tenant = wire.attach(path)
    except (OSError, AssertionError):
        return None
    kept = tenant.sock.dup() if tenant.status == wire.OK else None
    tenant.close()
    return kept


if __name__ == "__main__":
    main()
