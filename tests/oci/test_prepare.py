"""What a container with a slice gets besides the drivers: directories, variables, hooks, ld.so.preload."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.oci.image import HOME, UUIDS, Image, allow, bound, docker_config, node
from vgpud.libraries import tree as library_tree
from vgpud.oci import prepare as preparing
from vgpud.oci.request import RequestError

NVIDIA_HOOK = "/usr/bin/nvidia-container-runtime-hook"


# ---- the parts ----


def test_the_slices_directory_and_the_libraries(image: Image) -> None:
    done = image.prepare()
    attach, tree = done.mount("/run/vgpu"), done.mount("/usr/lib/vgpu")
    assert attach and attach["source"] == str(image.plan.attach_dir)
    assert tree and tree["source"] == str(image.plan.tree)
    assert {"bind", "ro", "nosuid", "nodev"} <= set(attach["options"]) & set(tree["options"])
    assert "noexec" in attach["options"]
    assert "noexec" not in tree["options"]


def test_the_simulated_device_comes_with_its_directory_only_when_there_is_one(image: Image, cdi_dir: Path) -> None:
    simulated = image.prepare()
    assert (simulated.mount("/run/vgpu-sim") or {})["source"] == "/run/simulated"
    assert image.prepare(sim_dir="", cdi_dirs=(str(cdi_dir),)).mount("/run/vgpu-sim") is None


def test_the_devices_by_uuid(image: Image) -> None:
    image.config["process"]["env"] += ["NVIDIA_VISIBLE_DEVICES=all", "A=1", "NVIDIA_VISIBLE_DEVICES=0"]
    done = image.prepare(uuids=UUIDS, indices=(0, 1))
    assert done.env == ["PATH=/bin", "VGPU=0.5", f"NVIDIA_VISIBLE_DEVICES={','.join(UUIDS)}", "A=1", "VGPU_MODE=closed"]


def test_what_programs_do_without_a_daemon_is_for_the_site_to_say(image: Image) -> None:
    image.config["process"]["env"] += ["VGPU_MODE=open"]
    assert [entry for entry in image.prepare().env if entry.startswith("VGPU_MODE")] == ["VGPU_MODE=closed"]


def test_hooks(image: Image) -> None:
    other = {"path": "/bin/other", "args": ["other"]}
    image.config["hooks"] = {"createRuntime": [other], "poststop": [other]}
    hooks = image.prepare().config["hooks"]
    assert hooks["createRuntime"][0]["path"] == image.plan.front
    assert hooks["createRuntime"][0]["args"][1:] == ["vgpu-hook", "started"]
    assert hooks["poststop"][1]["args"][1:] == ["vgpu-hook", "stopped"]
    assert other in hooks["createRuntime"]
    assert other in hooks["poststop"]
    assert all(hook.get("timeout", 1) > 0 for stage in hooks.values() for hook in stage)


def test_what_we_do_not_know_stays(image: Image) -> None:
    image.config |= {"solaris": {"x": 1.5}, "futureField": [None, {"ä": "\ud800"}], "annotations": {"a": "b"}}
    image.config["linux"]["future"] = {"big": 2**63}
    image.config["process"]["selinuxLabel"] = "x"
    before = copy.deepcopy(image.config)
    after = image.prepare().config
    for name in ("solaris", "futureField", "annotations", "root", "hostname", "linux"):
        assert after[name] == before[name]
    assert {k: v for k, v in after["process"].items() if k != "env"} == {
        k: v for k, v in before["process"].items() if k != "env"
    }
    assert after["mounts"][: len(before["mounts"])] == before["mounts"]


def test_a_minimal_configuration(image: Image) -> None:
    done = image.prepare({"ociVersion": "1.0.0", "root": {"path": "rootfs"}})
    assert done.env == [f"NVIDIA_VISIBLE_DEVICES={UUIDS[0]}", "VGPU_MODE=closed"]
    assert "linux" not in done.config
    assert done.drivers


def test_nulls_as_go_writes_them(image: Image) -> None:
    image.config |= {"mounts": None, "hooks": None, "annotations": None}
    image.config["process"]["env"] = None
    image.config["linux"] |= {"devices": None, "resources": {"devices": None}}
    assert image.prepare().drivers


def test_read_only_root_and_privileges_change_nothing(image: Image) -> None:
    plain = image.prepare().config["mounts"]
    image.config["root"]["readonly"] = True
    image.config["process"]["user"] = {"uid": 1000, "gid": 1000}
    image.config["linux"] |= {"uidMappings": [{"containerID": 0, "hostID": 100000, "size": 65536}]}
    image.config["linux"]["resources"]["devices"] = [{"allow": True, "access": "rwm"}]
    assert image.prepare().config["mounts"] == plain


# ---- twice, and after our own CDI device ----


def test_our_own_cdi_device_is_replaced(image: Image) -> None:
    tree = image.plan.tree.parent / "fedcba9876543210"
    image.config["mounts"] += [
        bound("/run/vgpud/cdi", "/run/vgpu", "ro"),
        bound(tree, "/usr/lib/vgpu", "ro"),
        bound(tree / "ld.so.preload", "/etc/ld.so.preload", "ro"),
        bound(tree / "libvgpu.so", "/usr/lib/somewhere/libcuda.so.1", "ro"),
    ]
    started = {"path": "/usr/lib/vgpu/0.1/vgpu-runtime", "args": ["vgpu-runtime", "vgpu-hook", "started"]}
    image.config["hooks"] = {
        "createRuntime": [started],
        "poststop": [{**started, "args": ["x", "vgpu-hook", "stopped"]}],
    }
    image.put("/etc/ld.so.preload", b"/opt/theirs.so\n")
    done = image.prepare()
    sources = [m["source"] for m in done.config["mounts"]]
    assert not [s for s in sources if "fedcba" in s or s == "/run/vgpud/cdi"]
    assert [len(hooks) for hooks in done.config["hooks"].values()] == [1, 1]
    assert "/usr/lib/somewhere/libcuda.so.1" not in done.drivers
    assert (image.plan.scratch / "ld.so.preload").read_text().endswith("/opt/theirs.so\n")


# ---- ld.so.preload ----


def preload(image: Image) -> tuple[str, str]:
    """(where it is mounted, what a program of the container reads there)."""
    done = image.prepare()
    found = [m for m in done.config["mounts"] if m["source"].endswith("ld.so.preload")]
    return found[-1]["destination"], Path(found[-1]["source"]).read_text()


def ours(image: Image) -> str:
    return (image.plan.tree / library_tree.PRELOAD).read_text()


@pytest.mark.parametrize("contents", [None, b"", b"\n \n"])
def test_preload_of_most_images_comes_from_the_tree(image: Image, contents: bytes | None) -> None:
    if contents is not None:
        image.put("/etc/ld.so.preload", contents)
    assert preload(image) == ("/etc/ld.so.preload", ours(image))
    assert not image.plan.scratch.exists()


def test_preload_is_merged_ours_first(image: Image) -> None:
    image.put("/etc/ld.so.preload", b"/opt/a.so /opt/b.so # why")
    assert preload(image)[1] == ours(image) + "/opt/a.so /opt/b.so # why"
    assert image.plan.scratch.joinpath("ld.so.preload").stat().st_mode & 0o777 == 0o644


def test_preload_that_is_a_link(image: Image) -> None:
    image.put("/data/preload", b"/opt/a.so\n")
    image.link("/etc/ld.so.preload", "../data/preload")
    assert preload(image) == ("/data/preload", ours(image) + "/opt/a.so\n")


def test_preload_that_leads_out_of_the_image(image: Image, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("/host/secret.so\n")
    image.link("/etc/ld.so.preload", str(tmp_path / "hosts"))
    assert preload(image) == ("/etc/ld.so.preload", ours(image))


def test_a_users_own_preload_is_merged(image: Image, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("/opt/mine.so\n")
    image.put("/etc/ld.so.preload", b"/opt/hidden.so\n")
    image.config["mounts"].append(bound(tmp_path / "mine", "/etc/ld.so.preload"))
    assert preload(image) == ("/etc/ld.so.preload", ours(image) + "/opt/mine.so\n")


def test_no_secrets_are_copied(image: Image, tmp_path: Path) -> None:
    """A caller need not be root, and a mount may name any file of the host."""
    (tmp_path / "shadow").write_text("root:secret\n")
    (tmp_path / "shadow").chmod(0o640)
    image.config["mounts"].append(bound(tmp_path / "shadow", "/etc/ld.so.preload"))
    assert preload(image) == ("/etc/ld.so.preload", ours(image))
    assert any("not readable for every user" in warning for warning in image.prepare().warnings)


@pytest.mark.parametrize("contents", [b"/a.so\n" * 20000, b"/a\0.so"])
def test_preload_that_is_no_list_is_replaced(image: Image, contents: bytes) -> None:
    image.put("/etc/ld.so.preload", contents)
    assert preload(image)[1] == ours(image)
    assert any("replaced by vgpud's" in warning for warning in image.prepare().warnings)


def test_preload_that_is_a_directory(image: Image) -> None:
    (image.root / "etc/ld.so.preload").mkdir()
    done = image.prepare()
    assert done.mount("/etc/ld.so.preload") is None
    assert any("cannot be mounted over" in warning for warning in done.warnings)
    assert done.drivers


def test_etc_in_a_volume_is_not_written_to(image: Image, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    image.config["mounts"].append(bound(tmp_path / "etc", "/etc"))
    assert image.prepare().mount("/etc/ld.so.preload") is None


# ---- what NVIDIA's tools have put there ----


@pytest.mark.parametrize("stage", ["prestart", "createRuntime", "createContainer", "startContainer"])
@pytest.mark.parametrize(
    "hook",
    [
        {"path": NVIDIA_HOOK, "args": ["nvidia-container-runtime-hook", "prestart"]},
        {"path": "/usr/bin/nvidia-container-toolkit", "args": ["nvidia-container-toolkit", "prestart"]},
        {"path": "/usr/local/nvidia/toolkit/nvidia-container-runtime-hook.real"},
        {"path": "/usr/libexec/oci/hooks.d/oci-nvidia-hook"},
        {"path": "/bin/sh", "args": [NVIDIA_HOOK, "prestart"]},
    ],
)
def test_nvidias_hook_is_taken_out_wherever_it_is(image: Image, stage: str, hook: dict[str, Any]) -> None:
    helper = {"path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "update-ldcache"]}
    image.config["hooks"] = {stage: [helper, hook]}
    assert preparing.look(json.dumps(image.config).encode())[3]
    done = image.prepare()
    assert hook not in done.config["hooks"][stage]
    assert helper in done.config["hooks"][stage]
    assert any(hook["path"] in warning and "--gpus" in warning for warning in done.warnings)


def test_device_nodes_of_gpus_that_are_not_the_slices(image: Image) -> None:
    """On the simulated device none is."""
    linux = image.config["linux"]
    linux["devices"] = [node("/dev/nvidia0"), node("/dev/nvidia1", minor=1), node("/dev/nvidiactl", minor=255)]
    linux["resources"]["devices"] += [allow(195, 0), allow(195, 1), allow(195, 255), allow(195, None), allow(1, 3)]
    image.config["mounts"].append(bound("/dev/nvidia3", "/dev/nvidia3"))
    done = image.prepare()
    assert [n["path"] for n in done.config["linux"]["devices"]] == ["/dev/nvidiactl"]
    rules = done.config["linux"]["resources"]["devices"]
    assert rules == [{"allow": False, "access": "rwm"}, allow(195, 255), allow(1, 3)]
    assert done.mount("/dev/nvidia3") is None
    assert any("/dev/nvidia0, /dev/nvidia1, /dev/nvidia3" in warning for warning in done.warnings)


# ---- look() ----


def look_at(config: dict[str, Any]) -> tuple[list[str], dict[str, str], str, bool]:
    return preparing.look(json.dumps(config).encode())


def test_look(image: Image) -> None:
    image.config["annotations"] = {"dev.vgpu/gpus": "0.5"}
    assert look_at(image.config) == (["PATH=/bin", "VGPU=0.5"], {"dev.vgpu/gpus": "0.5"}, "/docker/0123", False)
    assert look_at({}) == ([], {}, "", False)
    assert look_at({"annotations": {"dev.vgpu/gpus": None}})[1] == {"dev.vgpu/gpus": ""}


def test_whole_gpus_without_us() -> None:
    config = docker_config("rootfs", env=["NVIDIA_VISIBLE_DEVICES=all"])
    assert not look_at(config)[3], "an image's ENV brings no device by itself"
    config["linux"]["devices"] = [node("/dev/nvidiactl", minor=255), node("/dev/nvidia-uvm", 510)]
    assert not look_at(config)[3]
    config["linux"]["devices"].append(node("/dev/nvidia0"))
    assert look_at(config)[3]


def test_a_privileged_container_asks_for_nothing() -> None:
    config = docker_config("rootfs", env=[])
    config["linux"]["devices"] = [node("/dev/nvidia0"), node("/dev/null", 1, 3)]
    config["linux"]["resources"]["devices"] = [allow(None, None, None)]
    assert not look_at(config)[3]
    config["hooks"] = {"prestart": [{"path": NVIDIA_HOOK}]}
    assert look_at(config)[3]


# ---- what is no configuration ----


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"root": {"path": "rootfs"}, "x": 1e999}',
        b'{"root": {"path": "rootfs"}, "x": NaN}',
        b'{"root": 1}',
        b'{"root": {}}',
        b'{"root": {"path": "rootfs"}, "mounts": {}}',
        b'{"root": {"path": "rootfs"}, "mounts": [1]}',
        b'{"root": {"path": "rootfs"}, "process": []}',
        b'{"root": {"path": "rootfs"}, "process": {"env": "A=1"}}',
        b'{"root": {"path": "rootfs"}, "hooks": {"poststop": [1]}}',
        b'{"root": {"path": "rootfs"}, "linux": {"devices": "x"}}',
    ],
)
def test_rubbish_is_refused_with_one_line(image: Image, raw: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        image.prepare(raw)
    assert "\n" not in str(caught.value)


def test_a_root_that_is_not_there(image: Image) -> None:
    image.config["root"]["path"] = "elsewhere"
    with pytest.raises(RequestError, match=r"the container's root .*/elsewhere cannot be opened"):
        image.prepare()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.sampled_from(["/etc", "bind", "rootfs", HOME]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["path", "args", "destination", "source", "type", "options", "devices"]), inner
        )
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(150), deadline=None)
@given(
    process=st.none() | JSON | st.fixed_dictionaries({"env": JSON}),
    mounts=JSON
    | st.lists(st.dictionaries(st.sampled_from(["destination", "source", "options", "type"]), JSON), max_size=3),
    hooks=JSON | st.dictionaries(st.sampled_from(["prestart", "poststop"]), st.lists(JSON, max_size=2)),
    linux=JSON,
)
def test_any_configuration_is_prepared_or_refused(
    image: Image, process: Any, mounts: Any, hooks: Any, linux: Any
) -> None:
    config = {"root": {"path": "rootfs"}, "process": process, "mounts": mounts, "hooks": hooks, "linux": linux}
    try:
        done = image.prepare(config)
    except RequestError as error:
        text = str(error)
    else:
        text = "prepared"
        assert done.mount("/run/vgpu")
    assert text
    assert "\n" not in text


def test_descriptors_do_not_leak(image: Image, tmp_path: Path) -> None:
    image.config["mounts"].append(bound(tmp_path, "/usr/local/cuda"))
    before = len(os.listdir("/proc/self/fd"))
    image.prepare()
    with pytest.raises(RequestError):
        image.prepare(sim_dir="", cdi_dirs=("/nowhere",))
    assert len(os.listdir("/proc/self/fd")) == before
