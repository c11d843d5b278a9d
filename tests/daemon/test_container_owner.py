"""Whose a container's slice is, on a real daemon with a stand-in engine."""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.engine import ID, OTHER, Engine
from tests.daemon.node import Node
from vgpud.host import processes
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root's engine has containers of other users")
USER = next(entry for entry in pwd.getpwall() if entry.pw_uid)


@pytest.fixture
def site(node: Node) -> Node:
    """A daemon that believes annotations."""
    folder = node.directory / "nvidia"
    folder.mkdir()
    devices = [{"name": str(index), "containerEdits": {"env": [f"DEVICE={index}"]}} for index in range(2)]
    (folder / "nvidia.json").write_text(
        json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": devices})
    )
    node.settings |= {"nvidia_cdi_dirs": f'["{folder}"]', "container_owner": '"annotation"', "slices_per_user_max": "1"}
    return node.start()


@pytest.fixture
def fake_engine(site: Node) -> Iterator[Engine]:
    made = Engine(str(site.runtime / "runtime.sock"), site.directory / "bundles")
    yield made
    made.close()


def owners(site: Node) -> dict[str, int]:
    return {one.name: one.owner_uid for one in site.slices.ListSlices(pb.ListSlicesRequest()).slices}


@pytest.mark.parametrize("word", [USER.pw_name, str(USER.pw_uid)])
def test_the_user_whom_the_annotation_names(fake_engine: Engine, site: Node, word: str) -> None:
    fake_engine.annotations = {"dev.vgpu/user": word}
    status, body, _ = fake_engine.create("VGPU=0.25")
    assert status == "config", body
    assert owners(site) == {f"c-{ID[:12]}": USER.pw_uid}


def test_without_one_it_is_the_engines(fake_engine: Engine, site: Node) -> None:
    assert fake_engine.create("VGPU=0.25")[0] == "config"
    assert owners(site) == {f"c-{ID[:12]}": 0}


def test_a_removed_user(fake_engine: Engine, site: Node) -> None:
    """A line, and no slice of another owner."""
    for word in ("no-such-user", "4000000000"):
        fake_engine.annotations = {"dev.vgpu/user": word}
        status, body, _ = fake_engine.create("VGPU=0.25")
        why = f"dev.vgpu/user={word}: this machine has no such user: name one that it has, or none"
        assert (status, body.decode()) == ("refused", why)
    assert owners(site) == {}


def test_it_has_its_users_bounds(fake_engine: Engine, site: Node) -> None:
    fake_engine.annotations = {"dev.vgpu/user": USER.pw_name}
    assert fake_engine.create("VGPU=0.25")[0] == "config"
    status, body, _ = fake_engine.create("VGPU=0.25", container_id=OTHER)
    assert status == "refused" and f"uid {USER.pw_uid} has 1 slices".encode() in body, body


def test_the_user_of_a_login_session(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    for text, uid in (("1000", 1000), ("0", 0), ("4294967295", None), ("", None), ("x", None)):
        (tmp_path / "7" / "loginuid").write_text(text)
        assert processes.login_uid(7, tmp_path) == uid
    assert processes.login_uid(8, tmp_path) is None
