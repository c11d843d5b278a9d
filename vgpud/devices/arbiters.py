"""Shell of the native arbiters: one per device, created and tuned from here, running without the interpreter.

Turns slices into arbiter parameters and arbiter counters into frozen statistics. Calls take microseconds (the native
side has one short lock per device), so the daemon's loop makes them directly.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Any

import vgpud._shim as _shim
from vgpud.core.model import AWAY, EVICTED, LATENCY, Device, Share, Slice
from vgpud.core.observed import (
    SCHEDULING,
    Credit,
    ProcessStats,
    Reclaim,
    SliceStats,
    Standing,
    TraceEvent,
    compute_link_ns,
)
from vgpud.core.slices.gangs import Role, roles
from vgpud.core.units import MILLI_PER_DEVICE

ffi, lib = _shim.ffi, _shim.lib

_SECOND_NS = 1_000_000_000
_GATES = {lib.VG_GATE_CLOSED: "closed", lib.VG_GATE_COUNT: "count", lib.VG_GATE_SOLO: "solo"}
_REGIMES = {getattr(lib, f"VG_REGIME_{n.upper()}"): n for n in ("idle", "solo", "open", "throttled", "arbitrated")}
_TRACE_TYPES = {
    getattr(lib, f"VG_TRACE_{n.upper()}"): n
    for n in ("open", "close", "drained", "overlap", "waits", "outstanding", "launches", "charged", "regime", "late")
}
_TRACE_BATCH = 4096
_SCHEDULING = {getattr(lib, f"VG_SCHEDULING_{n.upper()}"): n for n in SCHEDULING}


def _check(result: int, what: str) -> None:
    if result < 0:
        raise OSError(-result, f"{what}: {os.strerror(-result)}")


def _trace_event(uuid: str, raw: Any) -> TraceEvent:
    kind, value, text = _TRACE_TYPES[raw.kind], raw.value, ""
    if kind in ("open", "close"):
        value, text = 0, _GATES[raw.value & lib.VG_GATE_STATE_MASK]
    elif kind == "regime":
        value, text = 0, _REGIMES[raw.value]
    return TraceEvent(raw.time_ns, uuid, raw.slice_id, kind, value, text, raw.lost)


def _reclaim(raw: Any) -> Reclaim:
    return Reclaim(
        remaining_bytes=raw.remaining_bytes,
        asked_bytes=raw.asked_bytes,
        begin_ns=raw.begin_ns,
        deadline_ns=raw.deadline_ns,
        end_count=raw.end_count,
        was_late=bool(raw.was_late),
        last_asked_bytes=raw.last_asked_bytes,
        last_returned_bytes=raw.last_returned_bytes,
        last_took_ns=raw.last_took_ns,
        shortages=raw.shortages,
        last_short_bytes=raw.last_short_bytes,
    )


_time_ns = itemgetter(0)


class _Usage:
    """Readings of a slice's device time: all of the last second, one per second of the last minute."""

    def __init__(self) -> None:
        self._last_ns = 0  # when it was read last
        self._left_out = False  # readings since the last one in the lists
        self.alone_ns = 0  # not charged (the solo gate counts nothing): from the driver's utilisation of the device
        self.alone_borrowed_ns = 0  # of it, beyond the guarantee
        self.own_ratio = 1.0  # what of the device's time is not borrowed
        self._charged_ns = 0
        self._recent: deque[tuple[int, int]] = deque()
        self._seconds: deque[tuple[int, int]] = deque()

    def add(self, now_ns: int, charged_ns: int, alone_ratio: float) -> bool:
        """alone_ratio: how busy the device has been since the last reading, if the slice has it to itself.

        Returns whether the reading was left out: each further one of the same would be.
        """
        if charged_ns == self._charged_ns and not alone_ratio and self._is_flat():
            self._last_ns, self._left_out = now_ns, True
            return True
        if self._left_out:
            self._fill()
        if self._recent:
            passed_ns = now_ns - self._last_ns
            more_ns = max(0, int(passed_ns * alone_ratio) - (charged_ns - self._charged_ns))
            self.alone_ns += more_ns
            self.alone_borrowed_ns += max(0, more_ns - int(passed_ns * self.own_ratio))
        self._charged_ns = charged_ns
        used_ns = charged_ns + self.alone_ns
        self._last_ns = now_ns
        self._recent.append((now_ns, used_ns))
        self._drop(self._recent, now_ns - _SECOND_NS)
        if not self._seconds or now_ns >= self._seconds[-1][0] + _SECOND_NS:
            self._seconds.append((now_ns, used_ns))
            self._drop(self._seconds, now_ns - 60 * _SECOND_NS)
        return False

    def same_until(self, now_ns: int) -> None:
        """Readings like the last one, if that was left out, were not added up to this one."""
        if self._left_out:
            self._last_ns = now_ns

    def _is_flat(self) -> bool:
        """Nothing was used within the last minute: further readings of the same change no share."""
        return bool(self._recent) and self._seconds[0][1] == self._recent[0][1] == self._recent[-1][1]

    def _fill(self) -> None:
        """The readings that were left out since nothing was used."""
        self._left_out = False
        used_ns = self._recent[-1][1]
        for readings, period_ns, count in ((self._recent, _SECOND_NS // 10, 10), (self._seconds, _SECOND_NS, 60)):
            begin_ns = readings[-1][0]
            steps = (self._last_ns - begin_ns) // period_ns
            for step in range(max(1, steps - count), steps + 1):
                readings.append((begin_ns + step * period_ns, used_ns))

    @staticmethod
    def _drop(readings: deque[tuple[int, int]], begin_ns: int) -> None:
        while len(readings) > 2 and readings[1][0] <= begin_ns:
            readings.popleft()

    def share(self, seconds: int) -> float:
        """Over the last seconds, or as long as it has been measured."""
        if not self._recent:
            return 0.0
        last_ns, last = self._recent[-1]
        readings = self._recent if seconds == 1 else self._seconds
        begin_ns = last_ns - seconds * _SECOND_NS
        first_ns, first = readings[max(0, bisect_right(readings, begin_ns, key=_time_ns) - 1)]
        return (last - first) / (last_ns - first_ns) if last_ns > first_ns else 0.0


def _own_ratio(share: Share) -> float:
    """As the arbiter counts borrowed time: a slice whose minimum is its maximum borrows none."""
    return share.min_milli / MILLI_PER_DEVICE if share.max_milli > share.min_milli else 1.0


class Arbiters:
    """All arbiters of the node. `heartbeat_ns`: period of the heartbeat by which tenants know that the daemon lives."""

    def __init__(
        self,
        devices: Iterable[Device],
        times_ns: Mapping[str, int],
        heartbeat_ns: int = 20_000_000,
        memory_grace_ns: int = 0,
        pinned_max_bytes: int = 0,
        moves_itself: bool = False,
    ) -> None:
        """`moves_itself`: programs move the memory of slices that rotate or sleep; else the driver does."""
        self._moves_itself = moves_itself
        self.times_ns = dict(times_ns)
        self._heartbeat_ns = heartbeat_ns
        self._memory_grace_ns, self._pinned_max_bytes = memory_grace_ns, pinned_max_bytes
        known = list(devices)
        self._memory_bytes = {d.uuid: d.memory_bytes for d in known}
        self._link_bytes_per_s = {d.uuid: d.link_bytes_per_s for d in known}
        self._native: dict[str, Any] = {}
        self._scratch = ffi.new("struct vg_process_stats *")
        self._readings = ffi.new("struct vg_slice_usage[]", lib.VG_SLICES_MAX)
        self._reclaims = ffi.new("struct vg_slice_reclaim[]", lib.VG_SLICES_MAX)
        self._usage: dict[tuple[int, str], _Usage] = {}
        #: by device: readings of which all were left out, and when there were the same again
        self._still: dict[str, tuple[bytes, int]] = {}
        self._index = {d.uuid: d.index for d in known}
        self._slices: dict[int, Slice] = {}
        self._roles: dict[tuple[int, str], Role] = {}
        #: (moves, bytes) of a slice's memory to the host or back
        self._moves: dict[tuple[int, str], tuple[int, int]] = {}
        self._spaces: dict[str, int] = {}
        #: processes that closed their connections: (slice, last counters) by (process_id, device)
        self._disconnected: dict[tuple[int, str], tuple[int, Any]] = {}
        for uuid in self._memory_bytes:
            native = lib.vg_arbiter_new(self._params(uuid))
            if native == ffi.NULL:
                raise OSError(errno.ENOMEM, f"no arbiter for {uuid}")
            self._native[uuid] = native
            _check(lib.vg_arbiter_start(native), "arbiter thread")

    def _params(self, uuid: str) -> Any:
        params = ffi.new("struct vg_arbiter_params *")
        for name, value_ns in self.times_ns.items():
            setattr(params, name, value_ns)
        params.heartbeat_ns = self._heartbeat_ns
        params.memory_total_bytes = self._memory_bytes[uuid]
        params.link_bytes_per_ms = self._link_bytes_per_s[uuid] // 1000
        params.memory_grace_ns = self._memory_grace_ns
        params.pinned_max_bytes = self._pinned_max_bytes
        return params

    def set_times(self, changes: Mapping[str, int]) -> None:
        """Changes some of the times on all devices, live."""
        self.times_ns.update(changes)
        self._set_params()

    def set_memory_grace(self, grace_ns: int) -> None:
        """How long slices have to give back memory that they are asked for; 0: none is asked."""
        self._memory_grace_ns = grace_ns
        self._set_params()

    def set_pinned_max(self, max_bytes: int) -> None:
        """Host memory that the programs of a slice may pin together, for each device; 0: no limit."""
        self._pinned_max_bytes = max_bytes
        self._set_params()

    def _set_params(self) -> None:
        for uuid, native in self._native.items():
            _check(lib.vg_arbiter_set_params(native, self._params(uuid)), "arbiter parameters")

    def apply(self, slice_: Slice, dropped_uuids: Iterable[str] = ()) -> None:
        """Creates or changes a slice on its devices and takes it from the dropped ones."""
        self._slices[slice_.serial] = slice_
        for uuid in dropped_uuids:
            self._forget(slice_.serial, uuid)
        self._give_roles()
        for share in slice_.shares:
            self._set(slice_, share)
            usage = self._usage.setdefault((slice_.serial, share.device_uuid), _Usage())
            usage.own_ratio = _own_ratio(share)

    def _set(self, slice_: Slice, share: Share) -> None:
        params = ffi.new("struct vg_slice_params *")
        params.min_milli, params.max_milli = share.min_milli, share.max_milli
        params.mem_min_bytes, params.mem_max_bytes = share.mem_min_bytes, share.mem_max_bytes
        params.copy_min_milli, params.copy_max_milli = slice_.spec.copy_min_milli, slice_.spec.copy_max_milli
        params.weight, params.priority = slice_.spec.weight, slice_.spec.priority
        params.latency = slice_.spec.service_class == LATENCY
        params.paused = bool(slice_.suspended or slice_.residency)
        params.away = slice_.suspended == EVICTED or slice_.residency == AWAY
        params.rotates = slice_.rotates
        params.moves_itself = slice_.rotates and self._moves_itself
        # evicted while it was away, a program that had nothing to move was never locked by the driver
        params.leaves = bool(slice_.residency) or (slice_.rotates and slice_.suspended == EVICTED)
        params.gang = self._roles[slice_.serial, share.device_uuid].value
        _check(lib.vg_arbiter_slice_set(self._native[share.device_uuid], slice_.serial, params), "slice")

    def _give_roles(self) -> None:
        """The leader of each gang now; slices of others whose role has changed are updated."""
        before, self._roles = self._roles, roles(self._slices.values(), self._index)
        for other in self._slices.values():
            for share in other.shares:
                at = other.serial, share.device_uuid
                if at in self._usage and before.get(at) != self._roles[at]:
                    self._set(other, share)

    def remove(self, slice_: Slice) -> None:
        """Takes a slice away; its processes must be gone."""
        self._slices.pop(slice_.serial, None)
        for share in slice_.shares:
            self._forget(slice_.serial, share.device_uuid)
        self._give_roles()

    def ask_move(self, serial: int, uuid: str, where: int) -> int:
        """Asks a slice's program to have its memory there (VG_MOVE_*); the word that it will answer (moved_word)."""
        word: int = lib.vg_arbiter_slice_move(self._native[uuid], serial, where)
        _check(word, "move")
        return word

    def count_move(self, serial: int, uuid: str, size_bytes: int) -> None:
        """The slice's memory was moved to the host or back."""
        moves, moved_bytes = self._moves.get((serial, uuid), (0, 0))
        self._moves[serial, uuid] = moves + 1, moved_bytes + size_bytes

    def _forget(self, serial: int, uuid: str) -> None:
        self._moves.pop((serial, uuid), None)
        if self._usage.pop((serial, uuid), None) is not None:
            _check(lib.vg_arbiter_slice_remove(self._native[uuid], serial), "slice")

    def make_room(self, uuid: str, size_bytes: int) -> None:
        """So much of a device's memory is asked back from those that borrowed it, for a slice that is to come back: as
        far as it is not free beyond all that the slices there hold or are guaranteed. 0: no more."""
        if size_bytes != self._spaces.get(uuid, 0):
            self._spaces[uuid] = size_bytes
            _check(lib.vg_arbiter_make_room(self._native[uuid], size_bytes), "space")

    def charge(self, serial: int, uuid: str, unattributed_bytes: int) -> None:
        """What a slice's programs have past the ledger counts as its own. Unknown: no effect."""
        if native := self._native.get(uuid):
            lib.vg_arbiter_slice_unattributed(native, serial, unattributed_bytes)

    def native(self, uuid: str) -> Any:
        """The device's arbiter, for the thread that admits processes; it is there until close()."""
        return self._native[uuid]

    def attach(
        self, serial: int, process_id: int, uuid: str, pages: tuple[Any, Any, Any], bell: int, held: int
    ) -> None:
        """Hands a process's pages (header, control, report as cffi pointers) and doorbell to the device's arbiter."""
        result = lib.vg_arbiter_process_add(self._native[uuid], serial, process_id, *pages, bell, held)
        _check(result, f"process {process_id}")

    def detach(self, process_id: int, uuid: str) -> None:
        """Frees what a process held; its pages are not touched any more when this returns. Unknown: no effect."""
        serial, stats = self._disconnected.pop((process_id, uuid), (0, None))
        if stats is None:
            lib.vg_arbiter_process_remove(self._native[uuid], process_id)
        else:
            lib.vg_arbiter_slice_release(self._native[uuid], serial, stats.mem_held_bytes)

    def disconnect(self, serial: int, process_id: int, uuid: str) -> None:
        """Frees a process's place and pages as detach() does, but its memory stays charged until detach()."""
        stats = ffi.new("struct vg_process_stats *")
        if lib.vg_arbiter_process_disconnect(self._native[uuid], process_id, stats) == 0:
            self._disconnected[process_id, uuid] = serial, stats

    def _process(self, process_id: int, uuid: str, raw: Any) -> Any:
        """The counters of a process, in `raw` unless it has disconnected; None when it is not there."""
        if stats := self._disconnected.get((process_id, uuid)):
            return stats[1]
        native = self._native.get(uuid)
        return None if native is None or lib.vg_arbiter_process_stats(native, process_id, raw) < 0 else raw

    def sample(self, now_ns: int, busy: Mapping[str, float]) -> None:
        """Takes a reading of the device time of every slice; call it several times a second. busy: 0..1, by device."""
        for uuid, native in self._native.items():
            ratio = busy.get(uuid, 0.0)
            count = lib.vg_arbiter_usage(native, self._readings, lib.VG_SLICES_MAX)
            now = bytes(ffi.buffer(self._readings)[0 : count * ffi.sizeof("struct vg_slice_usage")])
            before, still_ns = self._still.pop(uuid, (b"", 0))
            if before == now and not ratio:  # a thousand idle processes need no look at each of their slices
                self._still[uuid] = now, now_ns
                continue
            still = not ratio
            for raw in self._readings[0:count]:
                if usage := self._usage.get((raw.slice_id, uuid)):
                    if still_ns:
                        usage.same_until(still_ns)
                    still &= usage.add(now_ns, raw.charged_ns, ratio if raw.uncounted else 0.0)
            if still:
                self._still[uuid] = now, now_ns

    def _read(self, serial: int, uuid: str) -> Any:
        stats = ffi.new("struct vg_slice_stats *")
        lib.vg_arbiter_slice_stats(self._native[uuid], serial, stats)
        return stats

    def slice_stats(self, serial: int, uuid: str) -> SliceStats:
        """Counters of now; all zero for a slice or device that is not there."""
        usage = self._usage.get((serial, uuid))
        if usage is None:
            return SliceStats()
        raw = self._read(serial, uuid)
        moves, moved_bytes = self._moves.get((serial, uuid), (0, 0))
        to_bytes, from_bytes = raw.copy_bytes
        return SliceStats(
            share_ratio=usage.share(1),
            share_10s_ratio=usage.share(10),
            share_60s_ratio=usage.share(60),
            entitlement_milli=raw.entitlement_milli,
            lag_ns=raw.lag_ns if raw.processes and raw.gate != lib.VG_GATE_SOLO else 0,  # it is alone on the device
            charged_ns=raw.charged_ns + usage.alone_ns,
            borrowed_ns=raw.borrowed_ns + usage.alone_borrowed_ns,
            throttled_ns=raw.throttled_ns,
            wait_counts=tuple(raw.wait_counts),
            grants=raw.grants,
            early_releases=raw.early_releases,
            overruns=raw.overruns,
            drains=raw.drains,
            drain_total_ns=raw.drain_total_ns,
            drain_max_ns=raw.drain_max_ns,
            launches=raw.launches,
            mem_held_bytes=raw.mem_held_bytes,
            mem_used_bytes=raw.mem_used_bytes,
            mem_unattributed_bytes=raw.mem_unattributed_bytes,
            mem_peak_bytes=raw.mem_peak_bytes,
            mem_denied=raw.mem_denied,
            reclaim=_reclaim(raw.reclaim),
            processes=raw.processes,
            copy_to_device_bytes=to_bytes,
            copy_from_device_bytes=from_bytes,
            copy_to_device_bytes_per_s=raw.copy_bytes_per_ms[0] * 1000,
            copy_from_device_bytes_per_s=raw.copy_bytes_per_ms[1] * 1000,
            copy_to_device_ns=compute_link_ns(to_bytes, self._link_bytes_per_s[uuid]),
            copy_from_device_ns=compute_link_ns(from_bytes, self._link_bytes_per_s[uuid]),
            pinned_bytes=raw.pinned_bytes,
            pinned_denied=raw.pinned_denied,
            last_work_ns=raw.last_work_ns,
            waiting_calls=raw.waiting_calls,
            processes_in_driver=raw.processes_in_driver,
            moves=moves,
            moved_bytes=moved_bytes,
            moved_word=raw.moved_word,
            moved_state=raw.moved_state,
            stays_reason=raw.stays_reason,
            movable_bytes=raw.movable_bytes,
            gate=_GATES.get(raw.gate, "") if raw.processes else "",
            regime=_REGIMES.get(raw.regime, ""),
        )

    def reclaims(self) -> dict[tuple[int, str], Reclaim]:
        """By slice and device: of those that were asked for memory, or short of it, at least once."""
        found: dict[tuple[int, str], Reclaim] = {}
        for uuid, native in self._native.items():
            count = lib.vg_arbiter_reclaims(native, self._reclaims, lib.VG_SLICES_MAX)
            found |= {(raw.slice_id, uuid): _reclaim(raw) for raw in self._reclaims[0:count]}
        return found

    def in_ledger(self, serial: int, uuid: str) -> int:
        """Bytes that a slice's programs use by their own ledgers; 0 when it is not there. Asked often, of many."""
        raw = self._read(serial, uuid) if (serial, uuid) in self._usage else None
        return raw.mem_used_bytes - raw.mem_unattributed_bytes if raw else 0

    def credit(self, process_id: int, uuid: str) -> Credit:
        """What of a device's memory a process may use now; none when it is not there. Asked often, of many."""
        now = self._process(process_id, uuid, self._scratch)
        return Credit() if now is None else Credit(now.mem_held_bytes, now.mem_granted_bytes)

    def process_stats(self, process_id: int, uuid: str) -> ProcessStats:
        """Counters of one process on one device; all zero when it is not there."""
        raw = self._process(process_id, uuid, ffi.new("struct vg_process_stats *"))
        if raw is None:
            return ProcessStats()
        return ProcessStats(
            launches=raw.launches,
            throttled_ns=raw.throttled_ns,
            busy_ns=raw.busy_ns,
            mem_held_bytes=raw.mem_held_bytes,
            mem_used_bytes=raw.mem_used_bytes,
            mem_peak_bytes=raw.mem_peak_bytes,
            mem_denied=raw.denied,
            contexts=raw.contexts,
        )

    def standing(self, uuid: str) -> Standing:
        """How a device's arbiter thread is scheduled, and how late it has run."""
        raw = ffi.new("struct vg_arbiter_thread_state *")
        lib.vg_arbiter_thread_state(self._native[uuid], raw)
        return Standing(
            scheduling=_SCHEDULING[raw.scheduling],
            steps_down=raw.steps_down,
            locked_bytes=raw.locked_bytes,
            unlocked_bytes=raw.unlocked_bytes,
            late=raw.late_count,
            late_max_ns=raw.late_max_ns,
        )

    def trace(self, is_on: bool) -> None:
        """Begins or ends the keeping of trace events on all devices."""
        for native in self._native.values():
            _check(lib.vg_arbiter_trace(native, is_on), "trace")

    def read_trace(self) -> list[TraceEvent]:
        """Takes the events since the last call, device by device, in the order of time."""
        events = []
        batch = ffi.new("struct vg_trace_event[]", _TRACE_BATCH)
        for uuid, native in self._native.items():
            of_device = []
            count = _TRACE_BATCH
            while count == _TRACE_BATCH:
                count = lib.vg_arbiter_trace_read(native, batch, _TRACE_BATCH)
                of_device += [_trace_event(uuid, batch[i]) for i in range(count)]
            events += sorted(of_device, key=lambda event: event.time_ns)
        return events

    def record(self, uuid: str, fd: int) -> None:
        """Records all inputs and decisions of this device's arbiter into a file, for a replay (shim/arbiter/record.h).

        Raises OSError when the device has slices: a recording begins with none.
        """
        _check(lib.vg_arbiter_record(self._native[uuid], fd), "recording")

    def close(self) -> None:
        """Stops the threads. The pages stay as they are: tenants coast."""
        for native in self._native.values():
            lib.vg_arbiter_free(native)
        self._native.clear()
        self._usage.clear()
