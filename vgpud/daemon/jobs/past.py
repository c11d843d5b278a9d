"""What the database forgets of jobs that have ended: what is old, and what is above the size that the site gives it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from vgpud.core.events import Log
from vgpud.core.jobs.model import Job
from vgpud.core.queue.reasons import duration
from vgpud.daemon.jobs.slices import Host
from vgpud.store.jobs import JobStore

DAY_NS = 24 * 3600 * 1_000_000_000
#: a clock so far after all that is in the store is not believed at once: it may be wrong
FAR_NS = 7 * DAY_NS
#: nothing is forgotten by age for so long after a start with such a clock
HOLD_NS = DAY_NS
HOLD_FILE = "forget-nothing-before"
#: how often it is looked for what is old
LOOK_NS = 10 * 1_000_000_000
#: how often it is said that a user's past is forgotten before its time
SAY_NS = 3600 * 1_000_000_000


class Past:
    """All methods raise StoreError. `latest_ns`: the latest time in the store at the start, which was at `now_ns`."""

    def __init__(self, host: Host, store: JobStore, latest_ns: int, now_ns: int) -> None:
        self._host = host
        self._store = store
        self._hold_until_ns = self._begin_hold(latest_ns, now_ns)
        self._looked_ns = 0
        self._said_ns: dict[int, int] = {}  # by user

    def forget(self, now_ns: int, jobs: Mapping[int, Job]) -> None:
        """A part at a time, to be called once a second: a user may write as fast as this forgets. `jobs`: those in
        memory, of which what others wait for stays: after a restart these would be cancelled."""
        if now_ns - self._looked_ns >= LOOK_NS:
            self._looked_ns = now_ns
            # the queue's clock stays ahead when the machine's was, and has been set right
            age_from_ns = 0 if now_ns < self._hold_until_ns else min(now_ns, time.time_ns())
            self._store.forget_before(age_from_ns - self._host.config.accounting_days * DAY_NS, now_ns)

        def dependencies() -> set[int]:
            return {job_id for job in jobs.values() if not job.state.ended for job_id in job.spec.after}

        most_bytes = self._host.config.state_bytes_max
        for uid, count in self._store.forget_excess(most_bytes, now_ns, dependencies).items():
            if now_ns - self._said_ns.get(uid, -SAY_NS) < SAY_NS:
                continue
            recent = {one: at_ns for one, at_ns in self._said_ns.items() if now_ns - at_ns < SAY_NS}
            self._said_ns = recent | {uid: now_ns}
            text = f"the database has more than state_bytes_max ({most_bytes} bytes), and uid {uid} most of it: the"
            text += f" oldest {count} ended jobs, or rows of usage, of that user are forgotten before their time"
            self._host.note(Log("store.full", text))

    def _begin_hold(self, latest_ns: int, now_ns: int) -> int:
        """When forgetting by age may begin. A start under a wrong clock, and the next ones, lose nothing for a day, in
        which somebody may notice."""
        path = self._host.config.state / HOLD_FILE
        ahead_ns = now_ns - latest_ns
        if not latest_ns or ahead_ns < FAR_NS:
            return min(_read_hold(path, now_ns), now_ns + HOLD_NS)
        until_ns = now_ns + HOLD_NS
        with contextlib.suppress(OSError):  # then it holds for this start
            path.write_text(f"{until_ns}\n")
        text = f"this machine's clock is {duration(ahead_ns)} after the latest entry of the database: nothing is"
        text += (
            f" forgotten by age for {duration(HOLD_NS)}; if the clock is wrong, set it and restart vgpud before that"
        )
        self._host.note(Log("node.clock", text))
        return until_ns


def _read_hold(path: Path, now_ns: int) -> int:
    """What a former start has left; a file that cannot be read holds as well."""
    try:
        return int(path.read_text())
    except FileNotFoundError:
        return 0
    except (OSError, ValueError):
        return now_ns + HOLD_NS
