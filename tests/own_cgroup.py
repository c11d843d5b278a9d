"""Cgroups of version 2 for tests that put programs into them."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vgpud.host import cgroup_tree


def find_mount() -> Path:
    """Where cgroups can be made here; skips the test elsewhere."""
    mount = cgroup_tree.mount_point()
    if os.geteuid() or mount is None or not cgroup_tree.sees_all(mount) or not os.access(mount, os.W_OK):
        pytest.skip("needs root, and the host's cgroups of version 2 to write to")
    return mount


@contextmanager
def own_cgroup(parent: Path | None = None) -> Iterator[Path]:
    """A new cgroup; its processes must have ended at the end."""
    folder = (parent or find_mount()) / f"vgpu-test-{uuid.uuid4().hex[:12]}"
    folder.mkdir()
    try:
        yield folder
    finally:
        if folder.exists():
            folder.rmdir()


def enter(folder: Path) -> Callable[[], None]:
    """For preexec_fn: the program runs in this cgroup."""

    def move() -> None:
        (folder / "cgroup.procs").write_text("0")

    return move
