"""What engines send to an OCI runtime: which calls concern us, which bundle and id, every word passed on."""

from __future__ import annotations

import pytest

from tests.runtime.conftest import LOW_LEVEL_STATUS, Front
from tests.runtime.fake_daemon import FakeDaemon, reply

DOCKER = "--root /var/run/docker/runtime-runc/moby --log L --log-format json"
#: command lines that create container c1 of bundle B; {B} is the bundle
CREATES = [
    f"{DOCKER} create --bundle {{B}} --pid-file {{B}}/init.pid c1",
    f"{DOCKER} --systemd-cgroup create --bundle {{B}} --pid-file P --console-socket /tmp/pty/pty.sock c1",
    "--log-format=json --log L create --bundle {B} --pid-file P c1",
    "--systemd-cgroup --root=/r --log-format=json --log=L create --bundle={B} --pid-file=P c1",
    "--cgroup-manager=cgroupfs --log-level error --debug create -b {B} c1",
    "--cgroup-manager systemd --rootless true --criu criu run -b{B} c1",
    "-root /r -log L create -bundle {B} c1",
    "-root /r create -bundle={B} -no-pivot -no-new-keyring c1",
    "create -b={B} --preserve-fds 3 c1",
    "run --detach --keep --no-subreaper --preserve-fds=2 --bundle {B} c1",
    "--unknown create --bundle {B} c1",
    "--unknown value create --bundle {B} c1",
    "--unknown=value -r /x create --bundle {B} c1",
    "create --pidfd-socket S --bundle /nowhere --bundle {B} c1",
    "create --bundle {B} -- c1",
    "run -db {B} c1",
    "run -ddb{B} c1",
    "--log-f json --roo /r run --bund {B} --pid=P --conso S c1",
    "-- create --bundle {B} c1",
    "create --bundle {B} c1 --and whatever follows",
]
#: command lines that do not concern us although the bundle's config.json does
OTHERS = [
    "",
    "--version",
    "--help",
    "features",
    f"{DOCKER} start c1",
    f"{DOCKER} delete --force c1",
    f"{DOCKER} exec --process {{B}}/config.json --detach --pid-file P c1",
    f"{DOCKER} exec c1 create --bundle {{B}} c1",
    f"{DOCKER} kill c1 9",
    f"{DOCKER} state create",
    f"{DOCKER} update --resources - c1",
    f"{DOCKER} checkpoint --image-path I c1",
    "--root create state c1",
    "--log create delete c1",
    "--roo create state c1",
    "events --stats c1",
    "ps --format json c1",
    "spec --bundle {B}",
    "create --bundle {B}",
    "create --bundle {B} --help",
    "create --bundle",
    "create",
]


@pytest.mark.parametrize("line", CREATES)
def test_creation_is_asked_for(front: Front, line: str) -> None:
    front.write()
    words = line.replace("{B}", str(front.bundle)).split()
    with FakeDaemon(front.socket, reply("pass")) as daemon:
        done = front.call(*words, cwd=front.folder)
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    (asked,) = daemon.requests
    assert asked.first == "vgpu-runtime 1"
    assert (asked.op, asked.header["id"], asked.header["bundle"]) == ("create", "c1", str(front.bundle))
    assert asked.header["self"] == str(front.path)
    assert asked.body == (front.bundle / "config.json").read_bytes()
    seen = front.take_notes()
    assert seen and seen.args[1:] == words
    assert seen.facts["pid"] == str(asked.peer_pid), "whoever asked must become the low-level runtime"


@pytest.mark.parametrize("line", OTHERS)
def test_everything_else_passes_without_a_daemon(front: Front, line: str) -> None:
    front.write()
    words = line.replace("{B}", str(front.bundle)).split()
    done = front.call(*words, cwd=front.bundle)
    assert (done.returncode, done.stdout, done.stderr) == (LOW_LEVEL_STATUS, "", "")
    seen = front.take_notes()
    assert seen and seen.args == [str(front.low_level), *words]


def test_no_bundle_is_the_current_directory(front: Front) -> None:
    front.write()
    with FakeDaemon(front.socket, reply("pass")) as daemon:
        done = front.call("create", "c1", cwd=front.bundle)
    assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    assert daemon.requests[0].header["bundle"] == str(front.bundle)


def test_relative_bundle_and_links_are_reported_canonically(front: Front) -> None:
    """The daemon looks at the path through /proc/<pid>/root, where the links of our world would lead astray."""
    front.write()
    (front.folder / "link").symlink_to(front.bundle)
    with FakeDaemon(front.socket, reply("pass")) as daemon:
        for words in (["-b", "bundle"], ["-b", "./link/../bundle/"], ["-b", front.folder / "link"]):
            done = front.call("create", *words, "c1", cwd=front.folder)
            assert done.returncode == LOW_LEVEL_STATUS, done.stderr
    assert {asked.header["bundle"] for asked in daemon.requests} == {str(front.bundle)}


def test_crun_takes_another_configuration(front: Front) -> None:
    """`--config FILE` of crun counts from the current directory; the new one takes its place, not config.json's."""
    front.write(b"{}")
    other = front.folder / "other"
    other.mkdir()
    for words, cwd in (
        (["--config=c.json"], other),
        (["-fc.json"], other),
    ):
        (other / "c.json").write_bytes(b'{"x":"VGPU=1"}'.replace(b'"x":', b'"x":["') + b"")
        (other / "c.json").write_bytes(b'["VGPU=1"]')
        with FakeDaemon(front.socket, reply("config", b"[]")) as daemon:
            done = front.call("run", *words, "-b", front.bundle, "c1", cwd=cwd)
        assert done.returncode == LOW_LEVEL_STATUS, done.stderr
        assert (daemon.requests[0].body, daemon.requests[0].header["bundle"]) == (b'["VGPU=1"]', str(front.bundle))
        assert ((other / "c.json").read_bytes(), (front.bundle / "config.json").read_bytes()) == (b"[]", b"{}")


def test_line_breaks_cannot_forge_a_request(front: Front) -> None:
    front.write()
    with FakeDaemon(front.socket, reply("pass")) as daemon:
        done = front.call("create", "--bundle", front.bundle, "c1\nop stopped")
    assert (done.returncode, daemon.requests, front.take_notes()) == (1, [], None)
    assert "line break" in done.stderr
