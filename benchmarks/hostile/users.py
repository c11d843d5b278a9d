"""Programs of unprivileged users, started by root.

Everything is imported before a program becomes its user, who may not be able to read the interpreter.
"""

from __future__ import annotations

import json
import os
import sys
import time

from vgpud.cli.demo.private_system import OwnSystem, Part

ATTACKER_UID, NEIGHBOUR_UID = 64101, 64102


def why_not() -> str:
    """Why programs of other users cannot be started here; "" when they can."""
    return "" if os.geteuid() == 0 else "it needs programs of two users: run it as root"


def start(own: OwnSystem, module: str, *words: str) -> Part:
    """Starts a module of this folder, which becomes its user by itself."""
    name = f"{module}-{len(own.tenants)}"
    command = [sys.executable, "-m", f"benchmarks.hostile.{module}", *words]
    part = Part(name, command, own.env, own.folder)
    own.tenants.append(part)
    return part


def become(uid: int) -> None:
    """Turns this process into the user, with no group besides their own."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def say(**numbers: float) -> None:
    """Prints a line for benchmarks.hostile.attacker.Attacker."""
    print(json.dumps({"pid": os.getpid(), "time_ns": time.monotonic_ns(), **numbers}), flush=True)
