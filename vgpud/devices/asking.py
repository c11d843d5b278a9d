"""Asking NVML: devices and driver versions differ in what they report."""

from __future__ import annotations

from typing import Any

import pynvml


def or_none(ask: Any) -> Any:
    """NVML's answer, or None where it has none."""
    try:
        return ask()
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError, AttributeError):
        return None
