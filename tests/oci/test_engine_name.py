"""The names of containers, from what engines keep beside a bundle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vgpud.oci.engine_name import engine_name

ID = "0123456789ab" * 5 + "cdef"
POD = {"io.kubernetes.cri.sandbox-name": "train-0", "io.kubernetes.cri.container-name": "main"}
CRIO = {"io.kubernetes.pod.name": "train-0", "io.kubernetes.container.name": "side"}


def name(root: Path, config: Any, bundle: str = "/run/bundle", container_id: str = ID) -> str:
    raw = config if isinstance(config, bytes) else json.dumps(config).encode()
    return engine_name(raw, container_id, bundle, root)


def docker(root: Path, state: Any, container_id: str = ID) -> dict[str, Any]:
    folder = root / "data/containers" / container_id
    folder.mkdir(parents=True)
    (folder / "config.v2.json").write_bytes(state if isinstance(state, bytes) else json.dumps(state).encode())
    mounts = [{"destination": "/proc", "source": "proc"}]
    mounts += [{"destination": "/etc/hosts", "source": f"/data/containers/{container_id}/hosts"}]
    return {"mounts": mounts}


def test_dockers_name_is_in_its_state(tmp_path: Path) -> None:
    assert name(tmp_path, docker(tmp_path, {"Name": "/train.1"})) == "train.1"


def test_a_mount_of_the_users_is_not_dockers(tmp_path: Path) -> None:
    config = docker(tmp_path, {"Name": "/forged"}, "my-own-folder")
    assert name(tmp_path, config) == ""


def test_podmans_name_is_in_the_list_of_its_containers(tmp_path: Path) -> None:
    folder = tmp_path / "store/overlay-containers"
    (folder / ID / "userdata").mkdir(parents=True)
    known = [{"id": "other", "names": ["no"]}, {"id": ID, "names": ["bad name", "net"]}]
    (folder / "containers.json").write_text(json.dumps(known))
    assert name(tmp_path, {}, f"/store/overlay-containers/{ID}/userdata") == "net"
    assert name(tmp_path, {}, f"/store/overlay-containers/{ID}/userdata/", "another") == ""


@pytest.mark.parametrize(
    ("annotations", "says"),
    [
        (POD, "train-0/main"),
        (CRIO, "train-0/side"),
        ({"nerdctl/name": "web"}, "web"),
        ({"io.kubernetes.cri.sandbox-name": "train-0"}, ""),
        ({"nerdctl/name": "two words"}, ""),
        ({"nerdctl/name": "\x1b[31mred"}, ""),
        ({"nerdctl/name": "x" * 300}, ""),
        ({"nerdctl/name": 5}, "5"),
        (None, ""),
    ],
)
def test_names_of_annotations(tmp_path: Path, annotations: Any, says: str) -> None:
    assert name(tmp_path, {"annotations": annotations}) == says


@pytest.mark.parametrize("state", [b"", b"{", b"[]", b'{"Name": 5}', b'{"Name": "/a b"}', b"[" * 100_000, b"\xff"])
def test_what_is_no_state_has_no_name(tmp_path: Path, state: bytes) -> None:
    assert name(tmp_path, docker(tmp_path, state)) in ("", "5")


@pytest.mark.parametrize(
    "config", [b"", b"[]", {"mounts": None}, {"mounts": [1, {"destination": "/etc/hosts", "source": 7}]}]
)
def test_what_is_no_configuration_has_no_name(tmp_path: Path, config: Any) -> None:
    assert name(tmp_path, config) == ""


def test_a_root_that_is_gone_has_no_names(tmp_path: Path) -> None:
    assert name(tmp_path / "gone", {"annotations": POD}) == "train-0/main"


def test_a_state_that_is_not_a_file_is_not_waited_for(tmp_path: Path) -> None:
    config = docker(tmp_path, {})
    state = tmp_path / "data/containers" / ID / "config.v2.json"
    state.unlink()
    state.mkdir()
    assert name(tmp_path, config) == ""
