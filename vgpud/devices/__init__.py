"""Devices: NVML, the arbiter threads, checkpoints and enforcement."""
