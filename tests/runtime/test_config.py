"""config.json: read whatever it is, replaced whole or not at all, left alone where nothing of ours is asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runtime.conftest import CONFIG, LOW_LEVEL_STATUS, PLAIN_CONFIG, Front
from tests.runtime.fake_daemon import FakeDaemon, reply

BODY_BYTES_MAX = 4 << 20
NEW = b'{"new":true}'
#: what makes a config.json our business
MARKS = [
    '{"process":{"env":["VGPU=0.5"]}}',
    '{"process":{"env":["A=b","VGPU_MEM=1g"]}}',
    '{"process":{"env":["VGPU_SLICE=team"]}}',
    '{"annotations":{"dev.vgpu/gpus":"0.5"}}',
    '{"hooks":{"prestart":[{"path":"/usr/bin/nvidia-container-runtime-hook"}]}}',
    '{"hooks":{"prestart":[{"path":"/usr/bin/nvidia-container-toolkit"}]}}',
    '{"linux":{"devices":[{"path":"/dev/nvidia0"}]}}',
    '{"mounts":[{"destination":"/usr/lib/libcuda.so.1"}]}',
]
#: and what does not
NO_MARKS = [
    "{}",
    "",
    "no json at all",
    '{"process":{"env":["XVGPU=0.5","MY_VGPU_MEM=1","vgpu=1"]}}',
    '{"process":{"env":["NVIDIA_VISIBLE_DEVICES=all"]}}',
    '{"annotations":{"org.dev.vgpu/gpus":"0.5"}}',
]


def pad_config(config: bytes, size: int) -> bytes:
    """A configuration of exactly `size` bytes, the interesting part at its end."""
    return b" " * (size - len(config)) + config


@pytest.mark.parametrize("text", MARKS)
def test_asks(front: Front, text: str) -> None:
    front.write(text.encode())
    with FakeDaemon(front.socket, reply("pass")) as daemon:
        assert front.create().returncode == LOW_LEVEL_STATUS
    assert [asked.body for asked in daemon.requests] == [text.encode()]


@pytest.mark.parametrize("text", NO_MARKS)
def test_does_not_ask(front: Front, text: str) -> None:
    front.write(text.encode())
    assert front.create().returncode == LOW_LEVEL_STATUS
    assert (front.bundle / "config.json").read_text() == text


def test_new_config_takes_the_place_of_the_old(front: Front) -> None:
    path = front.write()
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    before = path.stat()
    with FakeDaemon(front.socket, reply("config", NEW)):
        assert front.create(umask=0o077).returncode == LOW_LEVEL_STATUS
    after = path.stat()
    assert path.read_bytes() == NEW
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_ino != before.st_ino, "written in place: a reader may see half of it"
    assert os.listdir(front.bundle) == ["config.json"]


@pytest.mark.parametrize("answer", [reply("pass"), reply("refused", b"no"), b"garbage\n\n"])
def test_otherwise_it_stays_as_it_is(front: Front, answer: bytes) -> None:
    path = front.write()
    before = path.stat()
    with FakeDaemon(front.socket, answer):
        front.create()
    assert (path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) == (
        CONFIG,
        before.st_ino,
        before.st_mtime_ns,
    )
    assert os.listdir(front.bundle) == ["config.json"]


def test_a_link_is_replaced_not_followed(front: Front) -> None:
    """What it points to may be the template of many bundles."""
    template = front.folder / "template.json"
    template.write_bytes(CONFIG)
    (front.bundle / "config.json").symlink_to(template)
    with FakeDaemon(front.socket, reply("config", NEW)) as daemon:
        assert front.create().returncode == LOW_LEVEL_STATUS
    assert daemon.requests[0].body == CONFIG
    assert template.read_bytes() == CONFIG
    assert not (front.bundle / "config.json").is_symlink()
    assert (front.bundle / "config.json").read_bytes() == NEW


def test_a_planted_temporary_file_is_not_written_through(front: Front) -> None:
    """The name is known, so a link under it must not lead our writing elsewhere."""
    front.write()
    victim = front.folder / "victim"
    victim.write_text("untouched")
    words = [str(front.path), "create", "--bundle", str(front.bundle), "c1"]
    plant = f"os.symlink({str(victim)!r}, os.path.join({str(front.bundle)!r}, f'.vgpu-config-{{os.getpid()}}'))"
    program = f"import os; {plant}; os.execv({words[0]!r}, {words!r})"
    with FakeDaemon(front.socket, reply("config", NEW)):
        done = subprocess.run([sys.executable, "-IS", "-c", program], check=False, timeout=60)
    assert done.returncode == LOW_LEVEL_STATUS
    assert victim.read_text() == "untouched"
    assert (front.bundle / "config.json").read_bytes() == NEW
    assert os.listdir(front.bundle) == ["config.json"]


@pytest.mark.parametrize("size", [0, 1, 65535, 65536, 65537, 1 << 20, BODY_BYTES_MAX])
def test_sizes_both_ways(front: Front, size: int) -> None:
    """Up to 4 MiB come and go whole; the answer may be as long."""
    config = pad_config(CONFIG, max(size, len(CONFIG)))
    answer = bytes(i % 251 for i in range(1 << 10)) * (size >> 10) + b"x" * (size % (1 << 10))
    front.write(config)
    with FakeDaemon(front.socket, reply("config", answer)) as daemon:
        done = front.create()
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    assert daemon.requests[0].body == config
    assert (front.bundle / "config.json").read_bytes() == answer


@pytest.mark.parametrize("size", [BODY_BYTES_MAX + 1, BODY_BYTES_MAX + len(CONFIG), (6 << 20) + 17])
def test_longer_is_refused_with_a_text(front: Front, size: int) -> None:
    config = pad_config(CONFIG, size)
    front.write(config)
    done = front.create()
    assert (done.returncode, front.take_notes()) == (1, None)
    assert f"config.json has {size} bytes" in done.stderr
    assert f"the maximum for a container with a slice is {BODY_BYTES_MAX}" in done.stderr


@pytest.mark.parametrize("offset", range(-8, 2))
def test_a_request_across_the_limit_is_not_missed(front: Front, offset: int) -> None:
    mark = b'"VGPU=0.5"'
    front.write(b" " * (BODY_BYTES_MAX + 1 + offset) + mark + b" " * 100_000)
    assert front.create().returncode == 1


def test_longer_without_a_request_passes(front: Front) -> None:
    front.write(pad_config(PLAIN_CONFIG, BODY_BYTES_MAX + 70_000))
    assert front.create().returncode == LOW_LEVEL_STATUS


def test_what_cannot_be_read_is_the_low_level_runtimes_to_say(front: Front) -> None:
    path = front.bundle / "config.json"
    assert front.create().returncode == LOW_LEVEL_STATUS  # missing
    path.mkdir()
    assert front.create().returncode == LOW_LEVEL_STATUS
    path.rmdir()
    path.symlink_to("nowhere")
    assert front.create().returncode == LOW_LEVEL_STATUS
    path.unlink()
    path.symlink_to("config.json")
    assert front.create().returncode == LOW_LEVEL_STATUS
    assert front.call("create", "--bundle", "/nowhere", "c1").returncode == LOW_LEVEL_STATUS
    assert front.call("create", "--bundle", "x" * 5000, "c1").returncode == LOW_LEVEL_STATUS


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_bundle_that_cannot_be_written(front: Front) -> None:
    """By a user without the right, as a rootless engine is: a text, nothing left behind, no start."""
    front.write()
    (front.bundle / "config.json").chmod(0o644)
    front.bundle.chmod(0o555)
    with FakeDaemon(front.socket, reply("config", NEW)):
        front.socket.chmod(0o666)
        done = front.create(user=65534, group=65534, extra_groups=[])
    assert (done.returncode, front.take_notes()) == (1, None)
    assert done.stderr == f"cannot write {front.bundle}/config.json: access denied\n"
    assert os.listdir(front.bundle) == ["config.json"]


def test_what_cannot_be_looked_into_does_not_start(front: Front) -> None:
    """The low-level runtime might read it after all, and start a container that asks for a slice without one."""
    path = front.bundle / "config.json"
    os.mkfifo(path)
    done = front.create()
    assert (done.returncode, front.take_notes()) == (1, None)
    assert "is not a regular file" in done.stderr
    path.unlink()
    front.write()
    words = [str(front.path), "create", "--bundle", str(front.bundle), "c1"]
    limit = "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))"
    program = f"import os, resource; os.closerange(3, 100); {limit}; os.execv({words[0]!r}, {words!r})"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    if "shared" not in done.stderr:  # a dynamic program without descriptors does not even start
        assert (done.returncode, done.stdout) == (1, "")
        assert "Too many open files" in done.stderr
    assert front.take_notes() is None


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_another_users_config_in_our_bundle(front: Front) -> None:
    """Rootless engines: the owner cannot be kept, and need not be."""
    path = front.write()
    path.chmod(0o644)
    front.bundle.chmod(0o777)
    with FakeDaemon(front.socket, reply("config", NEW)):
        front.socket.chmod(0o666)
        done = front.create(user=65534, group=65534, extra_groups=[], cwd="/")
    assert path.read_bytes() == NEW, done.stderr
    assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_unreadable_config(front: Front) -> None:
    front.write().chmod(0o600)
    done = front.create(user=65534, group=65534, extra_groups=[], cwd="/")
    assert "cannot" not in done.stderr
    assert done.returncode != 1 or not done.stderr, "the low-level runtime says it in its own words"


def test_full_disk(front: Front) -> None:
    """A file size limit stands for it: the write fails half-way and nothing of it is left."""
    front.write()
    words = [str(front.path), "create", "--bundle", str(front.bundle), "c1"]
    limit = "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))"
    program = f"import os, resource, signal; {limit}; os.execv({words[0]!r}, {words!r})"
    with FakeDaemon(front.socket, reply("config", b"x" * 5000)):
        command = [sys.executable, "-IS", "-c", program]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, front.take_notes()) == (1, None)
    assert done.stderr.startswith(f"cannot write {front.bundle}/config.json: ")
    assert (front.bundle / "config.json").read_bytes() == CONFIG
    assert os.listdir(front.bundle) == ["config.json"]


def test_docker_and_podman_configurations(front: Front) -> None:
    """With everything that Go's encoder writes: escapes do not hide a request."""
    config = {"process": {"env": ["X=<&>\u2028\u00e9", "VGPU=0.5"]}, "hostname": "h"}
    for text in (json.dumps(config), json.dumps(config, indent=4), json.dumps(config, ensure_ascii=False)):
        front.write(text.encode())
        with FakeDaemon(front.socket, reply("pass")) as daemon:
            assert front.create().returncode == LOW_LEVEL_STATUS
        assert [asked.body for asked in daemon.requests] == [text.encode()]


def test_bundle_directory_of_a_long_path(front: Front) -> None:
    deep = front.folder
    for _ in range(4):
        deep /= "d" * 200
    deep.mkdir(parents=True)
    (deep / "config.json").write_bytes(CONFIG)
    with FakeDaemon(front.socket, reply("config", NEW)) as daemon:
        done = front.call("create", "--bundle", deep, "c1")
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    assert Path(daemon.requests[0].header["bundle"]) == deep
    assert (deep / "config.json").read_bytes() == NEW
