"""Hook mode: what the low-level runtime runs when a container starts and when it is gone."""

from __future__ import annotations

import json
import os
import subprocess
import time

import pytest

from tests.runtime.conftest import Front
from tests.runtime.fake_daemon import FakeDaemon, reply

STATE = {
    "ociVersion": "1.0.2",
    "id": "c1",
    "status": "created",
    "pid": 4242,
    "bundle": "/run/b",
    "annotations": {"id": "not this one", "dev.vgpu/gpus": "0.5"},
}
TEXT = json.dumps(STATE)
NO_STATES = [
    "",
    "{",
    "[]",
    "{}",
    '"id"',
    "null",
    '{"id":"c1"}',
    '{"bundle":"/b"}',
    '{"id":1,"bundle":"/b"}',
    '{"id":"c1","bundle":null}',
    '{"id":"c1" "bundle":"/b"}',
    '{"id":"c\\u0000","bundle":"/b"}',
    '{"x":{"id":"c1","bundle":"/b"}}',
    '{"id":"' + "x" * 5000 + '","bundle":"/b"}',
    "\x00" * 100,
]


@pytest.mark.parametrize("op", ["started", "stopped"])
def test_each_operation_is_reported(front: Front, op: str) -> None:
    with FakeDaemon(front.socket, reply("ok")) as daemon:
        done = front.hook(op, TEXT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    (asked,) = daemon.requests
    expected = {"op": op, "id": "c1", "bundle": "/run/b", "self": str(front.path), "body": str(len(TEXT))}
    assert asked.header == expected
    assert asked.body == TEXT.encode()


@pytest.mark.parametrize(
    "state",
    [
        json.dumps(STATE, indent=2),
        json.dumps(dict(reversed(STATE.items()))),
        '{"a":[{"id":"no","x":"]}\\""},[]],"b":-1.5e3,"c":true,"id":"c1","' + "k" * 200 + '":{},"bundle":"/run/b"}',
        ' \t\r\n{ "id" : "c1" , "bundle" : "\\/run\\u002fb" }trailing',
    ],
)
def test_shapes_of_the_state(front: Front, state: str) -> None:
    with FakeDaemon(front.socket, reply("ok")) as daemon:
        done = front.hook("started", state)
    assert done.returncode == 0, done.stderr
    assert (daemon.requests[0].header["id"], daemon.requests[0].header["bundle"]) == ("c1", "/run/b")


def test_other_characters_in_the_bundle(front: Front) -> None:
    state = json.dumps({**STATE, "bundle": '/b "\u00e9\u4e2d\U0001f680'})
    with FakeDaemon(front.socket, reply("ok")) as daemon:
        assert front.hook("started", state).returncode == 0
    assert daemon.requests[0].header["bundle"] == '/b "\u00e9\u4e2d\U0001f680'


def test_anything_around_it(front: Front) -> None:
    """createRuntime hooks inherit the runtime's world, poststop hooks an almost empty one."""
    with FakeDaemon(front.socket, reply("ok")) as daemon:
        for options in ({"env": {}}, {"cwd": "/"}, {"env": {"PATH": ""}, "cwd": "/proc"}):
            assert front.hook("started", TEXT, **options).returncode == 0
    assert len(daemon.requests) == 3


def test_started_is_refused(front: Front) -> None:
    """The container does not start, and what is on stderr reaches the user through the low-level runtime."""
    with FakeDaemon(front.socket, reply("refused", b"no capacity: asked 0.5, free 0.25")):
        done = front.hook("started", TEXT)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no capacity: asked 0.5, free 0.25\n")


def test_started_is_refused_without_a_word(front: Front) -> None:
    with FakeDaemon(front.socket, reply("refused")):
        done = front.hook("started", TEXT)
    assert done.returncode == 1
    assert "did not say why" in done.stderr


def test_started_without_a_good_answer(front: Front) -> None:
    with FakeDaemon(front.socket, b"garbage\n\n"):
        done = front.hook("started", TEXT)
    assert done.returncode == 1
    assert "vgpud" in done.stderr


def test_started_without_a_daemon(front: Front) -> None:
    done = front.hook("started", TEXT)
    assert done.returncode == 1
    assert "vgpud is not running" in done.stderr


@pytest.mark.parametrize("state", NO_STATES)
def test_no_state(front: Front, state: str) -> None:
    with FakeDaemon(front.socket, reply("ok")) as daemon:
        started, stopped = front.hook("started", state), front.hook("stopped", state)
    assert (started.returncode, stopped.returncode, daemon.requests) == (1, 0, [])
    assert "container state" in started.stderr
    assert (stopped.stdout, stopped.stderr) == ("", "")


@pytest.mark.parametrize("answer", [reply("refused", b"no"), b"garbage\n\n", b"", reply("ok")])
def test_stopped_never_fails(front: Front, answer: bytes) -> None:
    """A container must be deletable whatever state vgpud is in; it finds out by itself, too."""
    with FakeDaemon(front.socket, answer):
        done = front.hook("stopped", TEXT)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_stopped_without_a_daemon(front: Front) -> None:
    assert front.hook("stopped", TEXT).returncode == 0
    front.configure("socket = nowhere", "nonsense")
    assert front.hook("stopped", TEXT).returncode == 0


def test_stopped_is_reported_to_a_daemon_that_comes_back(front: Front) -> None:
    daemon = FakeDaemon(front.socket)
    daemon.answer = lambda asked: reply("ok") if len(daemon.requests) > 1 else b""
    with daemon:
        assert front.hook("stopped", TEXT).returncode == 0
    assert len(daemon.requests) == 2


def test_stopped_waits_less_than_started(front: Front) -> None:
    """It delays the deletion. The two are compared, not measured: a machine may be slow."""
    times = {}
    for op in ("stopped", "started"):
        begin = time.monotonic()
        front.hook(op, TEXT)
        times[op] = time.monotonic() - begin
    assert times["stopped"] < times["started"]


@pytest.mark.parametrize("front", ["shipped"], indirect=True)
def test_state_that_never_ends(front: Front) -> None:
    read_end, write_end = os.pipe()
    with FakeDaemon(front.socket, reply("ok")) as daemon:
        done = front.call("vgpu-hook", "stopped", stdin=read_end)
    os.close(read_end)
    os.close(write_end)
    assert (done.returncode, daemon.requests) == (0, [])


@pytest.mark.parametrize("words", [[], ["paused"], ["started", "now"], ["--help"]])
def test_usage(front: Front, words: list[str]) -> None:
    done = front.call("vgpu-hook", *words, input=TEXT)
    assert done.returncode == 1
    assert "usage" in done.stderr


def test_bad_configuration_is_named(front: Front) -> None:
    front.configure("sokcet = /x")
    done = front.hook("started", TEXT)
    assert done.returncode == 1
    assert "sokcet" in done.stderr


def test_closed_standard_descriptors(front: Front) -> None:
    with FakeDaemon(front.socket, reply("ok")) as daemon:
        words = [str(front.path), "vgpu-hook", "stopped"]
        closing = "import os, sys; os.closerange(0, 3); os.execv(sys.argv[1], sys.argv[1:])"
        done = subprocess.run(["python3", "-IS", "-c", closing, *words], check=False, timeout=60)
    assert (done.returncode, daemon.requests) == (0, [])
