"""The queue's clock, and the recording of its machine's events and decisions (config key record_queue).

A recording can be replayed by `vgpu simulate`: the same events give the same decisions in the same order.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from typing import IO

from vgpud.core.jobs.events import Command, Event
from vgpud.core.jobs.model import How, Job, Node, QueueSpec
from vgpud.core.model import Policy
from vgpud.core.queue.record import encode, to_plain
from vgpud.host.private_files import opener

log = logging.getLogger("vgpud")


class Clock:
    """Wall time that never goes back: it begins after all times in the store and ignores later clock changes."""

    def __init__(self, latest_ns: int) -> None:
        self._offset_ns = max(time.time_ns(), latest_ns + 1) - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def now_ns(self) -> int:
        return self._offset_ns + time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Recorder:
    """Lines of JSON: what the machine was made of, then each event with its time, and the commands that a step gave."""

    def __init__(self, path: str) -> None:
        self._file: IO[str] | None = None
        if not path:
            return
        try:
            self._file = open(path, "w", encoding="utf-8", opener=opener)  # noqa: SIM115  closed by close()
        except OSError as error:
            log.error("cannot record the queue in %s: %s", path, error.strerror)

    def begin(
        self,
        queues: Sequence[QueueSpec],
        nodes: Sequence[Node],
        policy: Policy,
        hows: Sequence[How],
        jobs: Sequence[Job],
        *,
        restored_ns: int = 0,
        histories: Mapping[str, int] | None = None,
        history_at_ns: int = 0,
    ) -> None:
        """`jobs`: those of a former daemon; a recording with such cannot be replayed from its first line alone, unless
        it says when they were restored, and what each queue had used until then."""
        given = {"queues": queues, "nodes": nodes, "policy": policy, "hows": hows}
        given |= {"jobs": jobs} if jobs else {}
        plain = {name: encode(value) for name, value in given.items()}
        if restored_ns:
            plain |= {"restored_ns": restored_ns, "histories": dict(histories or {}), "history_at_ns": history_at_ns}
        self._write(plain)

    def add(self, at_ns: int, events: Sequence[Event], commands: Sequence[Command]) -> None:
        """The events of one step; its commands are on the line of the last event."""
        if self._file is None:
            return
        for number, event in enumerate(events, 1):
            line = {"at_ns": at_ns, "event": to_plain(event)}
            came = {"commands": [to_plain(command) for command in commands]} if number == len(events) else {}
            self._write(line | came)

    def _write(self, line: object) -> None:
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()
        except OSError as error:
            log.error("the recording of the queue ends here: %s", error.strerror)
            self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file:
            with contextlib.suppress(OSError):  # what could not be written is tried once more
                file.close()
