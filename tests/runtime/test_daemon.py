"""The daemon away, restarting, hanging, or sending nonsense: a container with a slice never starts without it, and the
line that the user sees says what to do.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.runtime.conftest import LOW_LEVEL_STATUS, PLAIN_CONFIG, Front
from tests.runtime.fake_daemon import Asked, FakeDaemon, reply

NEW = b'{"new":true}'
#: a daemon's pod that is replaced on a busy node
AWAY_S = 12.0
GARBAGE = {
    "http": b"HTTP/1.1 400 Bad Request\r\n\r\n",
    "zeros": bytes(5000),
    "no status": b"vgpu-runtime 1\nbody 0\n\n",
    "no body": b"vgpu-runtime 1\nstatus pass\n\n",
    "unknown status": b"vgpu-runtime 1\nstatus maybe\nbody 0\n\n",
    "empty status": b"vgpu-runtime 1\nstatus \nbody 0\n\n",
    "negative": b"vgpu-runtime 1\nstatus config\nbody -1\n\n",
    "no number": b"vgpu-runtime 1\nstatus config\nbody 1x\n\n ",
    "empty length": b"vgpu-runtime 1\nstatus config\nbody \n\n",
    "line without value": b"vgpu-runtime 1\nstatus\nbody 0\n\n",
    "no lines": b"vgpu-runtime 1\n\n\n\n",
    "more than announced": reply("config", NEW) + b"x",
    "endless header": b"vgpu-runtime 1\n" + b"x y\n" * 3000,
    "endless line": b"vgpu-runtime 1" + b"1" * 6000,
    "answer to another question": reply("ok"),
}


def refusal(front: Front, *words: str) -> str:
    """Creates, checks that nothing was started, and returns the one line that was said."""
    done = front.create(*words)
    assert (done.returncode, done.stdout, front.take_notes()) == (1, "", None)
    assert done.stderr.endswith("\n")
    assert done.stderr.count("\n") == 1
    return done.stderr.strip()


def test_refused(front: Front) -> None:
    front.write()
    text = b"VGPU=9 is more than this node has (2 devices): ask for at most 2"
    with FakeDaemon(front.socket, reply("refused", text)):
        assert refusal(front) == text.decode()


def test_refused_with_several_lines_and_control_characters(front: Front) -> None:
    front.write()
    with FakeDaemon(front.socket, reply("refused", b"no\tcapacity\nfor \x1b[31mGPU\xc3\xa9\n\n")):
        assert refusal(front) == "no capacity for  [31mGPU\u00e9"


def test_refused_without_a_word_and_with_too_many(front: Front) -> None:
    front.write()
    with FakeDaemon(front.socket, reply("refused")):
        assert "did not say why" in refusal(front)
    with FakeDaemon(front.socket, reply("refused", b"x" * 100_000)):
        assert refusal(front).startswith("xxx")


def test_no_socket(front: Front) -> None:
    front.write()
    line = refusal(front)
    assert f"no socket at {front.socket}" in line
    assert "systemctl start vgpud" in line


@pytest.mark.parametrize("front", ["sanitized"], indirect=True)
def test_socket_that_no_daemon_serves(front: Front) -> None:
    front.write()
    with FakeDaemon(front.socket):
        pass
    line = refusal(front)
    assert f"connection refused at {front.socket}" in line
    assert "systemctl start vgpud" in line


def test_without_a_request_no_daemon_is_needed(front: Front) -> None:
    front.write(PLAIN_CONFIG)
    assert front.create().returncode == LOW_LEVEL_STATUS


@pytest.mark.parametrize("stale", [False, True], ids=["no socket", "stale socket"])
def test_daemon_that_comes_while_we_wait(front: Front, stale: bool) -> None:
    front.write()
    daemon = FakeDaemon(front.socket, reply("config", NEW))
    if stale:
        with FakeDaemon(front.socket):
            pass
    later = threading.Timer(0.3, daemon.start)
    later.start()
    try:
        done = front.create()
    finally:
        later.join()
        daemon.stop()
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    assert (front.bundle / "config.json").read_bytes() == NEW


@pytest.mark.slow
@pytest.mark.parametrize("front", ["shipped"], indirect=True)
def test_daemon_that_is_away_for_an_upgrade(front: Front) -> None:
    """A container that fails in these seconds would be a failure of its pod: neither the creation nor the hook at the
    start gives up."""
    front.write()
    with FakeDaemon(front.socket):
        pass  # the socket is left behind, as by a daemon that has ended
    daemon = FakeDaemon(front.socket)
    daemon.answer = lambda asked: reply("config", NEW) if asked.op == "create" else reply("ok")
    later = threading.Timer(AWAY_S, daemon.start)
    later.start()
    with ThreadPoolExecutor(2) as pool:
        created = pool.submit(front.create)
        started = pool.submit(front.hook, "started", '{"id": "c1", "bundle": "/b"}')
    later.join()
    daemon.stop()
    assert created.result().returncode == LOW_LEVEL_STATUS, created.result().stderr
    assert started.result().returncode == 0, started.result().stderr


@pytest.mark.parametrize("stale", [False, True], ids=["no socket", "stale socket"])
def test_a_container_that_vgpud_had_waits_for_longer(front: Front, stale: bool) -> None:
    """An engine that starts it again gives it up when it is refused."""
    front.write()
    (front.socket.parent / "containers" / "18c2-other").mkdir(parents=True)
    (front.socket.parent / "containers" / "18c3-c1").mkdir()
    daemon = FakeDaemon(front.socket, reply("config", NEW))
    if stale:
        with FakeDaemon(front.socket):
            pass
    later = threading.Timer(4, daemon.start)  # longer than a new one waits for a socket that refuses
    later.start()
    try:
        done = front.create()
    finally:
        later.join()
        daemon.stop()
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    assert (front.bundle / "config.json").read_bytes() == NEW


@pytest.mark.parametrize("half", [b"", b"vgpu-run", reply("config", NEW)[:25], reply("config", NEW)[:-3]])
def test_daemon_that_restarts_meanwhile(front: Front, half: bytes) -> None:
    """Its connection ends without a whole answer; the same question is put to the next one."""
    front.write()
    daemon = FakeDaemon(front.socket)

    def first_half(request: Asked) -> bytes:
        return half if len(daemon.requests) < 3 else reply("config", NEW)

    daemon.answer = first_half
    with daemon:
        done = front.create()
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    assert len(daemon.requests) == 3
    assert len({asked.body for asked in daemon.requests}) == 1
    assert (front.bundle / "config.json").read_bytes() == NEW


def test_socket_that_is_gone_for_a_moment_after_the_daemon_was_there(front: Front) -> None:
    front.write()
    second = FakeDaemon(front.socket, reply("config", NEW))

    def die(request: Asked) -> bytes:
        front.socket.unlink()
        threading.Timer(1.5, second.start).start()  # longer than a socket that never was there is waited for
        return b""

    with FakeDaemon(front.socket, die):
        done = front.create()
    second.stop()
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr


@pytest.mark.parametrize("front", ["sanitized"], indirect=True)
def test_daemon_that_always_dies(front: Front) -> None:
    front.write()
    with FakeDaemon(front.socket, b"") as daemon:
        line = refusal(front)
    assert "without an answer" in line
    assert len(daemon.requests) > 1


@pytest.mark.parametrize("name", list(GARBAGE))
def test_garbage(front: Front, name: str) -> None:
    front.write()
    with FakeDaemon(front.socket, GARBAGE[name]) as daemon:
        line = refusal(front)
    assert "is not vgpud" in line
    assert len(daemon.requests) == 1, "nonsense is not asked for again"


def test_other_version(front: Front) -> None:
    front.write()
    with FakeDaemon(front.socket, reply("pass", greeting="vgpu-runtime 2")):
        assert "vgpu setup" in refusal(front)


def test_answer_that_is_too_long(front: Front) -> None:
    front.write()
    with FakeDaemon(front.socket, b"vgpu-runtime 1\nstatus config\nbody 4194305\n\n"):
        assert "longer than 4194304 bytes" in refusal(front)


def test_lines_that_a_newer_daemon_adds_are_passed_over(front: Front) -> None:
    front.write()
    with FakeDaemon(front.socket, b"vgpu-runtime 1\nhint new\nstatus config\nbody 2\nnode x y\n\n{}"):
        assert front.create().returncode == LOW_LEVEL_STATUS
    assert (front.bundle / "config.json").read_bytes() == b"{}"


def test_answer_in_many_small_pieces(front: Front) -> None:
    """Whatever the pieces, and without the end of file: the announced length ends it."""
    front.write()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(front.socket))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        while connection.recv(1 << 16):
            pass
        for byte in reply("config", NEW):
            connection.send(bytes([byte]))
        connection.recv(1)  # ends when the front closes
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    done = front.create()
    thread.join(60)
    listener.close()
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    assert (front.bundle / "config.json").read_bytes() == NEW


def test_refusal_before_everything_is_read(front: Front) -> None:
    """The daemon may answer at the header and close: our half-sent body must not hide its answer."""
    front.write(b'"VGPU=1"' + b" " * (3 << 20))
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(front.socket))
    listener.listen()

    def serve() -> None:
        connection, _ = listener.accept()
        connection.recv(100)
        connection.sendall(reply("refused", b"too large for me"))
        connection.close()

    thread = threading.Thread(target=serve)
    thread.start()
    line = refusal(front)
    thread.join(60)
    listener.close()
    assert line == "too large for me"


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_socket_of_a_group_that_the_caller_is_not_in(front: Front) -> None:
    front.write().chmod(0o644)
    with FakeDaemon(front.socket, reply("pass")) as daemon:
        front.socket.chmod(0o600)
        done = front.create(user=65534, group=65534, extra_groups=[], cwd="/")
    assert (done.returncode, daemon.requests) == (1, [])
    assert "access denied to user 65534" in done.stderr


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_another_users_daemon_is_not_believed(front: Front) -> None:
    """Its answer would be a configuration that root's low-level runtime carries out."""
    front.write()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(front.socket))
        os.seteuid(65534)
        try:
            listener.listen()
        finally:
            os.seteuid(0)
        assert "neither to root nor to user 0" in refusal(front)
        with listener.accept()[0] as connection:
            assert connection.recv(100) == b"", "it was told nothing"


@pytest.mark.slow
@pytest.mark.parametrize("front", ["shipped"], indirect=True)
def test_daemon_that_hangs(front: Front) -> None:
    """There is an end to waiting, with a text. The other ways to hang: tests/c/test_runtime.c, with less patience."""
    front.write()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(front.socket))
    listener.listen()
    begin = time.monotonic()
    threading.Thread(target=_hang, args=(listener, reply("config", NEW)[:-1])).start()
    line = refusal(front)
    listener.close()
    assert "did not answer within 10 s" in line
    assert 9 < time.monotonic() - begin < 50


def _hang(listener: socket.socket, answer: bytes) -> None:
    connection, _ = listener.accept()
    while connection.recv(1 << 16):
        pass
    connection.sendall(answer)
    connection.settimeout(60)
    with connection:
        connection.recv(1)


def test_many_at_once(front: Front, tmp_path: Path) -> None:
    """Sixteen creations side by side get each their own answer."""
    bundles = [tmp_path / str(number) for number in range(16)]
    for bundle in bundles:
        bundle.mkdir()
        (bundle / "config.json").write_text(f'"VGPU={bundle.name}"')
    results: dict[str, int] = {}

    def one(bundle: Path) -> None:
        results[bundle.name] = front.call("create", "--bundle", bundle, f"c{bundle.name}").returncode

    with FakeDaemon(front.socket, lambda asked: reply("config", asked.body + asked.header["id"].encode())):
        threads = [threading.Thread(target=one, args=(bundle,)) for bundle in bundles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert set(results.values()) == {LOW_LEVEL_STATUS}
    for bundle in bundles:
        assert (bundle / "config.json").read_text() == f'"VGPU={bundle.name}"c{bundle.name}'
