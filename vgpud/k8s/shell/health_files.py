"""Files by which kubelet's probes see how the driver is: its beat, and whether it is ready for pods."""

from __future__ import annotations

import contextlib
from pathlib import Path

from vgpud.host.beat import write_beat

READY = "ready"


class HealthFiles:
    """folder: the pod's own; None: there are no probes."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        if folder:
            (folder / READY).unlink(missing_ok=True)  # of a container of this pod that has ended

    def write(self, is_ready: bool) -> None:
        """It works now. What was ready once stays so: readiness lets an upgrade continue with the next node."""
        if self._folder is None:
            return
        with contextlib.suppress(OSError):  # a beat that does not come says it
            write_beat(self._folder)
            if is_ready:
                (self._folder / READY).touch()
