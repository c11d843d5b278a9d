"""`vgpu-runtime vgpu-slurm`: what Slurm's plugin and scripts run when a step begins and ends."""

from __future__ import annotations

import pytest

from tests.runtime.conftest import Front
from tests.runtime.fake_daemon import FakeDaemon, reply

PAIRS = ("job=12", "step=0", "gpus=0,1", "mem=")
LINES = "".join(f"{pair}\n" for pair in PAIRS).encode()


@pytest.mark.parametrize("word", ["begin", "end"])
def test_lines_there_and_back(front: Front, word: str) -> None:
    with FakeDaemon(front.socket, reply("ok", b"LD_PRELOAD=/a b\nX=\n")) as daemon:
        done = front.call("vgpu-slurm", word, *PAIRS)
    assert (done.returncode, done.stdout, done.stderr) == (0, "LD_PRELOAD=/a b\nX=\n", "")
    (asked,) = daemon.requests
    assert (asked.op, asked.body) == (f"step-{word}", LINES)


def test_a_refusal_is_one_line(front: Front) -> None:
    with FakeDaemon(front.socket, reply("refused", b"shard:2000 is too much")):
        done = front.call("vgpu-slurm", "begin", *PAIRS)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "shard:2000 is too much\n")


@pytest.mark.parametrize("answer", [reply("pass"), reply("config", b"{}"), b"HTTP/1.1 400\r\n\r\n"])
def test_another_answer(front: Front, answer: bytes) -> None:
    with FakeDaemon(front.socket, answer):
        done = front.call("vgpu-slurm", "begin", *PAIRS)
    assert done.returncode == 1 and "is not vgpud" in done.stderr and done.stdout == ""


def test_nothing_answers(front: Front) -> None:
    done = front.call("vgpu-slurm", "begin", *PAIRS)
    assert done.returncode == 1 and "run the job without asking for a GPU" in done.stderr
    assert "no socket at" in front.call("vgpu-slurm", "end", *PAIRS).stderr


@pytest.mark.parametrize(
    "arguments", [(), ("start",), ("begin", "job"), ("begin", "job=1\nuid=0"), ("begin", "x=" + "y" * 5000)]
)
def test_wrong_arguments(front: Front, arguments: tuple[str, ...]) -> None:
    with FakeDaemon(front.socket, reply("ok")) as daemon:
        done = front.call("vgpu-slurm", *arguments)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and not daemon.requests


def test_a_wrong_configuration(front: Front) -> None:
    front.configure("socket = relative")
    assert "must be an absolute path" in front.call("vgpu-slurm", "begin", *PAIRS).stderr
