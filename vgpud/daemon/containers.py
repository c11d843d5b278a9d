"""The part of the composition root that containers need: requests of the runtime socket, answered by the core.

Made by Daemon; holds no state of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from vgpud import paths
from vgpud.config import Config
from vgpud.containers.cdi import Facts
from vgpud.containers.server import Site
from vgpud.core import events as ev
from vgpud.core.model import Container, Denied, Reason, Slice, Spec, State
from vgpud.core.observed import SliceStats
from vgpud.core.origins import KubernetesOrigin
from vgpud.core.slices import offered
from vgpud.core.slices.containers import container_of
from vgpud.core.slices.make import attach_refusal, short

#: the DRA driver reads a claim again in this time, or the container's start fails and kubelet tries again
POD_S = 5.0


class Host(Protocol):
    """What is needed of the daemon."""

    config: Config
    state: State

    async def submit(self, event: ev.Event) -> Slice | Denied | None: ...
    def run(self, event: ev.Event) -> list[ev.Command]: ...
    def note_bounded(self, key: str, entry: ev.Log) -> None: ...
    def libraries(self) -> tuple[str, str, str]: ...
    def slice_counters(self, slice_: Slice) -> Sequence[SliceStats]: ...
    async def wait_change(self, timeout_s: float) -> None: ...


class ContainerBackend:
    """containers.Backend, and the container that a cgroup is of."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def site(self) -> Site:
        config = self._host.config
        driver, nvml, sim_dir = self._host.libraries()
        return Site(
            runtime=config.runtime,
            cache=paths.cache_dir(),
            driver=Path(driver),
            nvml=Path(nvml) if nvml else None,
            sim_dir=sim_dir,
            nvidia_cdi_dirs=config.nvidia_cdi_dirs,
            mode=config.mode,
            limits=config.container_limits,
        )

    def facts(self) -> Facts:
        """What our CDI files are made of."""
        config, site = self._host.config, self.site()
        return Facts(
            cache=site.cache,
            driver=site.driver,
            nvml=site.nvml,
            sim_dir=site.sim_dir,
            attach_dir=paths.shared_attach_dir(config.runtime),
            front=config.front or str(paths.front()),
            devices=tuple(self._host.state.devices.values()),
            nvidia_dirs=config.nvidia_cdi_dirs,
            gpus_milli_max=config.container_limits.gpus_milli,
            mode=config.mode,
        )

    def container(self, container_id: str) -> Container | None:
        return self._host.state.containers.get(container_id)

    def slice(self, name: str) -> Slice | None:
        return self._host.state.slices.get(name)

    def slices(self) -> Iterable[Slice]:
        return self._host.state.slices.values()

    def uuids(self, spec: Spec) -> frozenset[str]:
        """The devices that a spec names by index or UUID."""
        return frozenset(offered.with_uuids(spec, self._host.state).device_uuids)

    def used_ns(self, slice_: Slice) -> int:
        """Device time that a slice has used, summed over its devices."""
        return sum(stats.charged_ns for stats in self._host.slice_counters(slice_))

    def device_count(self) -> int:
        return len(self._host.state.devices)

    async def create_job_slice(self, event: ev.CreateSlice) -> Slice | Denied:
        return await self._answer(event)

    async def delete_job_slice(self, event: ev.DeleteSlice) -> Denied | None:
        answer = await self._host.submit(event)
        return answer if isinstance(answer, Denied) else None

    async def create_container(self, event: ev.ContainerCreated) -> Slice | Denied:
        return await self._answer(event)

    async def start_container(self, event: ev.ContainerStarted) -> Slice | Denied:
        return await self._answer(event)

    async def _answer(self, event: ev.Event) -> Slice | Denied:
        answer = await self._host.submit(event)
        return answer if answer is not None else Denied(Reason.UNAVAILABLE, "no answer: see vgpud's log")

    async def wait_for_pod(self, slice_name: str, pod: str) -> bool:
        """Waits until a Kubernetes claim's slice is for this pod, too; returns whether it is."""

        def is_named() -> bool:
            found = self._host.state.slices.get(slice_name)
            return found is not None and isinstance(found.origin, KubernetesOrigin) and pod in found.origin.pods

        until_s = time.monotonic() + POD_S
        while not is_named() and (left_s := until_s - time.monotonic()) > 0:
            await self._host.wait_change(left_s)
        return is_named()

    def end_container(self, container_id: str, why: str, restarts: bool = False) -> None:
        self._host.run(ev.ContainerEnded(container_id, why, restarts))

    def indices(self, slice_: Slice) -> tuple[int, ...]:
        devices = self._host.state.devices
        return tuple(devices[share.device_uuid].index for share in slice_.shares)

    def container_note(self, kind: str, container_id: str, text: str) -> None:
        """An event about a container; refusals are bounded, since any user's broken script may repeat them."""
        known = self._host.state.containers.get(container_id)
        whose = f"container {short(container_id)}" if container_id else "a request"
        entry = ev.Log(kind, f"{whose}: {text}", known.slice_name if known else "")
        self._host.note_bounded(kind, entry)

    # ---- containers by cgroup ----

    def slice_in(self, cgroups: tuple[str, ...]) -> str:
        """The slice of the container with these cgroups, "" outside of all."""
        found = container_of(self._host.state, cgroups)
        return found.slice_name if found else ""

    def refusal(self, slice_: Slice, uid: int, cgroups: tuple[str, ...]) -> Denied | None:
        """Why this program may not attach to the slice, or None."""
        inside = container_of(self._host.state, cgroups)
        return attach_refusal(self._host.state, slice_, uid, inside.container_id if inside else "")

    def container_id(self, cgroups: tuple[str, ...]) -> str:
        found = container_of(self._host.state, cgroups)
        return found.container_id if found else ""
