"""Moves the memory of a program to the host and back: the driver does it (checkpoint_runner.py), or the program itself.

The second way is for drivers without a checkpoint: the hook in the program maps large allocations, and takes them off
the device when it is asked (shim/moves/). It is asked through the arbiter, and answers in its report page.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

import vgpud._shim as _shim
from vgpud.core.model import BY_HOOK, Process, Slice
from vgpud.core.units import format_bytes
from vgpud.devices import checkpoint_runner
from vgpud.devices.arbiters import Arbiters
from vgpud.devices.checkpoint_runner import AWAY, RUNS, UNKNOWN, Moved
from vgpud.devices.nvml import Devices
from vgpud.host import cgroup_tree

lib = _shim.lib

_WHERE = {"evict": lib.VG_MOVE_OUT, "restore": lib.VG_MOVE_IN, "settle": lib.VG_MOVE_STAY}
_NO_LIMIT = 1 << 62
_STATES = {lib.VG_MOVED_HERE: RUNS, lib.VG_MOVED_AWAY: AWAY}
#: how often the page is looked at, and how long a program may take until it has said where its memory is: one that came
#: back from another daemon, and one that is asked to move it
POLL_S, KNOWN_S, SAID_S = 0.005, 1.0, 5.0
STAYS = {
    lib.VG_STAYS_CALLS: "a thread of it is in the driver, or not all of its work is known to have completed",
    lib.VG_STAYS_MANAGED: "it has managed memory",
    lib.VG_STAYS_POOL: "it has memory of pools (cuMemAllocAsync)",
    lib.VG_STAYS_ARRAY: "it has arrays",
    lib.VG_STAYS_HANDLE: "it has memory of cuMemCreate, its own or another process's",
    lib.VG_STAYS_SHARED: "it has given memory to others (IPC, handles, RDMA)",
    lib.VG_STAYS_HOST: "the host has no memory that can be pinned",
    lib.VG_STAYS_DEVICE: "the device has no memory for it: programs of others keep what does not leave the device",
    lib.VG_STAYS_COPY: "a copy failed",
    lib.VG_STAYS_DRIVER: "the driver refused to map or to unmap it",
}


def read_cache_bytes(folder: Path) -> int:
    """Of a cgroup: pages of files, which the kernel takes back before it ends a process."""
    lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return sum(int(words[1]) for words in lines if words[0] in ("active_file", "inactive_file"))


def read_left_bytes(pid: int) -> int:
    """RAM that a process's cgroups (version 2) leave it: what it has pinned is theirs, and beyond it would be killed.
    Very much where none has a limit, or none is known."""
    mount = cgroup_tree.mount_point()
    path = cgroup_tree.unified_path(pid)
    folder = mount / path.strip("/") if mount and path else None
    left_bytes = _NO_LIMIT
    while folder and folder != mount and mount in folder.parents:
        with contextlib.suppress(OSError, ValueError):  # "max", or a cgroup without the controller
            most = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text()) - read_cache_bytes(folder)
            left_bytes = min(left_bytes, most - used)
        folder = folder.parent
    return max(0, left_bytes)


class MemoryMover:
    """`is_attached`: whether a process is, still."""

    def __init__(
        self,
        devices: Devices,
        arbiters: Arbiters,
        is_attached: Callable[[Process], bool],
        helpers: checkpoint_runner.Helpers,
        read_left_bytes: Callable[[int], int] = read_left_bytes,
    ) -> None:
        self._devices, self._arbiters, self._is_attached, self._helpers = devices, arbiters, is_attached, helpers
        self._read_left_bytes = read_left_bytes

    @property
    def way(self) -> str:
        """BY_CHECKPOINT or BY_HOOK."""
        return self._devices.memory_moves.way

    @property
    def moves_itself(self) -> bool:
        """Whether programs of slices that rotate or sleep move their memory."""
        return self.way == BY_HOOK

    def is_out(self, slice_: Slice) -> bool:
        """Whether its program says that it has moved its memory to the host, perhaps for a daemon with another
        memory_moves."""
        return len(slice_.shares) == 1 and self._state(slice_) == lib.VG_MOVED_AWAY

    def keep_ready(self, uuid: str) -> None:
        """Memory of slices on this device may have to move at any time."""
        if not self.moves_itself:
            self._helpers.keep(uuid)

    def release(self, uuid: str) -> None:
        """Memory of its slices is not moved any more."""
        self._helpers.release(uuid)

    async def move(self, action: str, slice_: Slice, program: Process, deadline_s: float) -> Moved:
        """`evict`, `restore` or `settle` the program of a slice. One that neither rotates nor sleeps answers nothing,
        unless it is out. Raises OSError."""
        has_checkpoint = self._devices.memory_moves.has_checkpoint
        is_asked = self.moves_itself and slice_.rotates
        if is_asked or (action != "evict" and await self._is_out(slice_, program)):
            moved = await self._ask(action, slice_, program, deadline_s)
            if moved.state != RUNS or action == "evict" or not (program.is_resumed and has_checkpoint):
                return moved  # else a daemon with another memory_moves may have had the driver evict it
        elif self.moves_itself and not has_checkpoint:
            return Moved(RUNS)
        return await self._move_by_driver(action, program, deadline_s)

    async def _move_by_driver(self, action: str, program: Process, deadline_s: float) -> Moved:
        driver, sim_dir = self._devices.driver, self._devices.sim_dir
        return await checkpoint_runner.move(action, program.pid, driver, sim_dir, deadline_s, self._helpers)

    def ask_back(self, slice_: Slice) -> None:
        """Asks its program to have its memory on the device, and does not wait until it has: see is_out()."""
        self._arbiters.ask_move(slice_.serial, slice_.shares[0].device_uuid, lib.VG_MOVE_IN)

    async def unlock(self, program: Process, deadline_s: float) -> None:
        """Brings back what the driver may have taken off the device for a daemon before this one. Raises OSError."""
        if self._devices.memory_moves.has_checkpoint:
            await self._move_by_driver("restore", program, deadline_s)

    async def move_suspended(self, action: str, slice_: Slice, program: Process, deadline_s: float) -> Moved:
        """The same for one that users or the queue evict or resume. What is away already is not evicted."""
        if action == "evict" and self.moves_itself:
            return Moved(RUNS, "only the driver's checkpoint evicts a program, and memory_moves does not use it here")
        return await self.move(action, slice_, program, deadline_s)

    async def _is_out(self, slice_: Slice, program: Process) -> bool:
        """Whether it has moved its memory itself, for another daemon: it tells this one in a moment."""
        if len(slice_.shares) != 1 or not program.is_resumed:
            return False  # the driver has moved it: what its page says does not matter
        loop = asyncio.get_running_loop()
        until_s = loop.time() + KNOWN_S
        while (state := self._state(slice_)) == lib.VG_MOVED_UNKNOWN and loop.time() < until_s:
            await asyncio.sleep(POLL_S)
        return bool(state == lib.VG_MOVED_AWAY)

    def _state(self, slice_: Slice) -> int:
        now = self._arbiters.slice_stats(slice_.serial, slice_.shares[0].device_uuid)
        return now.moved_state

    async def _ask(self, action: str, slice_: Slice, program: Process, deadline_s: float) -> Moved:
        serial, uuid = slice_.serial, slice_.shares[0].device_uuid
        if action == "evict":
            size = self._arbiters.slice_stats(serial, uuid).movable_bytes
            left_bytes = self._read_left_bytes(program.pid)
            if size > left_bytes:
                text = f"its cgroup may have {format_bytes(left_bytes)} of RAM more, for {format_bytes(size)}"
                return Moved(RUNS, f"its program cannot move it: {text}")
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        word = self._arbiters.ask_move(serial, uuid, _WHERE[action])
        while (now := self._arbiters.slice_stats(serial, uuid)).moved_word != word:
            if not self._is_attached(program):
                return Moved(RUNS)  # its memory has ended with it
            passed_s = loop.time() - begin_s
            if now.moved_state == lib.VG_MOVED_UNKNOWN and passed_s >= min(SAID_S, deadline_s):
                self._undo(action, serial, uuid)
                return Moved(RUNS, "the library in its program is older than vgpud and cannot move it: start it again")
            if passed_s >= deadline_s:
                self._undo(action, serial, uuid)
                return Moved(UNKNOWN, f"its program has not answered for {deadline_s:g} s")
            await asyncio.sleep(POLL_S)
        why = STAYS.get(now.stays_reason, "")
        return Moved(_STATES.get(now.moved_state, UNKNOWN), f"its program cannot move it: {why}" if why else "")

    def _undo(self, action: str, serial: int, uuid: str) -> None:
        """It may carry out later what it has not answered: a stopped program."""
        undo = {"evict": lib.VG_MOVE_IN, "restore": lib.VG_MOVE_OUT}.get(action, lib.VG_MOVE_STAY)
        self._arbiters.ask_move(serial, uuid, undo)
