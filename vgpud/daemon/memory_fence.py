"""The driver's memory limits behind the ledger: each cgroup that is a slice's alone has the slice's maximum.

What they should be follows from the state (core/devices/fence.py), so nothing is remembered over a restart: they are
set again, which changes nothing. The driver and cgroups are asked in a thread: either may hang.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vgpud.core import events as ev
from vgpud.core.devices.fence import Fences, fences
from vgpud.core.model import Process
from vgpud.daemon.jobs.cgroups import JobCgroups, Leaf
from vgpud.daemon.slices.changes import ChangeSignal
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices import memory_limits
from vgpud.devices.memory_limits import LimitError
from vgpud.devices.nvml import Devices
from vgpud.errors import VgpudError
from vgpud.host import cgroup_tree, processes
from vgpud.host.cgroup_tree import OWN_PREFIX, CgroupError

log = logging.getLogger("vgpud")

#: the setting: set them where the driver has them, or not at all
AUTO, OFF = "auto", "off"
#: how often what has changed without a signal is looked at: jobs that have begun, programs that have left a cgroup
LOOK_S = 1.0
#: how often a driver is asked again that has refused
RETRY_S = 60.0
#: for which the start of a container waits at most
START_S = 0.5
#: what holds the slice of `vgpu run` (client/held_slice.py)
RUN_PROGRAM = "vgpu run"


@dataclass(slots=True)
class _Outcome:
    """What a thread has done. Fences are (cgroup, device's UUID)."""

    set_fences: Fences = field(default_factory=dict)
    cleared_fences: set[tuple[str, str]] = field(default_factory=set)
    problems: dict[str, str] = field(default_factory=dict)  # by slice's name or cgroup


class MemoryFence:
    """`is_on`: whether limits are set. `why`: why they are not, or which slice has none; "" when all is well."""

    def __init__(
        self, setting: str, machine: SliceMachine, devices: Devices, events: EventRecorder, changes: ChangeSignal
    ) -> None:
        self.is_on = False
        self.why = 'memory_fence is "off"' if setting == OFF else "not tried yet"
        self._setting = setting
        self._machine = machine
        self._devices = devices
        self._events = events
        self._changes = changes
        self._jobs = JobCgroups(list, lambda key: "")
        self._mount = Path()
        self._set: Fences = {}
        self._run_cgroups: dict[str, str] = {}  # of `vgpu run`, by the slice's uid; "": it could have none
        self._old_folders: list[Path] = []  # of slices that have ended, while processes are left
        self._problems: dict[str, str] = {}
        self._busy = asyncio.Lock()
        self._worker = ThreadPoolExecutor(1, "fence")
        self._task: asyncio.Task[None] | None = None

    # ---- life ----

    def begin(self, jobs: JobCgroups) -> None:
        """Probes, then follows the state."""
        self._jobs = jobs
        self._task = asyncio.get_running_loop().create_task(self._follow())

    async def stop(self) -> None:
        """The limits stay, as the slices do."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._worker.shutdown(wait=False, cancel_futures=True)

    async def _follow(self) -> None:
        if self._setting == OFF:
            if not await self._try_probe():
                try:
                    await self._clear_all()
                except Exception:
                    log.exception("the driver's memory limits of a daemon of before could not be cleared")
            return
        while why := await self._try_probe():
            if why != self.why:
                log.info("memory fence: off: %s", why)
            self.why = why
            await asyncio.sleep(RETRY_S)
        self.why, self.is_on = "", True
        log.info("memory fence: on: the driver's limits follow the slices'")
        await self._adopt_old()
        while True:
            try:
                await self._settle()
            except Exception:  # what is wrong now may be right in a second
                log.exception("the memory fence could not be set; continuing")
            await self._changes.wait(LOOK_S)

    async def _clear_all(self) -> None:
        """What a daemon of before may have set. The cgroups go when their programs have ended."""
        await self._adopt_old()
        left = set(await self._find_fences())
        self._old_folders += [self._folder(cgroup) for cgroup in self._run_cgroups.values()]
        while left or self._old_folders:
            left -= await self._in_thread(self._clear, left)
            self._old_folders = await self._in_thread(cgroup_tree.remove_all, self._old_folders)
            await asyncio.sleep(LOOK_S)

    async def _try_probe(self) -> str:
        try:
            return str(await self._in_thread(self._probe))
        except Exception as error:  # of a device that has just gone
            log.exception("the driver could not be asked for memory limits; continuing")
            return f"the driver could not be asked for memory limits: {type(error).__name__}, see vgpud's log"

    async def _adopt_old(self) -> None:
        self._adopt(await self._in_thread(lambda: list(cgroup_tree.own_folders(self._mount))))

    async def _in_thread(self, work: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._worker, work, *arguments)

    def _probe(self) -> str:
        """Why there are no fences here, "" if there can be. Leaves nothing behind."""
        if os.geteuid():
            return "vgpud is not root: the driver lets root alone set memory limits"
        mount = cgroup_tree.mount_point()
        if mount is None:
            return "no cgroups of version 2 are mounted"
        if not cgroup_tree.sees_all(mount):
            return f"{mount} does not show the host's cgroups: run vgpud in the host's cgroup namespace"
        gpus = [device for device in self._machine.state.devices.values() if not device.profile]
        known = [(self._devices.handle(device.uuid), device.memory_bytes) for device in gpus]
        if not known:
            return "the devices are MIG instances, on which the driver has no memory limits"
        folder = mount / f"vgpu-probe-{os.getpid()}"
        try:
            cgroup_tree.make(folder)
            cgroup_tree.hand_down_dmem(mount, folder)
            memory_limits.probe(known, folder)
        except VgpudError as error:
            return str(error)
        finally:
            cgroup_tree.remove(folder)
        self._mount = mount
        return ""

    def _adopt(self, folders: Iterable[Path]) -> None:
        """Cgroups of `vgpu run` that are there at the start: those of slices that have ended are to go. What is in use
        by another daemon has processes, and stays."""
        uids = {made.uid for made in self._machine.state.slices.values()}
        for folder in folders:
            uid = folder.name.removeprefix(OWN_PREFIX)
            if uid in uids:
                self._run_cgroups.setdefault(uid, f"/{folder.relative_to(self._mount)}")
            else:
                self._old_folders.append(folder)

    # ---- following the state ----

    async def settle_start(self) -> None:
        """Before the first program of a container runs. Neither a driver that hangs nor a fault here stops it."""
        if not self.is_on:
            return
        try:
            await asyncio.wait_for(self._settle(), START_S)
        except asyncio.TimeoutError:
            pass
        except Exception:
            log.exception("the memory fence of a container could not be set; continuing")

    async def _settle(self) -> None:
        """Sets what the state asks for and is not set, clears what it asks for no more."""
        async with self._busy:
            await self._place_runs()
            wanted = await self._find_fences()
            lost = {uuid for uuid, taken in self._machine.state.taken_devices.items() if taken.is_lost}
            for known in (wanted, self._set):  # its driver has forgotten them when it comes back
                for key in [key for key in known if key[1] in lost]:
                    del known[key]
            to_set = {key: limit for key, limit in wanted.items() if self._set.get(key) != limit}
            to_clear = {key: 0 for key in self._set if key not in wanted}
            if to_set or to_clear or self._old_folders:
                done: _Outcome = await self._in_thread(self._carry_out, to_set, to_clear)
                self._set |= done.set_fences
                for key in done.cleared_fences:
                    self._set.pop(key, None)
                self._note(done.problems, self._problems.keys() & {cgroup for cgroup, _uuid in done.set_fences})

    async def _find_fences(self) -> Fences:
        slices = self._machine.state.slices
        leaves = self._jobs.leaves(slices.values())
        others = await self._in_thread(self._paths_of, leaves) if leaves else {}
        for made in slices.values():
            if cgroup := self._run_cgroups.get(made.uid):
                others.setdefault(made.name, []).append(cgroup)
        return fences(self._machine.state, others)

    def _paths_of(self, leaves: dict[str, Leaf]) -> dict[str, list[str]]:
        """Cgroup paths by slice; only those of version 2."""
        folders = self._jobs.folders(leaves)
        own = {name: Path(folder) for name, folder in folders.items() if Path(folder).is_relative_to(self._mount)}
        return {name: [f"/{folder.relative_to(self._mount)}"] for name, folder in own.items()}

    def _note(self, problems: dict[str, str], good_cgroups: Iterable[str]) -> None:
        for name in good_cgroups:
            self._problems.pop(name, None)
        for name, text in problems.items():
            if self._problems.get(name) != text:
                self._problems[name] = text
                known = name if name in self._machine.state.slices else ""
                self._events.note_bounded("fence.none", ev.Log("fence.none", text, known))
        self.why = next(reversed(self._problems.values()), "")

    def _carry_out(self, to_set: Fences, to_clear: Fences) -> _Outcome:
        done = _Outcome()
        done.cleared_fences = self._clear(to_clear)
        for (cgroup, uuid), limit in to_set.items():
            folder = self._folder(cgroup)
            if not folder.is_dir():
                continue  # it has ended, or is of version 1
            try:
                cgroup_tree.hand_down_dmem(self._mount, folder)
                memory_limits.set_limit(self._devices.handle(uuid), folder, limit)
                done.set_fences[cgroup, uuid] = limit
            except (CgroupError, LimitError) as error:
                if folder.is_dir():
                    done.problems[cgroup] = f"cgroup {cgroup} has no memory limit of the driver: {error}"
        self._old_folders = cgroup_tree.remove_all(self._old_folders)
        return done

    def _clear(self, fences_: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
        """Which have no limit any more, as has a cgroup that is gone; the others are to be tried again."""
        cleared: set[tuple[str, str]] = set()
        for cgroup, uuid in fences_:
            folder = self._folder(cgroup)
            try:
                if folder.is_dir():
                    memory_limits.set_limit(self._devices.handle(uuid), folder, memory_limits.NO_LIMIT)
            except LimitError:
                if folder.is_dir():
                    continue
            cleared.add((cgroup, uuid))
        return cleared

    def _folder(self, cgroup: str) -> Path:
        return self._mount / cgroup.lstrip("/")

    # ---- cgroups for `vgpu run` ----

    async def _place_runs(self) -> None:
        """Gives each `vgpu run` with a slice of its own a cgroup, and gives up those of slices that have ended."""
        state = self._machine.state
        by_uid = {made.uid: made for made in state.slices.values()}
        for uid in [uid for uid in self._run_cgroups if uid not in by_uid]:
            if cgroup := self._run_cgroups.pop(uid):
                self._old_folders.append(self._folder(cgroup))
        holders = [p for p in state.processes.values() if p.holder and p.program == RUN_PROGRAM and not p.container_id]
        for holder in holders:
            made = state.slices.get(holder.slice_name)
            if made is None or not made.origin.ephemeral or made.uid in self._run_cgroups:
                continue
            try:
                self._run_cgroups[made.uid] = await self._in_thread(self._place, holder, made.uid)
            except CgroupError as error:
                self._run_cgroups[made.uid] = ""
                text = f"slice {made.name} has no memory limit of the driver: {error}"
                self._note({made.name: f"{text}; start it by `systemd-run --user --scope vgpu run ...`"}, ())

    def _place(self, holder: Process, slice_uid: str) -> str:
        """The cgroup that `vgpu run` and its programs are in from now on. Raises CgroupError."""
        here = cgroup_tree.unified_path(holder.pid)
        name = OWN_PREFIX + slice_uid
        if Path(here).name == name and cgroup_tree.is_ours(self._folder(here)):  # a daemon of before has made it
            return here
        if not here or processes.real_uid(holder.pid) != holder.uid:
            raise CgroupError(f"pid {holder.pid} has ended, or has no cgroup of version 2")
        parent = self._folder(here)
        folder = parent / name
        cgroup_tree.make(folder)
        try:
            try:
                cgroup_tree.move_tree(holder.pid, folder)
            except CgroupError:
                cgroup_tree.make(folder)  # another daemon has removed it, as it was empty
                cgroup_tree.move_tree(holder.pid, folder)
            cgroup_tree.hand_down_dmem(self._mount, folder)
        except CgroupError:
            with contextlib.suppress(CgroupError):
                cgroup_tree.move_tree(holder.pid, parent)
            cgroup_tree.remove(folder)
            raise
        return f"{here.rstrip('/')}/{name}"
