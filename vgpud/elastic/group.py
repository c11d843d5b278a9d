"""Process groups of torch.distributed for changing memberships: the rendezvous of a generation, and its process group.

A rendezvous is a TCPStore of rank 0. Workers wait there until all have arrived, or until there is a later generation.
Both may happen at once on two workers, so the store holds the outcome, and the first worker that writes it decides.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

HOST = "127.0.0.1"
#: timeout of the store's answers
STORE_S = 30.0
#: timeout for all to connect to each other once all have arrived: one may die just then
FORM_S = 15.0
_POLL_MIN_S, _POLL_MAX_S = 0.002, 0.02


class Stores:
    """The stores that this worker has created as rank 0 of a generation."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[str, Any]] = {}

    def make(self, generation: int) -> str:
        """HOST:PORT of this generation's store. From any thread."""
        if generation not in self._made:
            listener = socket.create_server((HOST, 0), backlog=128)  # on loopback only, which TCPStore cannot
            port = listener.getsockname()[1]
            wait = timedelta(seconds=STORE_S)
            descriptor = listener.detach()
            store = dist.TCPStore(
                HOST, port, is_master=True, wait_for_workers=False, timeout=wait, master_listen_fd=descriptor
            )
            self._made[generation] = (f"{HOST}:{port}", store)
        return self._made[generation][0]

    def reach(self, generation: int, address: str) -> Any:
        """A connection to the store of this generation, or the store itself. Raises RuntimeError."""
        made = self._made.get(generation)
        if made and made[0] == address:
            return made[1]
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), STORE_S).close()  # TCPStore would try until its time is up
        except OSError as error:
            raise RuntimeError(f"no store answers at {address}: {error.strerror}") from error
        wait = timedelta(seconds=STORE_S)
        return dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False, timeout=wait)

    def forget(self, current_generation: int) -> None:
        """Ends the stores of earlier generations."""
        for generation in [g for g in self._made if g < current_generation]:
            del self._made[generation]


def meet(store: Any, size: int, is_superseded: Callable[[], bool]) -> bool:
    """Waits until all workers have arrived. False: there is a later generation instead. Raises RuntimeError."""
    store.add("here", 1)
    pause_s = _POLL_MIN_S
    while store.add("here", 0) < size:
        if is_superseded():
            return bool(store.compare_set("word", "", "leave") == b"go")
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _POLL_MAX_S)
    return bool(store.compare_set("word", "", "go") == b"go")


def form(store: Any, rank: int, size: int, timeout_s: float) -> None:
    """Creates the default process group. Raises RuntimeError."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    backend = _backend(store, rank, size)
    if "nccl" in backend:  # a collective that fails is to raise, not to end the process
        os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    wait = timedelta(seconds=FORM_S)
    inside = dist.PrefixStore("group", store)
    dist.init_process_group(backend, store=inside, rank=rank, world_size=size, timeout=wait)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s))


def _backend(store: Any, rank: int, size: int) -> str:
    """NCCL if each worker has its own device: it refuses two workers on one, gloo does not."""
    device = ""
    if torch.cuda.is_available() and dist.is_nccl_available():
        device = str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)
    store.set(f"device/{rank}", device or "none")
    devices = {bytes(store.get(f"device/{other}")) for other in range(size)}
    return "cpu:gloo,cuda:nccl" if b"none" not in devices and len(devices) == size else "gloo"


def leave() -> None:
    """Ends the process group, in whatever state it is."""
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def part() -> None:
    """Ends it when all workers have finished: an early leaver would break the last exchange of the others."""
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):
            dist.barrier()
    leave()
