"""What users and their programs are shown of the node."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from vgpud import __version__, paths
from vgpud.api.slice_messages import arbiter_view, timestamp
from vgpud.attach.messages import ABI_VERSION
from vgpud.config import LiveConfig
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.arbiters import Arbiters
from vgpud.devices.nvml import Devices
from vgpud.devices.time_slices import TimeSlice
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words


class FenceState(Protocol):
    """Whether the driver's memory limits are set, and what is wrong with them."""

    is_on: bool
    why: str


class DriverState(Protocol):
    """What the daemon has set in the driver."""

    @property
    def fence(self) -> FenceState: ...

    @property
    def time_slices(self) -> Sequence[TimeSlice]: ...


class NodeInfo:
    """`cdi_dir`: where our CDI files lie, "" where the site wants none."""

    def __init__(
        self,
        config: LiveConfig,
        machine: SliceMachine,
        devices: Devices,
        arbiters: Arbiters,
        cdi_dir: str,
        driver_state: DriverState,
    ) -> None:
        self.name = config.current.node_name
        self._config = config
        self._machine = machine
        self._devices = devices
        self._arbiters = arbiters
        self._cdi_dir = cdi_dir
        self._driver_state = driver_state
        self._started_wall_ns = time.time_ns()

    def view(self) -> pb.Node:
        config, known = self._config.current, self._machine.state.devices
        return pb.Node(
            name=self.name,
            version=__version__,
            driver_version=self._devices.version,
            simulated=any(d.is_simulated for d in known.values()),
            abi_version=ABI_VERSION,
            mode=words.TENANT_MODE.to_number(config.mode),
            start_time=timestamp(self._started_wall_ns),
            runtime_dir=str(config.runtime),
            sim_dir=self._devices.sim_dir,
            driver=self._devices.driver,
            nvml=self._devices.nvml,
            runtime_socket=str(paths.runtime_socket(config.runtime)),
            cdi_dir=self._cdi_dir,
            unwatched=not self._devices.knows_pids,
            memory_moves=self._devices.memory_moves.way,
            memory_moves_problem=self._devices.why_not_swap(),
            memory_fence=self._driver_state.fence.is_on,
            memory_fence_problem=self._driver_state.fence.why,
            time_slices=[
                pb.TimeSlice(device_uuid=one.device_uuid, length=one.length, problem=one.why_not)
                for one in self._driver_state.time_slices
            ],
            arbiters=[arbiter_view(uuid, self._arbiters.standing(uuid)) for uuid in known],
        )

    def attach_path(self, slice_name: str) -> str:
        """The socket at which a slice's programs attach."""
        return str(paths.attach_socket(self._config.current.runtime, slice_name))
