"""`vgpud serve --in-container`: what is missing of the host is named by the flag that brings it (a made-up /proc)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.daemon.node import Node
from vgpud import config as configuration
from vgpud import paths, serve
from vgpud.errors import ConfigError
from vgpud.host import container_checks
from vgpud.v1alpha1 import vgpud_pb2 as pb

HOST = {"pid": 4026531836, "cgroup": 4026531835, "user": 4026531837, "mnt": 1}
OWN = {"pid": 4026532001, "cgroup": 4026532002, "user": 4026532003, "mnt": 2}
RUN = Path("/run/vgpud")
ROOT_LINE = "100 99 0:50 / / rw,relatime - overlay overlay rw"
RUN_LINE = "101 100 0:21 /vgpud /run/vgpud rw - tmpfs tmpfs rw"


class Proc:
    """A folder in the place of /proc."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "self").mkdir(parents=True)
        self.namespaces("self", {**HOST, "mnt": OWN["mnt"]})
        (path / str(os.getppid())).mkdir()
        (path / str(os.getppid()) / "root").symlink_to("/")
        self.mounts(ROOT_LINE, RUN_LINE)

    def namespaces(self, who: str, inodes: dict[str, int]) -> None:
        folder = self.path / who / "ns"
        folder.mkdir(parents=True, exist_ok=True)
        for kind, inode in inodes.items():
            (folder / kind).unlink(missing_ok=True)
            (folder / kind).symlink_to(f"{kind}:[{inode}]")

    def mounts(self, *lines: str) -> None:
        (self.path / "self" / "mountinfo").write_text("\n".join(lines) + "\n")

    def missing(self, *folders: Path) -> str:
        """The flags that the refusal names; "" when there is none."""
        try:
            container_checks.check(folders or (RUN,), self.path)
        except ConfigError as error:
            return str(error).partition("add ")[2]
        return ""


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    return Proc(tmp_path / "proc")


def test_the_hosts_namespaces_and_folders_are_enough(proc: Proc) -> None:
    assert proc.missing() == ""


@pytest.mark.parametrize(
    ("kind", "flag"), [("pid", "--pid=host"), ("cgroup", "--cgroupns=host"), ("user", "--userns=host")]
)
def test_a_namespace_of_its_own_is_named_by_its_flag(proc: Proc, kind: str, flag: str) -> None:
    proc.namespaces("self", {kind: OWN[kind]})
    assert proc.missing() == flag


def test_a_host_that_is_a_container_itself_is_known_by_its_first_process(proc: Proc) -> None:
    inner = {kind: inode + 7 for kind, inode in HOST.items()}
    proc.namespaces("1", inner)
    proc.namespaces("self", {**inner, "mnt": OWN["mnt"]})
    assert proc.missing() == ""
    proc.namespaces("1", {**inner, "mnt": OWN["mnt"]})  # the first process is the container's own
    assert proc.missing() == "--pid=host, --cgroupns=host, --userns=host"


def test_processes_that_cannot_be_looked_at(proc: Proc) -> None:
    (proc.path / str(os.getppid()) / "root").unlink()
    assert proc.missing() == container_checks.LOOKING


@pytest.mark.parametrize(
    ("line", "shared"),
    [
        (RUN_LINE, True),
        ("101 100 8:1 /run/vgpud /run/vgpud rw - ext4 /dev/sda1 rw", True),
        ("101 100 0:21 / /run rw - tmpfs tmpfs rw", True),  # all of /run
        ("101 100 8:1 /@run/vgpud /run/vgpud rw - btrfs /dev/sda1 rw", True),
        ("101 100 8:1 /var/lib/docker/volumes/run/_data /run/vgpud rw - ext4 /dev/sda1 rw", False),
        ("101 100 8:1 /srv/elsewhere /run/vgpud rw - ext4 /dev/sda1 rw", False),
        ("101 100 8:1 /run/vgpud /run/vgpud2 rw - ext4 /dev/sda1 rw", False),
    ],
)
def test_a_folder_is_the_hosts_when_it_is_mounted_under_its_name(proc: Proc, line: str, shared: bool) -> None:
    proc.mounts(ROOT_LINE, line)
    assert proc.missing() == ("" if shared else "-v /run/vgpud:/run/vgpud")


def test_all_that_is_missing_is_in_one_line(proc: Proc) -> None:
    proc.mounts(ROOT_LINE, r"101 100 8:1 /my\040run /my\040run rw - ext4 /dev/sda1 rw")
    proc.namespaces("self", {"pid": OWN["pid"]})
    found = proc.missing(RUN, Path("/my run"), Path("/var/lib/vgpud"))
    assert found == "--pid=host, -v /run/vgpud:/run/vgpud, -v /var/lib/vgpud:/var/lib/vgpud"


def test_hooks_are_the_hosts_files(tmp_path: Path) -> None:
    """A daemon in a container (its root is not that of the host's first process) does not name its own files."""
    installed = Path("/usr/lib/vgpu/current/vgpu-runtime")
    assert paths.front(tmp_path) == installed
    for here in (Path("/"), tmp_path / "not to be looked at"):
        assert paths.front(here) == (installed if installed.exists() else paths.lib_dir() / "vgpu-runtime")


@pytest.mark.parametrize(("line", "front"), [("", paths.INSTALLED_FRONT), ('front = "/opt/front"', Path("/opt/front"))])
def test_in_a_container_hooks_need_no_look_at_the_hosts_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, front: Path
) -> None:
    """Where pid 1's root may not be opened, too: then the package's own file would be named, which no node has."""
    served: list[configuration.Config] = []
    monkeypatch.setattr(serve, "in_container_check", lambda folders: None)
    monkeypatch.setattr(serve, "serve", lambda config, path, overrides: served.append(config))
    monkeypatch.setattr(paths, "front", lambda: paths.lib_dir() / "vgpu-runtime")
    (tmp_path / "vgpud.toml").write_text(line)
    words = ["serve", "--config", str(tmp_path / "vgpud.toml"), "--in-container"]
    assert CliRunner().invoke(serve.main, words, standalone_mode=False).exception is None
    assert [Path(config.front) for config in served] == [front]


#: vgpud in a pid namespace of its own; ends with the one that started it, and as it ends
OWN_PIDS = """
import ctypes, os, signal, sys
libc = ctypes.CDLL(None)
assert libc.unshare(0x20000000) == 0
pid = os.fork()
if pid:
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
libc.prctl(1, signal.SIGKILL)
from vgpud.serve import main
main()
"""


@pytest.mark.root
def test_in_a_pid_namespace_of_its_own_the_daemon_says_that_it_sees_no_process(node: Node) -> None:
    """What the driver lists are other processes' pids there."""
    for program, unwatched in ((node.program, False), (["-c", OWN_PIDS], True)):
        node.program = program
        node.start()
        assert node.nodes.GetNode(pb.GetNodeRequest()).node.unwatched == unwatched
        assert ("device.unwatched" in node.event_kinds()) == unwatched
        assert node.stop() == 0
