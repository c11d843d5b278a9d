"""What the runtime makes in a user's volume for the mounts of a slice: gone with the last container that needs it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.oci.image import Image
from vgpud.oci import mount_points

OURS = {"/run/vgpu", "/run/vgpu-sim", "/usr/lib/vgpu"}


@pytest.fixture
def host_run(tmp_path: Path) -> Path:
    """The /run of a made-up host."""
    folder = tmp_path / "host/run"
    (folder / "lock").mkdir(parents=True)
    return folder


def bound(source: Path, destination: str) -> dict[str, Any]:
    return {"destination": destination, "source": str(source), "type": "bind", "options": ["rbind", "rw"]}


def start(image: Image, scratch: str) -> Path:
    """Prepares a container, and makes the mount points that its runtime would make in its volumes."""
    folder = image.plan.scratch.with_name(scratch)
    done = replace(image, plan=replace(image.plan, scratch=folder)).prepare()
    volumes = {m["destination"]: Path(m["source"]) for m in image.config["mounts"] if m.get("type") == "bind"}
    for mount in done.config["mounts"]:
        for place, source in volumes.items():
            if mount["destination"] in OURS and mount["destination"].startswith(f"{place}/"):
                (source / mount["destination"][len(place) + 1 :]).mkdir(parents=True, exist_ok=True)
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_hosts_run_is_as_it_was(image: Image, host_run: Path) -> None:
    image.config["mounts"].append(bound(host_run, "/run"))
    scratch = start(image, "one")
    assert names(host_run) == ["lock", "vgpu", "vgpu-sim"]
    mount_points.remove([scratch])
    assert names(host_run) == ["lock"] and not scratch.exists()


def test_another_container_keeps_what_it_is_mounted_on(image: Image, host_run: Path) -> None:
    """Removing a folder takes away what another mount namespace has mounted on it."""
    image.config["mounts"].append(bound(host_run, "/run"))
    first, second = start(image, "one"), start(image, "two")
    mount_points.remove([first])
    assert names(host_run) == ["lock", "vgpu", "vgpu-sim"]
    mount_points.remove([second])
    assert names(host_run) == ["lock"]


def test_a_leftover_of_an_earlier_version_goes_too(image: Image, host_run: Path) -> None:
    (host_run / "vgpu").mkdir()
    image.config["mounts"].append(bound(host_run, "/run"))
    mount_points.remove([start(image, "one")])
    assert names(host_run) == ["lock"]


def test_what_a_user_has_there_stays(image: Image, host_run: Path) -> None:
    (host_run / "vgpu").mkdir()
    (host_run / "vgpu/file").touch()
    image.config["mounts"].append(bound(host_run, "/run"))
    scratch = start(image, "one")
    (host_run / "vgpu-sim/later").touch()
    mount_points.remove([scratch])
    assert names(host_run) == ["lock", "vgpu", "vgpu-sim"]


def test_another_folder_at_the_same_path_is_left_alone(image: Image, host_run: Path) -> None:
    image.config["mounts"].append(bound(host_run, "/run"))
    scratch = start(image, "one")
    host_run.rename(host_run.with_name("old"))
    (host_run / "vgpu").mkdir(parents=True)
    mount_points.remove([scratch])
    assert names(host_run) == ["vgpu"]


def test_every_place_in_every_kind_of_volume(image: Image, tmp_path: Path, host_run: Path) -> None:
    library = tmp_path / "host/lib"
    (library / "sub").mkdir(parents=True)
    (tmp_path / "host/link").symlink_to(host_run)  # as docker run -v /var/run:/run on a host where it is a link
    image.config["mounts"] += [bound(tmp_path / "host/link", "/run"), bound(library, "/usr/local/lib")]
    mount_points.remove([start(image, "one")])
    assert names(host_run) == ["lock"] and names(library) == ["sub"]


def test_without_a_volume_there_nothing_is_written_down(image: Image, host_run: Path) -> None:
    image.config["mounts"].append(bound(host_run, "/data"))
    folder = start(image, "one")
    assert not (folder / mount_points.NOTE).exists()
    mount_points.remove([folder])


@pytest.mark.parametrize("text", ["", "{", "[1]", '[["/run", "x", 1, "vgpu"]]', "null", '[["/", 1, 2]]'])
def test_a_damaged_note_removes_nothing(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / mount_points.NOTE).write_text(text)
    mount_points.remove([folder])
    assert not folder.exists()
