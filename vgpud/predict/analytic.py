"""Utilisation of a model that no predictor covers, by arithmetic: a roofline of the device beside the host's part.

A step keeps the device busy for as long as its operations take by the roofline (features.py, `device_ns`), and idle
while the host launches kernels and copies samples. Three constants of the host and the ends of the interval are from
two thirds of GPUMemNet's perceptrons and half of its networks that convolve; the others judge it
(benchmarks/predict/published.py). No transformer's utilisation was at hand. Training that waits for its data uses less.
Pure.
"""

from __future__ import annotations

import math

from vgpud.predict.features import Features
from vgpud.predict.model import Interval

#: of the host for each kernel that PyTorch launches from Python, and for each byte of samples that goes to the device
LAUNCH_NS = 6_000
HOST_BYTES_PER_S = 4_000_000_000
#: a device that always has work is shown as so busy: least, likely, most (the counter samples, and a run has ends)
_BUSY_LEAST, _BUSY, _BUSY_MOST = 0.87, 0.93, 0.97
#: device over host time: how far measured ones are from computed ones, either way
_RATIO_FACTOR = math.exp(0.7)


def predict_utilisation(job_features: Features) -> Interval | None:
    """Share of the device's time, 0..1; None for a step that does nothing."""
    device_ns = job_features["device_ns"]
    host_ns = job_features["kernels"] * LAUNCH_NS + job_features["copy_bytes"] / HOST_BYTES_PER_S * 1e9
    if not device_ns:
        return None
    return Interval(
        _BUSY_LEAST * _share(device_ns / _RATIO_FACTOR, host_ns),
        _BUSY * _share(device_ns, host_ns),
        _BUSY_MOST * _share(device_ns * _RATIO_FACTOR, host_ns),
    )


def _share(device_ns: float, host_ns: float) -> float:
    return device_ns / (device_ns + host_ns)
