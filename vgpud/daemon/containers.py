"""The part of the composition root that containers need: requests of the runtime socket, answered by the core.

Made by Daemon; holds no state of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from vgpud import paths
from vgpud.config import LiveConfig
from vgpud.containers.cdi import Facts
from vgpud.containers.server import Site
from vgpud.core import events as ev
from vgpud.core.model import Container, Denied, Reason, Slice, Spec
from vgpud.core.origins import KubernetesOrigin
from vgpud.core.slices import drains
from vgpud.core.slices.containers import container_of
from vgpud.core.slices.make import attach_refusal, short
from vgpud.daemon.memory_fence import MemoryFence
from vgpud.daemon.slices.changes import ChangeSignal
from vgpud.daemon.slices.counters import Counters
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.nvml import Devices

#: the DRA driver reads a claim again in this time, or the container's start fails and kubelet tries again
POD_S = 5.0


class ContainerBackend:
    """containers.Backend, and the container that a cgroup is of."""

    def __init__(
        self,
        config: LiveConfig,
        machine: SliceMachine,
        events: EventRecorder,
        counters: Counters,
        changes: ChangeSignal,
        devices: Devices,
        fence: MemoryFence,
    ) -> None:
        self._fence = fence
        self._config = config
        self._machine = machine
        self._events = events
        self._counters = counters
        self._changes = changes
        self._devices = devices

    def site(self) -> Site:
        config, devices = self._config.current, self._devices
        return Site(
            runtime=config.runtime,
            cache=paths.cache_dir(),
            driver=Path(devices.driver),
            nvml=Path(devices.nvml) if devices.nvml else None,
            sim_dir=devices.sim_dir,
            nvidia_cdi_dirs=config.nvidia_cdi_dirs,
            mode=config.mode,
            limits=config.container_limits,
            owner=config.container_owner,
        )

    def facts(self) -> Facts:
        """What our CDI files are made of."""
        config, site = self._config.current, self.site()
        return Facts(
            cache=site.cache,
            driver=site.driver,
            nvml=site.nvml,
            sim_dir=site.sim_dir,
            attach_dir=paths.shared_attach_dir(config.runtime),
            front=config.front or str(paths.front()),
            devices=tuple(self._machine.state.devices.values()),
            nvidia_dirs=config.nvidia_cdi_dirs,
            gpus_milli_max=config.container_limits.gpus_milli,
            mode=config.mode,
        )

    def container(self, container_id: str) -> Container | None:
        return self._machine.state.containers.get(container_id)

    def slice(self, name: str) -> Slice | None:
        return self._machine.state.slices.get(name)

    def slices(self) -> Iterable[Slice]:
        return self._machine.state.slices.values()

    def uuids(self, spec: Spec) -> frozenset[str]:
        """The devices that a spec names by index or UUID."""
        return frozenset(drains.with_uuids(spec, self._machine.state).device_uuids)

    def used_ns(self, slice_: Slice) -> int:
        """Device time that a slice has used, summed over its devices."""
        return sum(stats.charged_ns for stats in self._counters.of_slice(slice_))

    def device_count(self) -> int:
        return len(self._machine.state.devices)

    async def create_job_slice(self, event: ev.CreateSlice) -> Slice | Denied:
        return await self._answer(event)

    async def delete_job_slice(self, event: ev.DeleteSlice) -> Denied | None:
        answer = await self._machine.submit(event)
        return answer if isinstance(answer, Denied) else None

    async def create_container(self, event: ev.ContainerCreated) -> Slice | Denied:
        return await self._answer(event)

    async def start_container(self, event: ev.ContainerStarted) -> Slice | Denied:
        answer = await self._answer(event)
        await self._fence.settle_start()
        return answer

    async def _answer(self, event: ev.Event) -> Slice | Denied:
        answer = await self._machine.submit(event)
        return answer if answer is not None else Denied(Reason.UNAVAILABLE, "no answer: see vgpud's log")

    async def wait_for_pod(self, slice_name: str, pod: str) -> bool:
        """Waits until a Kubernetes claim's slice is for this pod, too; returns whether it is."""

        def is_named() -> bool:
            found = self._machine.state.slices.get(slice_name)
            return found is not None and isinstance(found.origin, KubernetesOrigin) and pod in found.origin.pods

        until_s = time.monotonic() + POD_S
        while not is_named() and (left_s := until_s - time.monotonic()) > 0:
            await self._changes.wait(left_s)
        return is_named()

    def end_container(self, container_id: str, why: str, restarts: bool = False) -> None:
        self._machine.run(ev.ContainerEnded(container_id, why, restarts))

    def indices(self, slice_: Slice) -> tuple[int, ...]:
        devices = self._machine.state.devices
        return tuple(devices[share.device_uuid].index for share in slice_.shares)

    def container_note(self, kind: str, container_id: str, text: str) -> None:
        """An event about a container; refusals are bounded, since any user's broken script may repeat them."""
        known = self._machine.state.containers.get(container_id)
        whose = f"container {short(container_id)}" if container_id else "a request"
        entry = ev.Log(kind, f"{whose}: {text}", known.slice_name if known else "")
        self._events.note_bounded(kind, entry)

    # ---- containers by cgroup ----

    def slice_in(self, cgroups: tuple[str, ...]) -> str:
        """The slice of the container with these cgroups, "" outside of all."""
        found = container_of(self._machine.state, cgroups)
        return found.slice_name if found else ""

    def refusal(self, slice_: Slice, uid: int, cgroups: tuple[str, ...]) -> Denied | None:
        """Why this program may not attach to the slice, or None."""
        inside = container_of(self._machine.state, cgroups)
        return attach_refusal(self._machine.state, slice_, uid, inside.container_id if inside else "")

    def container_id(self, cgroups: tuple[str, ...]) -> str:
        found = container_of(self._machine.state, cgroups)
        return found.container_id if found else ""
