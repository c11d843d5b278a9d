"""Looking into a hostile tree: nothing outside of it is reached, nothing blocks, nothing is read that is no file."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgpud.oci import rootfs
from vgpud.oci.request import RequestError
from vgpud.oci.rootfs import Root


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree beside a secret."""
    (tmp_path / "secret").write_text("secret")
    made = tmp_path / "tree"
    (made / "usr/lib").mkdir(parents=True)
    (made / "usr/lib/file").write_text("contents")
    (made / "lib").symlink_to("usr/lib")
    (made / "absolute").symlink_to("/usr/lib/file")
    return made


def test_symlinks_are_resolved_inside(tree: Path) -> None:
    with Root.at(tree) as root:
        for path in ("/usr/lib/file", "usr/lib/file", "lib/file", "/absolute", "/../../lib/../lib/./file"):
            found = root.find(path)
            assert found is not None, path
            assert found.path == "/usr/lib/file", path
            assert found.is_file


@pytest.mark.parametrize(
    "target", ["../secret", "../../../../../../{top}/secret", "{top}/secret", "/proc/1/root{top}/secret"]
)
def test_nothing_outside_is_reached(tree: Path, target: str) -> None:
    (tree / "out").symlink_to(target.format(top=tree.parent))
    with Root.at(tree) as root:
        assert root.find("/out") is None
        assert root.read("/out", 100) is None
        assert root.names("/out/..") == []


def test_proc_magic_links_lead_nowhere(tmp_path: Path) -> None:
    """Even where the tree is the whole machine: /proc/self/root and descriptors are not followed."""
    with Root.at("/") as root:
        assert root.find("/proc/self/root/etc") is None
        assert root.find("/proc/self/cwd") is None


def test_loops_and_long_names(tree: Path) -> None:
    (tree / "a").symlink_to("b")
    (tree / "b").symlink_to("a")
    with Root.at(tree) as root:
        assert root.find("/a") is None
        assert root.locate("/a/x") == ("/a/x", None)
        assert root.find("/" + "n" * 5000) is None
        assert root.find("/" + "n/" * 5000) is None
        assert root.find("/usr/lib/file/below") is None


def test_nul_in_a_path(tree: Path) -> None:
    with Root.at(tree) as root:
        assert root.find("/usr\0/lib") is None


def test_half_a_surrogate_is_no_name(tree: Path) -> None:
    """JSON can write what no file can be called."""
    with Root.at(tree) as root:
        assert root.find("/usr/\ud800") is None
        assert root.names("/\udfff") == [] and root.read("/\ud800", 1) is None


def test_names_have_a_bound_over_all_directories(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rootfs, "NAMES_MAX", 3)
    with Root.at(tree) as root:
        assert [root.names("/usr/lib") for _ in range(3)] == [["file"]] * 3
        with pytest.raises(RequestError, match="too many files"):
            root.names("/usr/lib")
    (tree / "more").mkdir()
    for name in "abcdefgh":
        (tree / "more" / name).touch()
    with Root.at(tree) as root, pytest.raises(RequestError, match="'/more'"):
        root.names("/more")


def test_locate_goes_as_far_as_there_is_something(tree: Path) -> None:
    (tree / "dangling").symlink_to("nowhere/at/all")
    with Root.at(tree) as root:
        assert root.locate("/lib/x/y") == ("/usr/lib/x/y", None)
        assert root.locate("/dangling") == ("/dangling", None)
        assert root.locate("/")[0] == "/"
        assert root.locate("/none") == ("/none", None)


def test_fifo_device_socket_and_directory_are_not_opened(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tree / "socket"))
    with Root.at(tree) as root:
        for name in ("fifo", "socket", "usr", "none"):
            assert root.read(f"/{name}", 100) is None
            assert root.names(f"/{name}/file") == []
        assert root.names("/fifo") == []


@pytest.mark.root
def test_devices_are_not_opened(tree: Path) -> None:
    try:
        os.mknod(tree / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("device nodes cannot be made here")
    with Root.at(tree) as root:
        assert root.read("/zero", 100) is None


def test_reading_is_bounded(tree: Path) -> None:
    with (tree / "big").open("wb") as file:
        file.truncate(1 << 40)  # a hole
    with Root.at(tree) as root:
        assert root.read("/big", 10) == bytes(10)
        assert root.read("/usr/lib/file", 100) == b"contents"


def test_names_that_are_no_text(tree: Path) -> None:
    name = b"libcuda.so.\xff\xfe"
    (tree / "usr/lib").joinpath(os.fsdecode(name)).touch()
    with Root.at(tree) as root:
        assert os.fsdecode(name) in root.names("/lib")
        found = root.find("/lib/" + os.fsdecode(name))
        assert found is not None
        assert os.fsencode(found.path).endswith(name)


def test_beneath_does_not_follow_absolute_links(tree: Path) -> None:
    """In a volume an absolute link means a place in the container, which is not there to be looked at."""
    with Root.at(tree.parent) as host, host.open_subtree("/tree", beneath=True) as volume:
        assert volume.find("/absolute") is None
        assert volume.find("/lib/file") is not None
        assert volume.find("/..") is None


def test_descriptors_do_not_leak(tree: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with Root.at(tree) as root:
        for path in ("/absolute", "/none", "/usr"):
            root.find(path), root.read(path, 10), root.names(path), root.locate(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.EPERM])
def test_without_openat2_the_daemon_says_so(tree: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(rootfs, "_syscall", lambda *_: -1)
    monkeypatch.setattr(rootfs.ctypes, "get_errno", lambda: code)
    with Root.at(tree) as root, pytest.raises(RequestError, match=r"openat2 is refused here .*Linux 5\.6"):
        root.find("/usr")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150), deadline=None)
@given(
    links=st.dictionaries(
        st.text("abcd", min_size=1, max_size=2),
        st.lists(st.sampled_from(["..", ".", "a", "b", "c", "d", "usr", "", "secret"]), min_size=1, max_size=6).map(
            "/".join
        ),
        max_size=6,
    ),
    path=st.lists(st.sampled_from(["..", "a", "b", "c", "d", "usr", "lib", "secret"]), max_size=6).map("/".join),
)
def test_any_links_stay_inside(tmp_path_factory: pytest.TempPathFactory, links: dict[str, str], path: str) -> None:
    base = tmp_path_factory.mktemp("any")
    (base / "secret").write_text("secret")
    tree = base / "tree"
    (tree / "usr/lib").mkdir(parents=True)
    for name, target in links.items():
        if target and not (tree / name).is_symlink():
            (tree / name).symlink_to(target)
    with Root.at(tree) as root:
        here, found = root.locate("/" + path)
        assert here.startswith("/")
        assert ".." not in here.split("/")
        assert root.read("/" + path, 10) != b"secret"
        if found:
            assert (tree / here.lstrip("/")).resolve().is_relative_to(tree)
