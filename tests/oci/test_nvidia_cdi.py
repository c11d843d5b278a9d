"""NVIDIA's specification of the host, made up: devices by UUID, index and `all`, with all that such a file can hold."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.oci.image import DRIVER, DRIVER_32, HOME, UUIDS, Image, Result, allow, bound, node
from vgpud.libraries import tree
from vgpud.oci.request import RequestError


@pytest.fixture
def real(image: Image, cdi_dir: Path) -> Image:
    """An image for a real device, whose specifications are in cdi_dir."""
    from dataclasses import replace

    image.plan = replace(image.plan, sim_dir="", cdi_dirs=(str(cdi_dir),))
    return image


def write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content) if path.suffix == ".json" else yaml.safe_dump(content))


def spec(**edits: Any) -> dict[str, Any]:
    """A specification with one device `0` and these common edits."""
    device = {
        "name": "0",
        "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]},
    }
    return {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [device], "containerEdits": edits}


def nodes(done: Result) -> list[str]:
    return [n["path"] for n in done.config["linux"]["devices"]]


# ---- which devices ----


def test_by_index(real: Image) -> None:
    done = real.prepare()
    assert nodes(done) == ["/dev/nvidiactl", "/dev/nvidia0"]
    assert f"NVIDIA_VISIBLE_DEVICES={UUIDS[0]}" in done.env


def test_the_other_device(real: Image) -> None:
    assert "/dev/nvidia1" in nodes(real.prepare(uuids=UUIDS[1:], indices=(1,)))


def test_two_devices_have_the_common_edits_once(real: Image) -> None:
    done = real.prepare(uuids=UUIDS, indices=(0, 1))
    assert nodes(done) == ["/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia1"]
    assert done.env.count("FROM_CDI=1") == 1


def test_a_uuid_is_worth_more_than_an_index(real: Image, cdi_dir: Path) -> None:
    changed = spec()
    changed["devices"].append(
        {
            "name": UUIDS[0],
            "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia7", "type": "c", "major": 195, "minor": 7}]},
        }
    )
    write(cdi_dir / "nvidia.yaml", changed)
    assert nodes(real.prepare()) == ["/dev/nvidia7"]


def test_names_with_their_kind(real: Image, cdi_dir: Path) -> None:
    """`nvidia-ctk cdi generate --device-name-strategy=type-index`."""
    changed = spec()
    changed["devices"][0]["name"] = "gpu0"
    write(cdi_dir / "nvidia.yaml", changed)
    assert nodes(real.prepare()) == ["/dev/nvidia0"]


def test_all_will_do_where_it_means_the_slices_devices(real: Image, cdi_dir: Path) -> None:
    changed = spec()
    changed["devices"][0]["name"] = "all"
    write(cdi_dir / "nvidia.yaml", changed)
    assert nodes(real.prepare()) == ["/dev/nvidia0"]
    changed["devices"][0]["containerEdits"]["deviceNodes"].append({"path": "/dev/nvidia1"})
    write(cdi_dir / "nvidia.yaml", changed)
    with pytest.raises(RequestError, match="names only `all`"):
        real.prepare()


MIG = "MIG-cccccccc-0000-0000-0000-000000000002"


@pytest.mark.parametrize("name", [MIG, "0:1", "mig0:1"])
def test_an_instance_has_its_gpus_node_and_its_own_capabilities(real: Image, cdi_dir: Path, name: str) -> None:
    """As nvidia-ctk writes them by each of its strategies of names: number 1 of GPU 0 is device 101 here."""
    changed = spec(deviceNodes=[{"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255}])
    for one, minors in (("0:0", (3, 4)), (name, (12, 13))):
        capabilities = [
            {"path": f"/dev/nvidia-caps/nvidia-cap{minor}", "type": "c", "major": 237, "minor": minor}
            for minor in minors
        ]
        gpu = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
        changed["devices"].append({"name": one, "containerEdits": {"deviceNodes": [gpu, *capabilities]}})
    write(cdi_dir / "nvidia.yaml", changed)
    real.config["linux"]["devices"] = [
        {"path": "/dev/nvidia-caps/nvidia-cap3", "type": "c", "major": 237, "minor": 3}  # another instance's
    ]
    rules = real.config["linux"]["resources"]["devices"]
    rules += [allow(237, None), allow(237, 3), allow(10, None)]
    done = real.prepare(uuids=(MIG,), indices=(101,))
    allowed = [(r["major"], r.get("minor")) for r in done.config["linux"]["resources"]["devices"] if r["allow"]]
    assert allowed == [(10, None), (195, 255), (195, 0), (237, 12), (237, 13)], "with mknod it would reach the others"
    assert "the cgroup rule for all capabilities (MIG) (c 237:*)" in " ".join(done.warnings)
    own = ["/dev/nvidia-caps/nvidia-cap12", "/dev/nvidia-caps/nvidia-cap13"]
    assert nodes(done) == ["/dev/nvidiactl", "/dev/nvidia0", *own]
    assert "removed /dev/nvidia-caps/nvidia-cap3" in " ".join(done.warnings)
    assert f"NVIDIA_VISIBLE_DEVICES={MIG}" in done.env


def test_all_is_not_taken_for_one_instance(real: Image, cdi_dir: Path) -> None:
    changed = spec()
    changed["devices"][0]["name"] = "all"
    write(cdi_dir / "nvidia.yaml", changed)
    with pytest.raises(RequestError, match="names only `all`"):
        real.prepare(uuids=(MIG,), indices=(100,))


def test_later_directories_and_changed_files_win(real: Image, cdi_dir: Path, tmp_path: Path) -> None:
    later = tmp_path / "run-cdi"
    later.mkdir()
    write(later / "nvidia.json", spec(env=["WHICH=later"]))
    dirs = (str(cdi_dir), str(later))
    assert "WHICH=later" in real.prepare(cdi_dirs=dirs).env
    write(later / "nvidia.json", spec(env=["WHICH=changed"]))
    os.utime(later / "nvidia.json", ns=(1, 1))
    assert "WHICH=changed" in real.prepare(cdi_dirs=dirs).env


def test_other_types_and_other_files_are_not_ours(real: Image, cdi_dir: Path) -> None:
    write(cdi_dir / "a.json", spec() | {"kind": "vgpu.dev/gpu"})
    (cdi_dir / "README").write_text("not a specification")
    assert real.prepare().warnings == ()


@pytest.mark.parametrize(
    "content", ["{", "[]", "a: [", "", "kind: nvidia.com/gpu\ndevices: [1]", "kind: nvidia.com/gpu\ncontainerEdits: x"]
)
def test_a_broken_file_beside_a_good_one(real: Image, cdi_dir: Path, content: str) -> None:
    (cdi_dir / "z-broken.yaml").write_text(content)
    done = real.prepare()
    assert nodes(done) == ["/dev/nvidiactl", "/dev/nvidia0"]
    assert any("z-broken.yaml is left out" in warning for warning in done.warnings)


def test_nothing_for_the_device(real: Image, cdi_dir: Path) -> None:
    (cdi_dir / "nvidia.yaml").write_text("{")
    with pytest.raises(RequestError) as caught:
        real.prepare()
    text = str(caught.value)
    assert "\n" not in text
    for word in (UUIDS[0], str(cdi_dir), "nvidia.yaml is left out", "nvidia-ctk cdi generate"):
        assert word in text


# ---- edits ----


def test_driver_files_are_covered_and_the_rest_comes_as_it_is(real: Image, host_driver: Path) -> None:
    done = real.prepare()
    assert done.drivers == {f"{HOME}/libcuda.so.999.1", f"{HOME}/libcuda.so.1", "/usr/local/cuda/compat/libcuda.so.998"}
    assert done.shims[f"{HOME}/libnvidia-ml.so.999.1"] == tree.ML_SHIM
    other = done.mount(f"{HOME}/libnvidia-ptxjitcompiler.so.999.1")
    assert other == bound(
        host_driver / "libnvidia-ptxjitcompiler.so.999.1", f"{HOME}/libnvidia-ptxjitcompiler.so.999.1"
    ) | {"options": ["ro", "nosuid", "nodev", "rbind", "rprivate"]}


def test_a_link_that_a_hook_will_make_is_left_to_it(real: Image) -> None:
    """A mount in its place would make NVIDIA's create-symlinks fail."""
    done = real.prepare()
    assert f"{HOME}/libcuda.so" not in done.shims
    assert done.config["hooks"]["createContainer"][0]["args"][1] == "create-symlinks"


def test_a_file_that_a_hook_will_replace_by_a_link_is_left_to_it(real: Image) -> None:
    """A leftover of docker commit: the hook cannot remove what is mounted upon."""
    real.put(f"{HOME}/libcuda.so", b"")
    assert f"{HOME}/libcuda.so" not in real.prepare().shims


def test_a_link_by_another_name_of_its_directory(real: Image, cdi_dir: Path) -> None:
    link = [
        "nvidia-cdi-hook",
        "create-symlinks",
        f"--link=libcuda.so.9::/lib{HOME.removeprefix('/usr/lib')}/libcuda.so.1",
    ]
    hook = {"hookName": "createContainer", "path": "/x", "args": link}
    write(cdi_dir / "nvidia.yaml", spec(hooks=[hook]))
    assert real.prepare().drivers == {f"{HOME}/libcuda.so"}


def test_what_this_version_does_not_know_is_named(real: Image, cdi_dir: Path) -> None:
    write(cdi_dir / "nvidia.yaml", spec(netDevices=[], intelRdt={}))
    assert "intelRdt, netDevices left out" in real.prepare().warnings[0]


def test_hooks_gids_and_variables(real: Image) -> None:
    real.config["process"]["user"]["additionalGids"] = [44]
    done = real.prepare()
    assert done.config["process"]["user"]["additionalGids"] == [44, 109]
    assert "FROM_CDI=1" in done.env
    assert [len(hooks) for hooks in done.config["hooks"].values()] == [1, 1, 1]


def test_cgroup_rules(real: Image) -> None:
    done = real.prepare()
    rules = done.config["linux"]["resources"]["devices"]
    assert rules == [{"allow": False, "access": "rwm"}, allow(195, 255), allow(195, 0) | {"access": "rw"}]


def test_numbers_and_type_of_the_host(real: Image, cdi_dir: Path) -> None:
    write(
        cdi_dir / "nvidia.yaml",
        spec(deviceNodes=[{"path": "/dev/nvidia-uvm", "hostPath": "/dev/null"}, {"path": "/dev/zero"}]),
    )
    found = {n["path"]: (n["type"], n["major"], n["minor"]) for n in real.prepare().config["linux"]["devices"]}
    assert found["/dev/nvidia-uvm"] == ("c", 1, 3)
    assert found["/dev/zero"] == ("c", 1, 5)


def test_owner_and_mode(real: Image, cdi_dir: Path) -> None:
    given = {"path": "/dev/nvidia-uvm", "type": "c", "major": 510, "minor": 0, "fileMode": 0o600, "uid": 5, "gid": 6}
    plain = {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255}
    (cdi_dir / "nvidia.yaml").unlink()
    write(cdi_dir / "nvidia.json", spec(deviceNodes=[given, plain]))
    real.config["process"]["user"] = {"uid": 1000, "gid": 0}
    found = {n["path"]: n for n in real.prepare().config["linux"]["devices"]}
    assert found["/dev/nvidia-uvm"] == given
    assert found["/dev/nvidiactl"] == plain | {"uid": 1000}


def test_what_is_there_already_is_replaced(real: Image) -> None:
    """docker --gpus by CDI puts the same edits there, for other devices."""
    once = real.prepare().config
    real.config["linux"]["devices"] = [
        node("/dev/nvidia0"),
        node("/dev/nvidia1", minor=1),
        node("/dev/nvidiactl", minor=255),
    ]
    real.config["linux"]["resources"]["devices"] += [allow(195, 0), allow(195, 1), allow(195, 255)]
    real.config["mounts"] += [m for m in once["mounts"] if "driver" in m["source"]]
    real.config["hooks"] = {"createContainer": list(once["hooks"]["createContainer"])}
    done = real.prepare()
    assert nodes(done) == ["/dev/nvidiactl", "/dev/nvidia0"]
    destinations = [m["destination"] for m in done.config["mounts"] if "driver" in m["source"]]
    assert len(destinations) == len(set(destinations))
    assert len(done.config["hooks"]["createContainer"]) == 1
    rules = done.config["linux"]["resources"]["devices"]
    assert allow(195, 1) not in rules
    assert "removed /dev/nvidia1" in done.warnings[0]


def test_an_old_driver_in_the_image_beside_the_hosts(real: Image) -> None:
    real.put(f"{HOME}/libcuda.so.470.1")
    real.link(f"{HOME}/libcuda.so.1", "libcuda.so.470.1")
    done = real.prepare()
    assert {f"{HOME}/libcuda.so.470.1", f"{HOME}/libcuda.so.999.1"} <= done.drivers


def test_32_bit_files_are_not_covered_by_a_64_bit_library(real: Image, cdi_dir: Path, host_driver: Path) -> None:
    (host_driver / "libcuda.so.32").write_bytes(DRIVER_32)
    mount = {
        "hostPath": str(host_driver / "libcuda.so.32"),
        "containerPath": "/usr/lib/i386-linux-gnu/libcuda.so.999.1",
    }
    write(cdi_dir / "nvidia.yaml", spec(mounts=[mount]))
    done = real.prepare()
    assert "/usr/lib/i386-linux-gnu/libcuda.so.999.1" not in done.drivers
    assert "bind" in " ".join((done.mount("/usr/lib/i386-linux-gnu/libcuda.so.999.1") or {})["options"])


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        (
            {"mounts": [{"hostPath": "/none/libcuda.so.1", "containerPath": "/x"}]},
            "/none/libcuda.so.1, which does not exist",
        ),
        ({"deviceNodes": [{"path": "/dev/nvidia-none"}]}, "the device /dev/nvidia-none, which does not exist"),
        ({"deviceNodes": [{"path": "/etc/passwd"}]}, "the device /etc/passwd, which does not exist"),
        ({"deviceNodes": [{"hostPath": "/dev/null"}]}, "cannot be read"),
        ({"mounts": [1]}, "cannot be read"),
        ({"hooks": [{"path": "/x"}]}, "cannot be read"),
        ({"additionalGids": ["x"]}, "cannot be read"),
    ],
)
def test_a_specification_that_does_not_fit_the_host(
    real: Image, cdi_dir: Path, edits: dict[str, Any], words: str
) -> None:
    write(cdi_dir / "nvidia.yaml", spec(**edits))
    with pytest.raises(RequestError, match="nvidia-ctk cdi generate") as caught:
        real.prepare()
    assert words in str(caught.value)
    assert str(cdi_dir / "nvidia.yaml") in str(caught.value)


def test_the_host_is_the_runtimes_world(real: Image, tmp_path: Path, cdi_dir: Path) -> None:
    """A daemon in a container sees another /etc/cdi than the runtime."""
    from vgpud.oci import nvidia_cdi
    from vgpud.oci.rootfs import Root

    world = tmp_path / "world"
    (world / "etc/cdi").mkdir(parents=True)
    (world / "opt").mkdir()
    (world / "opt/libcuda.so.5").write_bytes(DRIVER)
    mount = {"hostPath": "/opt/libcuda.so.5", "containerPath": "/opt/libcuda.so.5"}
    write(world / "etc/cdi/nvidia.yaml", spec(mounts=[mount]))
    with Root.at(world) as host:
        edits = nvidia_cdi.edits_for(UUIDS[:1], [0], ["/etc/cdi"], host)
    assert [m["source"] for m in edits.mounts] == ["/opt/libcuda.so.5"]
