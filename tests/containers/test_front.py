"""The runtime in front of runc takes nothing away: terminals, input, signals, exit codes, docker's commands.

And a daemon that hangs: the user gets a line, and nothing stays behind when it continues.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from benchmarks import engine
from vgpud.cli.demo.private_system import OwnSystem

from .helpers import HALF, Engine, slices, until_free

#: prints what is a terminal, and reads one line from it
ASK_TERMINAL = "test -t 0 && test -t 1 && read line && echo got $line"

#: a child ends by a signal: the first process of a container would not
KILLED = "sh -c 'kill -TERM $$'; exit $?"


def test_input_and_output_pass(docker: engine.Docker, system: OwnSystem) -> None:
    words = docker.run_words("-i", *HALF, engine.BASE, "sh", "-c", "cat; echo aside >&2")
    done = docker.cli(*words, talk="one\ntwo\n")
    assert (done.stdout, done.stderr) == ("one\ntwo\n", "aside\n")


def test_terminal(docker: engine.Docker, system: OwnSystem) -> None:
    """The console's socket is handed over by a descriptor and a path; both pass through us."""
    words = [engine.find("docker") or "docker", *docker.run_words("-it", *HALF, engine.BASE, "sh", "-c", ASK_TERMINAL)]
    program = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]) >> 8)"
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, input="hello\n", env=docker.env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "got hello" in done.stdout


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 42", 42), (KILLED, 143), ("no-such", 127)])
def test_exit_codes(either: Engine, system: OwnSystem, script: str, code: int) -> None:
    assert either.run(*HALF, engine.BASE, "sh", "-c", script).returncode == code


def test_docker_commands(docker: engine.Docker, system: OwnSystem) -> None:
    """Each is a call of the runtime, most of them several; `update` still works on a container that has our mounts."""
    container = docker.start_container(*HALF, "--init", engine.BASE, "sleep", "600")
    assert docker.cli("exec", container, "echo", "hello").stdout == "hello\n"
    assert "sleep" in docker.cli("top", container).stdout
    limits = ("--memory=100m", "--memory-swap=200m")
    for words in (["stats", "--no-stream"], ["update", *limits], ["pause"], ["unpause"], ["kill", "-s", "USR1"]):
        docker.cli(*words, container)
    docker.cli("stop", "-t", "0", container)
    until_free(system)
    docker.cli("start", container)
    assert len(slices(system)) == 1
    docker.cli("rm", "-f", container)
    until_free(system)


@pytest.mark.slow
def test_a_daemon_that_hangs(docker: engine.Docker, system: OwnSystem) -> None:
    """Stopped, not dead: the container is refused with a text after a while. When the daemon continues it finds
    the question, and that no process waits for the answer: no slice stays.
    """
    assert system.daemon
    system.daemon.process.send_signal(signal.SIGSTOP)
    try:
        begin = time.monotonic()
        done = docker.run(*HALF, engine.BASE, "/bin/true")
        took_s = time.monotonic() - begin
        plain = docker.run(engine.BASE, "/bin/true")
    finally:
        system.daemon.process.send_signal(signal.SIGCONT)
    assert (done.returncode, plain.returncode) == (engine.Docker.REFUSED, 0)
    assert "vgpud did not answer within 10 s" in done.stderr
    assert took_s > 9
    assert docker.run(*HALF, engine.BASE, "/bin/true").returncode == 0
    until_free(system)


@pytest.mark.slow
def test_a_container_ends_while_the_daemon_hangs(docker: engine.Docker, system: OwnSystem) -> None:
    """`docker rm` does not wait for vgpud, which learns of it when it continues."""
    container = docker.start_container(*HALF, "--init", engine.BASE, "sleep", "600")
    assert system.daemon
    system.daemon.process.send_signal(signal.SIGSTOP)
    try:
        docker.cli("rm", "-f", container)
        assert docker.cli("ps", "-aq").stdout == ""
    finally:
        system.daemon.process.send_signal(signal.SIGCONT)
    until_free(system)
