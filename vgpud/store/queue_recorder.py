"""The recording of the events and decisions of the queue's machine (config key record_queue).

A recording can be replayed by `vgpu whatif`: the same events give the same decisions in the same order.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import IO

from vgpud.core.jobs.events import Command, Event
from vgpud.core.jobs.model import How, Job, Node, QueueSpec
from vgpud.core.model import SiteLimits
from vgpud.core.queue.record import encode, to_plain
from vgpud.host.private_files import opener

log = logging.getLogger("vgpud")


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
        policy: SiteLimits,
        hows: Sequence[How],
        jobs: Sequence[Job],
        past: Mapping[str, object] | None = None,
        *,
        reports_starts: bool = False,
    ) -> None:
        """`jobs`: those of a former process; `past`: what else the machine got of former times, and when."""
        given: dict[str, object] = {"queues": queues, "nodes": nodes, "policy": policy, "hows": hows}
        given |= {"reports_starts": True} if reports_starts else {}
        given |= {"jobs": jobs} if jobs else {}
        self._write({name: encode(value) for name, value in given.items()} | dict(past or {}))

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
