"""Versions of NVIDIA's driver with faults that users are to know of, or that vgpud works around. Pure."""

from __future__ import annotations

#: NVIDIA/cuda-checkpoint#53: the host hangs when a program is killed that was moved off its device and back. Reported
#: of these; no later version is known to have the repair
HANG_AT_KILL = ("595.71.05",)


def hangs_at_kill(version: str) -> bool:
    """Whether killing a program that was evicted and restored may hang the host."""
    return version in HANG_AT_KILL
