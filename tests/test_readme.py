"""README's commands work as they are typed, on a workstation whose one GPU the simulated device plays."""

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


#: for a shell's commands; they take ten seconds, and two of them wait for up to 90 on a busy host
LIMIT_S = 200

# A busy host may need longer for the daemon than `vgpu run` waits for it.
UNTIL_UP = "until vgpu status >/dev/null 2>&1 || [ $SECONDS -gt 90 ]; do sleep 0.2; done"
UNTIL_TWO = "until [ $(vgpu ps -o name 2>/dev/null | wc -l) = 2 ] || [ $SECONDS -gt 90 ]; do sleep 0.2; done"


def write_workstation(folder: Path, *settings: str) -> dict[str, str]:
    """Puts `vgpu` and `vgpud` into the folder, with a daemon of their own; returns the environment of a shell there."""
    config = folder / "vgpud.toml"
    places = {"runtime_dir": folder / "run", "state_dir": folder / "state", "metrics": "off"}
    config.write_text("".join(f'{key} = "{value}"\n' for key, value in places.items()) + "\n".join(settings))
    for name, module, words in (("vgpu", "vgpud.cli.main", ""), ("vgpud", "vgpud.serve", f"--config {config}")):
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@" {words}\n')
        (folder / name).chmod(0o755)
    own = {"PATH": f"{folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "VGPU_SIM_DIR": str(folder / "sim")}
    return {**os.environ, **own, "VGPU_HOST": f"unix://{folder}/run/vgpud.sock"}


def type_commands(folder: Path, env: dict[str, str], option: str, script: str) -> tuple[str, str]:
    """Standard output and error of a shell with this script; all that it has started is ended."""
    command = ["bash", "--norc", option, script]
    output, errors = folder / "output", folder / "errors"  # no pipes: a program that is left would hold them open
    with output.open("w") as out, errors.open("w") as err:
        shell = subprocess.Popen(
            command, env=env, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
    try:
        shell.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        pytest.fail(f"the shell did not end in {LIMIT_S} s: {output.read_text()}\n{errors.read_text()}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait()
        subprocess.run([folder / "vgpu", "sim", "stop", "--force"], env=env, capture_output=True, check=False)
    return output.read_text(), errors.read_text()


@pytest.mark.slow
@pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py")
@pytest.mark.parametrize("option", ["-c", "-ic"])
def test_two_programs_are_started_and_all_is_ended(short_dir: Path, option: str) -> None:
    """By a script and by an interactive shell, which numbers its jobs; before the programs have ended by themselves."""
    env = write_workstation(short_dir)
    start, end = read_commands()
    start = start.replace("daemon=$!\n", f"daemon=$!\n{UNTIL_UP}\n")
    said, errors = type_commands(
        short_dir, env, option, f"{start}{UNTIL_TWO}\n{end}\ncode=$?\nwait\necho ended with $code"
    )
    assert said.splitlines()[-1:] == ["ended with 0"], (said, errors)
    assert errors.count("vgpu: slice") >= 2, errors


#: train.py of the examples: it uses the device until the test ends it
TRAIN = """
import ctypes, pathlib, time
cuda = ctypes.CDLL("libcuda.so.1")
assert not cuda.cuInit(0)
while not pathlib.Path("end").exists():
    time.sleep(0.05)
"""


def read_block(heading: str) -> list[str]:
    """The commands of the first console block below a heading, without comments and without `pip install`."""
    text = (ROOT / "README.md").read_text().partition(f"\n{heading}\n")[2]
    lines = text.partition("```console\n")[2].partition("```")[0].splitlines()
    is_typed = any(line.startswith("$ ") for line in lines)  # else all are commands
    commands = [
        line.removeprefix("$ ").partition("  #")[0].rstrip() for line in lines if line.startswith("$ ") or not is_typed
    ]
    return [command for command in commands if not command.startswith("pip install")]


@pytest.mark.slow
@pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py")
def test_the_quick_start_and_the_queue_work_as_they_are_written(short_dir: Path) -> None:
    """Those of a workstation, and those of the queue between them, while its device is in use."""
    serve, *programs, status, resize = read_block("## Quick start: a workstation")
    submit, gang, elastic, explain = read_block("## The queue")
    assert serve == "vgpud serve &" and len(programs) == 2 and resize.startswith("vgpu slice set train ")
    (short_dir / "train.py").write_text(TRAIN)
    (short_dir / "evaluate").write_text("#!/bin/sh\ntouch evaluated\n")
    (short_dir / "evaluate").chmod(0o755)
    env = write_workstation(short_dir, 'device = "sim"')
    number = re.compile(r"\b12\b")  # of README's job; here the first is number 1
    steps = ["vgpu sim start >/dev/null", serve, UNTIL_UP, *programs, UNTIL_TWO, status, submit]
    steps += [number.sub("1", gang), elastic, number.sub("1", explain), resize, "vgpu slice ls", "vgpu top -n 1"]
    steps += ["touch end", "vgpu job wait 1 2 3", "kill %1", "wait %1"]
    script = "set -m\n" + "\n".join(f"{step}\n[ $? = 0 ] || echo failed: {step!r}" for step in steps)
    said, errors = type_commands(short_dir, env, "-c", script)
    assert "failed" not in said, (said, errors)
    assert (short_dir / "evaluated").exists(), (said, errors)
    assert re.search(r"job 1 \(train\) is pending: no device has 0.5 GPU and 70.2GiB free", errors), errors
    assert "why         no device has 0.5 GPU" in said, said
    assert re.search(r"^train .* 0\.5  0\.5 .*^train .* 0\.25  0\.25 ", said, re.MULTILINE | re.DOTALL), said
