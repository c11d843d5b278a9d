"""Whom a container names as its user, and what of it a site believes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vgpud.oci.owner import BY_ANNOTATION, BY_ENGINE, BY_LABEL, BY_SESSION, find_owner_name
from vgpud.oci.request import Limits, RequestError, parse_request

ID = "0123456789abcdef" * 4


def find_name(root: Path, way: str, *, user: str = "", label: str = "", from_image: bool = False) -> tuple[str, str]:
    """Of a container of docker's, whose directory has its labels."""
    folder = root / "containers" / ID
    folder.mkdir(parents=True, exist_ok=True)
    labels = {"dev.vgpu.user": label} if label else {}
    (folder / "config.v2.json").write_text(json.dumps({"Config": {"Labels": labels}}))
    mounts = [{"destination": "/etc/hosts", "source": f"/containers/{ID}/hosts"}]
    config: dict[str, Any] = {"mounts": mounts, "annotations": {"dev.vgpu/user": user} if user else {}}
    return find_owner_name(json.dumps(config).encode(), ID, root, way, from_image=from_image)


def test_each_way_believes_what_stands_before_it(tmp_path: Path) -> None:
    assert find_name(tmp_path, BY_ANNOTATION, user=" ann ") == ("ann", "dev.vgpu/user")
    assert find_name(tmp_path, BY_LABEL, user="ann", label="bob") == ("ann", "dev.vgpu/user")
    assert find_name(tmp_path, BY_LABEL, label="bob") == ("bob", "dev.vgpu.user")
    for way in (BY_ENGINE, BY_SESSION, BY_ANNOTATION):
        assert find_name(tmp_path, way, label="bob") == ("", "")  # any docker client, and any image, can set one


@pytest.mark.parametrize("way", [BY_ENGINE, BY_SESSION])
def test_an_annotation_that_is_not_believed_is_refused(tmp_path: Path, way: str) -> None:
    """And not left out in silence: its user would look for the slice."""
    with pytest.raises(RequestError, match='does not believe annotations: leave it out, or have container_owner = "'):
        find_name(tmp_path, way, user="ann")


def test_an_image_may_bring_annotations_under_podman(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="an image may bring annotations"):
        find_name(tmp_path, BY_LABEL, user="ann", from_image=True)


@pytest.mark.parametrize("user", ["x" * 65, "a\x1b[2J"])
def test_what_is_no_name(tmp_path: Path, user: str) -> None:
    with pytest.raises(RequestError, match="is not a user") as refused:
        find_name(tmp_path, BY_ANNOTATION, user=user)
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("text", ["", "[]", '{"annotations": null}', '{"mounts": [{"destination": "/etc/hosts"}]}'])
def test_damaged_configurations_name_none(tmp_path: Path, text: str) -> None:
    assert find_owner_name(text.encode(), ID, tmp_path, BY_LABEL, from_image=False) == ("", "")


def test_it_requests_nothing() -> None:
    assert parse_request([], {"dev.vgpu/user": "ann"}, Limits(4000)) is None
