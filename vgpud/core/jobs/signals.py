"""Signals that a job can have sent to its processes before its time limit."""

from __future__ import annotations

#: by name, without SIG; none that a program cannot handle
SIGNALS = ("HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "CONT", "ALRM", "XCPU")
