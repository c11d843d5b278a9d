"""Cgroups of version 2 as directories, in a copy of what the kernel shows."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vgpud.host import cgroup_tree
from vgpud.host.cgroup_tree import CgroupError

MOUNTS = """
24 1 0:22 / /sys rw - sysfs sysfs rw
30 24 0:26 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu
31 24 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:10 - cgroup2 cgroup2 rw
"""


def test_the_mount_and_the_path_are_those_of_version_2(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    assert cgroup_tree.mount_point(tmp_path) is None, "there is no /proc"
    (tmp_path / "self/mountinfo").write_text(MOUNTS)
    assert cgroup_tree.mount_point(tmp_path) == Path("/sys/fs/cgroup/unified")
    (tmp_path / "self/mountinfo").write_text(MOUNTS.replace("cgroup2", "tmpfs"))
    assert cgroup_tree.mount_point(tmp_path) is None
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_text("4:memory:/a\n0::/b:c/d\n")
    assert cgroup_tree.unified_path(7, tmp_path) == "/b:c/d"
    (tmp_path / "7/cgroup").write_text("4:memory:/a\n")
    assert cgroup_tree.unified_path(7, tmp_path) == cgroup_tree.unified_path(8, tmp_path) == ""


def make_tree(mount: Path, controllers: str) -> Path:
    """mount/a/b/leaf; b has the controller already."""
    leaf = mount / "a/b/leaf"
    leaf.mkdir(parents=True)
    (mount / "cgroup.controllers").write_text(controllers)
    for folder, text in ((mount, "cpu"), (mount / "a", ""), (mount / "a/b", "cpu dmem")):
        (folder / "cgroup.subtree_control").write_text(text)
    return leaf


def test_the_controller_is_handed_down_where_it_is_not(tmp_path: Path) -> None:
    leaf = make_tree(tmp_path, "cpu dmem\n")
    cgroup_tree.hand_down_dmem(tmp_path, leaf)
    found = [(folder / "cgroup.subtree_control").read_text() for folder in (tmp_path, tmp_path / "a", leaf.parent)]
    assert found == ["+dmem", "+dmem", "cpu dmem"]
    assert not (leaf / "cgroup.subtree_control").exists(), "the leaf itself has programs"


def test_a_kernel_without_the_controller_is_left_alone(tmp_path: Path) -> None:
    cgroup_tree.hand_down_dmem(tmp_path, make_tree(tmp_path, "cpu memory\n"))
    assert (tmp_path / "cgroup.subtree_control").read_text() == "cpu"


def test_a_cgroup_that_cannot_hand_it_down_is_named(tmp_path: Path) -> None:
    leaf = make_tree(tmp_path, "dmem")
    (tmp_path / "a/cgroup.subtree_control").unlink()
    (tmp_path / "a/cgroup.subtree_control").mkdir()  # no write succeeds
    with pytest.raises(CgroupError, match=f"cgroup {tmp_path}/a cannot hand the controller dmem down"):
        cgroup_tree.hand_down_dmem(tmp_path, leaf)


def test_what_is_gone_is_no_fault(tmp_path: Path) -> None:
    assert cgroup_tree.remove(tmp_path / "gone")
    assert cgroup_tree.pids_in(tmp_path / "gone") == []
    with pytest.raises(CgroupError, match="cannot be made: No such file"):
        cgroup_tree.make(tmp_path / "gone" / "new")
    with pytest.raises(CgroupError, match="pid 1 cannot be moved"):
        cgroup_tree.move_tree(1, tmp_path / "gone")


def test_a_name_that_another_user_has_taken_is_not_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As below a cgroup that is delegated to them."""
    folder = tmp_path / "a/vgpu-run-1"
    folder.mkdir(parents=True)
    assert list(cgroup_tree.own_folders(tmp_path)) == [folder]
    cgroup_tree.make(folder)
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert list(cgroup_tree.own_folders(tmp_path)) == []
    with pytest.raises(CgroupError, match="another user's"):
        cgroup_tree.make(folder)


def test_the_controller_is_taken_back_with_the_last_own_cgroup(tmp_path: Path) -> None:
    """The cgroup in which `vgpu run` was started can have processes again."""
    control = tmp_path / "cgroup.subtree_control"
    control.write_text("dmem")
    first, last, probe = (tmp_path / name for name in ("vgpu-run-1", "vgpu-run-2", "vgpu-probe-3"))
    for folder in (first, last):
        folder.mkdir()
    assert cgroup_tree.remove(first)
    assert control.read_text() == "dmem", "another needs it"
    assert cgroup_tree.remove(last)
    assert control.read_text() == "-dmem"
    control.write_text("dmem")
    probe.mkdir()
    assert cgroup_tree.remove(probe)
    assert control.read_text() == "dmem"
