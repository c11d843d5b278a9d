"""`vgpu` as a user calls it on a private system, in this process: a test that asks again and again would start an
interpreter each time. That each command works from a shell is shown in tests/cli/.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
from typing import Any
from unittest import mock

from vgpud.cli.demo.private_system import OwnSystem
from vgpud.cli.main import invoke


def call(system: OwnSystem, *words: str) -> subprocess.CompletedProcess[str]:
    """What a command has printed, and its exit code."""
    places = {name: system.env[name] for name in ("VGPU_HOST", "VGPU_SIM_DIR") if name in system.env}
    out, err = io.StringIO(), io.StringIO()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    before = os.getcwd()
    os.chdir(system.folder)  # jobs write their logs there
    try:
        with mock.patch.dict(os.environ, places), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = invoke(words)
    finally:
        os.chdir(before)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # `run` leaves signals blocked: programs would inherit that
    return subprocess.CompletedProcess(["vgpu", *words], code, out.getvalue(), err.getvalue())


def ask(system: OwnSystem, *words: str) -> Any:
    """The answer of a command as JSON."""
    done = call(system, *words, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
