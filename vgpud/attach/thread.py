"""The native thread that accepts connections and answers plain first attaches (shim/attach_server/), and its rules.

Everything else it hands over unread, and each attachment it reports afterwards. Used by server.py alone.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from vgpud.attach.messages import ffi, lib, slice_reply
from vgpud.core.model import Device, Slice
from vgpud.core.slices.attach_rules import Rules

#: the thread calls a user by uid, and a container by a number beyond these
_UIDS = 1 << 32


class AttachThread:
    """One of a daemon. `arbiter`: the native arbiter of a device, by its UUID."""

    def __init__(self, node: str, first_process_id: int, arbiter: Callable[[str], Any]) -> None:
        native = lib.vg_attach_server_new(first_process_id)
        if native == ffi.NULL:
            raise OSError(ffi.errno, f"attach thread: {os.strerror(ffi.errno)}")
        self._native = ffi.gc(native, lib.vg_attach_server_free)
        self._node = node
        self._arbiter = arbiter
        self._accounts: dict[int, str] = {}  # of containers, by number
        self._next_number = _UIDS
        self._slices: dict[int, tuple[Slice, str, Any]] = {}  # by serial: (slice, mode, as the thread takes it)

    def stop(self) -> None:
        """Nothing more is accepted; news can still be taken."""
        lib.vg_attach_server_stop(self._native)

    def news_fd(self) -> int:
        """Readable while there may be news."""
        return int(lib.vg_attach_server_news_fd(self._native))

    def take(self) -> Any:
        """The oldest news (struct vg_attach_server_news), whose descriptors are the caller's; None: there is none."""
        news = ffi.new("struct vg_attach_server_news *")
        return news if lib.vg_attach_server_take(self._native, news) else None

    def listen(self, fd: int) -> int:
        """Accepts from a listening socket, which stays the caller's; returns its name in news. Raises OSError."""
        name = ffi.new("uint32_t *")
        result = lib.vg_attach_server_listen(self._native, fd, name)
        if result < 0:
            raise OSError(-result, os.strerror(-result))
        return int(name[0])

    def unlisten(self, listener: int) -> None:
        lib.vg_attach_server_unlisten(self._native, listener)

    def next_id(self) -> int:
        """A process_id, never given twice."""
        return int(lib.vg_attach_server_next_id(self._native))

    def know(self, pid: int) -> None:
        """A process with a connection that was admitted here: its further ones are not for the thread."""
        lib.vg_attach_server_know(self._native, pid)

    def forget(self, pid: int) -> None:
        """A connection of an admitted process has ended."""
        lib.vg_attach_server_forget(self._native, pid)

    @contextmanager
    def pause_attachments(self) -> Iterator[None]:
        """Nothing is admitted meanwhile."""
        lib.vg_attach_server_lock(self._native)
        try:
            yield
        finally:
            lib.vg_attach_server_unlock(self._native)

    def account(self, number: int) -> tuple[str, bool]:
        """(account of an attachment, whether it is a container)."""
        return (f"uid {number}", False) if number < _UIDS else (self._accounts[number], True)

    def slice_of(self, serial: int) -> Slice:
        """The slice of an attachment, as it was in the rules."""
        return self._slices[serial][0]

    def clear(self) -> None:
        """No rules: everything is handed over."""
        lib.vg_attach_server_load(self._native, ffi.NULL)

    def load(
        self, rules: Rules, devices: Mapping[str, Device], mode: str, listeners: Mapping[str, int], shared: int
    ) -> None:
        """Replaces the rules. listeners: by slice; shared: the one on which a container's cgroup names the slice."""
        slices = [found for found in rules.slices if found.name in listeners]
        index = {found.name: i for i, found in enumerate(slices)}
        raw = [self._slice(found, devices, mode) for found in slices]
        self._slices = {serial: known for serial, known in self._slices.items() if serial in rules.serials}
        paths = [ffi.new("char[]", os.fsencode(path)) for _, path in rules.containers]
        numbers = self._renumber([account for account, _ in rules.containers])
        containers = [(numbers[account], path) for (account, _), path in zip(rules.containers, paths, strict=True)]
        entries = [
            (number, index[e.slice_name], listener, len(e.draws), list(e.draws))
            for e in rules.entries
            if e.slice_name in index
            for number in [numbers[e.account] if e.uid < 0 else e.uid]
            for listener in ([listeners[e.slice_name], shared] if e.uid < 0 else [listeners[e.slice_name]])
        ]
        tables = ffi.new("struct vg_attach_server_table[]", rules.tables)
        users = ffi.new("struct vg_attach_server_user[]", rules.users)
        made = ffi.new("struct vg_attach_server_entry[]", entries)
        pointers = ffi.new("struct vg_attach_server_slice *[]", raw)
        inside = ffi.new("struct vg_attach_server_container[]", containers)
        counts = len(rules.tables), len(rules.users), len(entries), len(slices), len(containers)
        given = ffi.new("struct vg_attach_server_rules *", [*counts, tables, users, made, pointers, inside])
        if lib.vg_attach_server_load(self._native, given) < 0:
            self.clear()

    def _renumber(self, accounts: list[str]) -> dict[str, int]:
        """Numbers of containers. Those that are known keep theirs, which are in untaken news; others have ended."""
        known = set(accounts)
        numbers = {account: number for number, account in self._accounts.items() if account in known}
        for account in accounts:
            if account not in numbers:
                numbers[account] = self._next_number
                self._next_number += 1
        self._accounts = {number: account for account, number in numbers.items()}
        return numbers

    def _slice(self, slice_: Slice, devices: Mapping[str, Device], mode: str) -> Any:
        known, known_mode, raw = self._slices.get(slice_.serial, (None, "", None))
        if known is not slice_ or known_mode != mode:
            raw = ffi.new("struct vg_attach_server_slice *")
            raw.slice_id = slice_.serial
            raw.reply = slice_reply(self._node, mode, 0, slice_, devices)[0]
            for place, share in enumerate(slice_.shares):
                raw.arbiters[place] = self._arbiter(share.device_uuid)
            self._slices[slice_.serial] = slice_, mode, raw
        return raw
