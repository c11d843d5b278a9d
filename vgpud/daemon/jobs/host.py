"""The parts of the daemon on which the queue's own parts work."""

from __future__ import annotations

from dataclasses import dataclass

from vgpud.config import LiveConfig
from vgpud.daemon.jobs.environments import EnvironmentList
from vgpud.daemon.jobs.explain_rotation import TurnCosts
from vgpud.daemon.slices.counters import Counters
from vgpud.daemon.slices.events import EventRecorder
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.daemon.slices.node import NodeInfo
from vgpud.daemon.slices.suspend import SuspendController
from vgpud.devices.nvml import Devices


@dataclass(frozen=True)
class Host:
    config: LiveConfig
    node: NodeInfo
    slices: SliceMachine
    counters: Counters
    events: EventRecorder
    suspension: SuspendController
    devices: Devices
    environments: EnvironmentList
    turns: TurnCosts
