"""Keeps our CDI files up to date for the daemon: at start, when the driver or the site's files change, for each slice.

Part of the composition root. What hinders it is an event, once, and never stops the daemon.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from vgpud.containers.cdi import Cdi, Collected, Facts, collect
from vgpud.core import events as ev
from vgpud.core.model import Slice
from vgpud.errors import VgpudError
from vgpud.oci.request import RequestError

#: what looking at driver and specifications may take before it counts as failed; it continues and may succeed later
COLLECT_S = 10.0


class DeviceFiles:
    """The CDI files of this node; `directory` None: the site wants none."""

    def __init__(self, directory: Path | None, facts: Callable[[], Facts], note: Callable[[ev.Log], None]) -> None:
        self._cdi = Cdi(directory) if directory else None
        self._facts = facts
        self._note = note
        self._fault = ""
        self._collecting: asyncio.Task[Collected] | None = None

    @property
    def directory(self) -> str:
        return str(self._cdi.directory) if self._cdi else ""

    def why_not(self) -> str:
        """Why no CDI device can be made, "" when it can."""
        if self._cdi is None:
            return "this daemon writes no CDI files: set cdi_dir in its configuration, for example /var/run/cdi"
        why = self._cdi.why_not
        return f"no CDI files can be written: {why}" if why else ""

    def why_missing(self, slice_name: str) -> str:
        """Why a slice's CDI device cannot be used yet, "" when its file is there."""
        if self._cdi is None or self._cdi.is_written(slice_name):
            return self.why_not()
        return f"the CDI file of slice {slice_name} could not be written in {self.directory}: see vgpud's events"

    def open(self, slice_: Slice) -> None:
        """Writes the one-time device of a slice, or rewrites it for its present devices. Raises OSError."""
        if self._cdi:
            self._cdi.open(slice_.name, [share.device_uuid for share in slice_.shares])

    def close(self, slice_name: str) -> None:
        """Removes the one-time device of a slice. Raises OSError."""
        if self._cdi:
            self._cdi.close(slice_name)

    def remove(self) -> None:
        """Removes all files: no daemon will answer for their devices. What hinders it is an event."""
        try:
            if self._cdi:
                self._cdi.set(None, "the daemon has ended")
        except OSError as error:
            self._note(ev.Log("cdi.failed", f"the CDI files in {self.directory} could not be removed: {error}"))

    async def refresh(self) -> None:
        """Brings all files up to date."""
        if self._cdi is None:
            return
        collected: Collected | None = None
        why = ""
        try:
            collected = await self._collect()
        except asyncio.TimeoutError:
            why = f"looking at the driver takes longer than {COLLECT_S:.0f} s: see its disk"
        except (VgpudError, RequestError, OSError) as error:
            why = str(error)
        try:
            if self._cdi.set(collected, why) and collected:
                text = "; ".join((f"CDI files in {self.directory} written", *collected.warnings))
                self._note(ev.Log("cdi.written", text))
        except OSError as error:
            why = str(error)
        if why and why != self._fault:
            self._note(ev.Log("cdi.failed", f"no CDI files in {self.directory}: {why}"))
        self._fault = why

    async def _collect(self) -> Collected:
        """One look at a time: a disk that hangs takes one thread, not one more every time."""
        if self._collecting is None:
            self._collecting = asyncio.create_task(asyncio.to_thread(collect, self._facts()))
        try:
            return await asyncio.wait_for(asyncio.shield(self._collecting), COLLECT_S)
        finally:
            if self._collecting.done():
                self._collecting = None
