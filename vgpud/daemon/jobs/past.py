"""What the database forgets of jobs that have ended: what is old, and what is above the size that the site gives it."""

from __future__ import annotations

from collections.abc import Mapping

from vgpud.config import LiveConfig
from vgpud.core.events import Log
from vgpud.core.jobs.model import Job
from vgpud.daemon.jobs.hold import DAY_NS, FAR_NS, HOLD_FILE, Hold
from vgpud.daemon.slices.events import EventRecorder
from vgpud.store.jobs import JobStore

#: how often it is looked for what is old
LOOK_NS = 10 * 1_000_000_000
#: how often it is said that a user's past is forgotten before its time
SAY_NS = 3600 * 1_000_000_000


class Past:
    """All methods raise StoreError. `latest_ns`: the latest time in the store at the start, which was at `now_ns`."""

    def __init__(self, config: LiveConfig, events: EventRecorder, store: JobStore, latest_ns: int, now_ns: int) -> None:
        self._config = config
        self._events = events
        self._store = store
        days = config.current.accounting_days
        self._hold = Hold(config.current.state / HOLD_FILE, latest_ns, now_ns, min(FAR_NS, days * DAY_NS // 2))
        if self._hold.why:
            events.note(Log("node.clock", self._hold.why))
        self._looked_ns = now_ns
        self._said_ns: dict[int, int] = {}  # by user

    def forget(self, now_ns: int, age_from_ns: int, jobs: Mapping[int, Job]) -> None:
        """A part at a time, to be called once a second: a user may write as fast as this forgets. `jobs`: those in
        memory, of which what others wait for stays: after a restart these would be cancelled. `age_from_ns`: see
        Clock.earlier_ns()."""
        if now_ns - self._looked_ns >= LOOK_NS:
            held = self._hold.lasts(now_ns - self._looked_ns)
            self._looked_ns = now_ns
            kept_ns = self._config.current.accounting_days * DAY_NS
            self._store.forget_before((0 if held else age_from_ns) - kept_ns, now_ns)

        def dependencies() -> set[int]:
            return {job_id for job in jobs.values() if not job.state.is_final for job_id in job.spec.after}

        most_bytes = self._config.current.state_bytes_max
        for uid, count in self._store.forget_excess(most_bytes, now_ns, dependencies).items():
            if now_ns - self._said_ns.get(uid, -SAY_NS) < SAY_NS:
                continue
            recent = {one: at_ns for one, at_ns in self._said_ns.items() if now_ns - at_ns < SAY_NS}
            self._said_ns = recent | {uid: now_ns}
            text = f"the database has more than state_bytes_max ({most_bytes} bytes), and uid {uid} most of it: the"
            text += f" oldest {count} ended jobs, or rows of usage, of that user are forgotten before their time"
            self._events.note(Log("store.full", text))
