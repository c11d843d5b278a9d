"""A device's own word on how busy it is, by NVML: utilisation, SM activity (GPM, from Hopper on), memory."""

from __future__ import annotations

import os
import threading
from types import TracebackType
from typing import Any

import pynvml as nvml

#: the counter behind GPU-Util is renewed every sixth of a second, or slower
SAMPLE_S = 0.1


class Watch:
    """Samples a device between enter and exit."""

    def __init__(self, uuid: str) -> None:
        nvml.nvmlInit()
        self.device = nvml.nvmlDeviceGetHandleByUUID(uuid)
        self.name = _text(nvml.nvmlDeviceGetName(self.device))
        self.utilisation: float | None = None
        self.sm_activity: float | None = None
        self._seen: list[int] = []
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._first: Any = None

    def __enter__(self) -> Watch:
        self._seen, self.utilisation, self.sm_activity = [], None, None
        self._end.clear()
        self._first = self._gpm()
        self._thread = threading.Thread(target=self._sample, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end.set()
        if self._thread is not None:
            self._thread.join()
        if self._seen:
            self.utilisation = sum(self._seen) / len(self._seen) / 100
        self.sm_activity = self._activity()

    def _sample(self) -> None:
        while not self._end.wait(SAMPLE_S):
            self._seen.append(nvml.nvmlDeviceGetUtilizationRates(self.device).gpu)

    def _gpm(self) -> Any:
        """A snapshot of the counters; None where the device has none."""
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(self.device).isSupportedDevice:
                return None
            sample = nvml.nvmlGpmSampleAlloc()
            nvml.nvmlGpmSampleGet(self.device, sample)
        except nvml.NVMLError:
            return None
        return sample

    def _activity(self) -> float | None:
        """Part of the SMs' time that they were busy, between the two snapshots."""
        last = self._gpm()
        if self._first is None or last is None:
            return None
        asked = nvml.c_nvmlGpmMetricsGet_t()
        asked.version = nvml.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = 1
        asked.sample1, asked.sample2 = self._first, last
        asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        try:
            nvml.nvmlGpmMetricsGet(asked)
            value = float(asked.metrics[0].value)
        except nvml.NVMLError:
            return None
        finally:
            for sample in (self._first, last):
                nvml.nvmlGpmSampleFree(sample)
        return value / 100 if 0 <= value <= 100 else None

    def process_bytes(self) -> int | None:
        """What this process holds, its context included; None where NVML does not say (containers see other pids)."""
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(self.device):
            if process.pid == os.getpid() and process.usedGpuMemory is not None:
                return int(process.usedGpuMemory)
        return None

    def used_bytes(self) -> int:
        """What all together hold on the device."""
        return int(nvml.nvmlDeviceGetMemoryInfo(self.device).used)


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
