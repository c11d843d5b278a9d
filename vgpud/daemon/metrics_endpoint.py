"""Keeps the metrics endpoint supplied with what it shows: a snapshot of slices, devices and queues."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vgpud import __version__, metrics
from vgpud.core.observed import QueueSample
from vgpud.core.slices.snapshot import take_snapshot
from vgpud.daemon.slices.counters import Readings
from vgpud.daemon.slices.machine import SliceMachine
from vgpud.devices.arbiters import Arbiters
from vgpud.errors import VgpudError


class MetricsEndpoint:
    """`sample_queues`: what is shown of queues at the moment."""

    def __init__(
        self,
        node: str,
        machine: SliceMachine,
        arbiters: Arbiters,
        readings: Readings,
        sample_queues: Callable[[], tuple[QueueSample, ...]],
    ) -> None:
        self.metrics = metrics.Metrics()
        self._node = node
        self._machine = machine
        self._arbiters = arbiters
        self._readings = readings
        self._sample_queues = sample_queues
        self._server: Any = None

    def serve(self, host: str, port: int, token_file: str) -> None:
        """Raises VgpudError."""
        try:
            tokens = metrics.read_tokens(token_file) if token_file else None
        except (OSError, ValueError) as error:
            raise VgpudError(f"metrics_tokens: {error}") from error
        try:
            self._server = self.metrics.serve(host, port, tokens)
        except OSError as error:
            text = f"metrics address {host}:{port}: {error.strerror}; choose another (--metrics ADDRESS:PORT) or off"
            raise VgpudError(text) from error

    def refresh(self) -> None:
        """Where the endpoint is served."""
        if self._server:
            self.put_snapshot()

    def put_snapshot(self) -> None:
        stats, queues = self._arbiters.slice_stats, self._sample_queues()
        state, readings, standing = self._machine.state, self._readings.devices, self._arbiters.standing
        self.metrics.put(take_snapshot(state, self._node, __version__, readings, stats, standing, queues))

    def close(self) -> None:
        if self._server:
            self._server.close()
