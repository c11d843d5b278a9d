"""README's commands for a machine without a GPU and without a program work as they are typed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vgpud import paths

ROOT = Path(__file__).resolve().parent.parent
BUILT = (paths.sim_lib_dir() / "vgpu-simd").exists()


def read_commands() -> tuple[str, str]:
    """Those that start all, without the installation, and the one that ends it."""
    text = (ROOT / "README.md").read_text()
    begin = text.index("vgpu sim start\n")
    (end,) = re.findall(r"This ends the rest: `(.+?)`", text)
    return text[begin : text.index("```", begin)], end


@pytest.mark.slow
@pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py")
@pytest.mark.parametrize("option", ["-c", "-ic"])
def test_two_programs_are_started_and_all_is_ended(short_dir: Path, option: str) -> None:
    """By a script and by an interactive shell, which numbers its jobs; before the programs have ended by themselves."""
    config = short_dir / "vgpud.toml"
    places = {"runtime_dir": short_dir / "run", "state_dir": short_dir / "state", "metrics": "off"}
    config.write_text("".join(f'{key} = "{value}"\n' for key, value in places.items()))
    for name, module, words in (("vgpu", "vgpud.cli.main", ""), ("vgpud", "vgpud.serve", f"--config {config}")):
        (short_dir / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@" {words}\n')
        (short_dir / name).chmod(0o755)
    start, end = read_commands()
    # A busy host may need longer for the daemon than `vgpu run` waits for it.
    until_up = "until vgpu status >/dev/null 2>&1 || [ $SECONDS -gt 90 ]; do sleep 0.2; done"
    start = start.replace("daemon=$!\n", f"daemon=$!\n{until_up}\n")
    until_two = "until [ $(vgpu ps -o name 2>/dev/null | wc -l) = 2 ] || [ $SECONDS -gt 90 ]; do sleep 0.2; done"
    own = {"PATH": f"{short_dir}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "VGPU_SIM_DIR": str(short_dir / "sim")}
    env = {**os.environ, **own, "VGPU_HOST": f"unix://{short_dir}/run/vgpud.sock"}
    script = f"{start}{until_two}\n{end}\ncode=$?\nwait\necho ended with $code"
    command = ["bash", "--norc", option, script]
    with subprocess.Popen(
        command, env=env, cwd=short_dir, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    ) as shell:  # fmt: skip
        try:
            said, errors = shell.communicate(timeout=200)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)
            subprocess.run([short_dir / "vgpu", "sim", "stop", "--force"], env=env, capture_output=True, check=False)
    assert said.splitlines()[-1:] == ["ended with 0"], (said, errors)
    assert errors.count("vgpu: slice") >= 2, errors
