"""The shim comes over every driver file that a program of the image could find, and over nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.oci.image import DRIVER, DRIVER_32, HOME, LOADER, OTHER_MACHINE, Image, bound
from vgpud.libraries import tree
from vgpud.oci import search
from vgpud.oci.request import RequestError
from vgpud.oci.rootfs import Root
from vgpud.oci.view import View

ADDED = {f"{HOME}/libcuda.so.1", f"{HOME}/libcuda.so"}


def test_an_image_without_a_driver_gets_one(image: Image) -> None:
    done = image.prepare()
    assert done.drivers == ADDED
    assert done.shims[f"{HOME}/libnvidia-ml.so.1"] == tree.ML_SHIM
    assert done.warnings == ()


def test_no_nvml_in_the_tree_no_nvml_in_the_container(image: Image) -> None:
    (image.plan.tree / tree.ML_SHIM).unlink()
    image.put(f"{HOME}/libnvidia-ml.so.535")
    assert set(image.prepare().shims.values()) == {tree.SHIM}


@pytest.mark.parametrize(
    "place",
    [
        f"{HOME}/libcuda.so.535.104",
        "/usr/lib64/libcuda.so.1",
        "/usr/lib/libcuda.so",
        "/usr/local/cuda/compat/libcuda.so.550.54",
        "/usr/local/cuda-12.4/compat/libcuda.so.550.54",
        "/usr/local/cuda-12.4/compat/lib.real/libcuda.so.1",
        "/usr/local/cuda/lib64/stubs/libcuda.so",
        "/usr/local/nvidia/lib64/libcuda.so.1",
        "/usr/local/lib/libcuda.so.1",
    ],
)
def test_places(image: Image, place: str) -> None:
    image.put(place)
    assert place in image.prepare().drivers


def test_the_file_and_never_its_links(image: Image) -> None:
    image.put(f"{HOME}/libcuda.so.535.104")
    image.link(f"{HOME}/libcuda.so.1", "libcuda.so.535.104")
    image.link(f"{HOME}/libcuda.so", "libcuda.so.1")
    assert image.prepare().drivers == {f"{HOME}/libcuda.so.535.104"}


def test_links_to_files_of_other_names(image: Image) -> None:
    image.put("/opt/driver/cuda-driver.bin")
    image.link(f"{HOME}/libcuda.so.1", "/opt/driver/cuda-driver.bin")
    assert "/opt/driver/cuda-driver.bin" in image.prepare().drivers


def test_a_directory_by_two_names_is_covered_once(image: Image) -> None:
    image.put("/usr/local/cuda-12.4/compat/libcuda.so.550.54")
    image.link("/usr/local/cuda-12", "cuda-12.4")
    image.link("/usr/local/cuda", "/usr/local/cuda-12")
    done = image.prepare()
    assert done.drivers == ADDED | {"/usr/local/cuda-12.4/compat/libcuda.so.550.54"}


def test_ld_library_path(image: Image) -> None:
    image.put("/opt/own/libcuda.so.1")
    image.put("/srv/libcuda.so.1")
    image.config["process"]["env"].append("LD_LIBRARY_PATH=/opt/own;:relative:/srv/")
    assert image.prepare().drivers == ADDED | {"/opt/own/libcuda.so.1", "/srv/libcuda.so.1"}


def test_ld_so_conf(image: Image) -> None:
    conf = b"# comment /none\ninclude /etc/ld.so.conf.d/*.conf\nhwcap 1 nosegneg\n/opt/a:/opt/b, /opt/c=libc6\n"
    image.put("/etc/ld.so.conf", conf)
    image.put("/etc/ld.so.conf.d/cuda.conf", b"/opt/d # why\ninclude more/x.conf /etc/ld.so.conf\n")
    image.put("/etc/ld.so.conf.d/more/x.conf", b"/opt/e\n")
    image.put("/etc/ld.so.conf.d/cuda.not", b"/opt/f\n")
    for letter in "abcdef":
        image.put(f"/opt/{letter}/libcuda.so.1")
    assert image.prepare().drivers == ADDED | {f"/opt/{letter}/libcuda.so.1" for letter in "abcde"}


def test_ld_so_cache(image: Image) -> None:
    image.put("/opt/x/libcuda.so.1")
    image.put("/opt/y/libnvidia-ml.so.1")
    cache = b"glibc-ld.so.cache1.1" + bytes(60)
    image.put("/etc/ld.so.cache", cache + b"libcuda.so.1\0/opt/x/libcuda.so.1\0/opt/y/libnvidia-ml.so.1\0")
    done = image.prepare()
    assert done.shims["/opt/x/libcuda.so.1"] == tree.SHIM
    assert done.shims["/opt/y/libnvidia-ml.so.1"] == tree.ML_SHIM


def test_variants_for_newer_processors(image: Image) -> None:
    """The loader takes them first."""
    image.put(f"{HOME}/glibc-hwcaps/x86-64-v3/libcuda.so.1")
    assert image.prepare().drivers == ADDED | {f"{HOME}/glibc-hwcaps/x86-64-v3/libcuda.so.1"}


def test_what_is_left_alone(image: Image) -> None:
    """Directories, FIFOs, other machines' libraries, names that only look alike, links that lead nowhere or round."""
    (image.root / f"usr/lib/{search.C_LIBRARY}.d").mkdir()
    (image.root / "usr/local/cuda/compat/libcuda.so.1").mkdir(parents=True)
    os.mkfifo(image.root / "usr/lib/libcuda.so.7")
    image.put("/usr/lib64/libcuda.so.1", DRIVER_32)
    image.put("/usr/lib/libcuda.so.9", OTHER_MACHINE)
    image.put("/usr/lib/libcudart.so.12")
    image.put("/usr/lib/libcuda.a")
    image.link("/usr/lib/libcuda.so.2", "/proc/1/mem")
    image.link("/usr/lib/libcuda.so.3", "libcuda.so.4")
    image.link("/usr/lib/libcuda.so.4", "libcuda.so.3")
    image.link("/usr/lib/libcuda.so.5", "../../../../../../etc/passwd")
    assert image.prepare().drivers == ADDED


def test_leftovers_of_docker_commit(image: Image) -> None:
    """Mount points of an earlier container are empty files and links into nothing."""
    image.put(f"{HOME}/libcuda.so.1", b"")
    image.link(f"{HOME}/libcuda.so", "libcuda.so.470.1")
    assert image.prepare().drivers == ADDED


def test_a_link_into_nothing_is_mounted_by_its_own_name(image: Image) -> None:
    image.link(f"{HOME}/libcuda.so.1", "libcuda.so.470.1")
    assert f"{HOME}/libcuda.so.1" in image.prepare().drivers


def test_names_that_config_json_cannot_hold(image: Image) -> None:
    image.root.joinpath(os.fsdecode(HOME[1:].encode() + b"/libcuda.so.\xff")).write_bytes(DRIVER)
    done = image.prepare()
    assert done.drivers == ADDED
    assert any("is not UTF-8" in warning for warning in done.warnings)


def test_warnings_are_bounded(image: Image) -> None:
    for number in range(100):
        image.root.joinpath(os.fsdecode(HOME[1:].encode() + b"/libcuda.so.\xff%d" % number)).write_bytes(DRIVER)
    warnings = image.prepare().warnings
    assert len(warnings) == 17
    assert warnings[-1] == "and 84 more like these"


# ---- images that are large on purpose ----


def test_too_many_driver_files(image: Image) -> None:
    for number in range(search.FILES_MAX + 1):
        image.put(f"/usr/lib/libcuda.so.{number}", b"")
    with pytest.raises(RequestError, match="too many files named"):
        image.prepare()


def test_too_many_names_of_one_file(image: Image) -> None:
    image.put("/usr/lib/driver")
    for number in range(search.NAMES_MAX + 1):
        (image.root / f"usr/lib/libcuda.so.{number}").symlink_to("driver")
    with pytest.raises(RequestError, match="too many files named"):
        image.prepare()


def test_thousands_of_other_files(image: Image) -> None:
    for number in range(3000):
        (image.root / f"usr/lib/f{number}").touch()
    assert image.prepare().drivers == ADDED


def test_huge_cache_and_conf(image: Image) -> None:
    image.put("/etc/ld.so.cache", b"/d/libcuda.so.1\0" * (search.CACHE_BYTES_MAX // 16 + 1))
    image.put("/etc/ld.so.conf", b"include ld.so.conf\n" * 4000 + b"include d/*.conf\n")
    for number in range(300):
        image.put(f"/etc/d/{number}.conf", b"/x\n")
    image.put("/d/libcuda.so.1")
    done = image.prepare()
    assert done.drivers == ADDED | {"/d/libcuda.so.1"}
    assert any("larger than 4 MiB" in warning for warning in done.warnings)
    assert any("includes more than" in warning or "only its beginning" in warning for warning in done.warnings)


def test_a_cache_that_is_one_long_path(image: Image) -> None:
    image.put("/etc/ld.so.cache", b"/libcuda.so" * 200_000)
    assert image.prepare().drivers == ADDED


def test_thousands_of_directories(image: Image) -> None:
    image.config["process"]["env"].append("LD_LIBRARY_PATH=" + ":".join(f"/d{n}" for n in range(5000)))
    assert any("more than 512 directories" in warning for warning in image.prepare().warnings)


# ---- which images can be served ----


def test_musl_is_refused_by_name(image: Image) -> None:
    (image.root / LOADER.replace("/lib", "usr/lib", 1)).unlink()
    image.put("/usr/lib/ld-musl-x86_64.so.1")
    with pytest.raises(
        RequestError, match=r"no glibc .* musl \(/lib/ld-musl-x86_64.so.1, as Alpine is\).*debian:bookworm-slim"
    ):
        image.prepare()


def test_musl_behind_a_glibc_name_is_refused(image: Image) -> None:
    loader = image.root / LOADER.replace("/lib", "usr/lib", 1)
    loader.unlink()
    image.put("/usr/lib/ld-musl-x86_64.so.1")
    loader.symlink_to("/usr/lib/ld-musl-x86_64.so.1")
    with pytest.raises(RequestError, match="musl"):
        image.prepare()


def test_scratch_is_refused(tmp_path: Path, image: Image) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    image.config["root"]["path"] = str(empty)
    with pytest.raises(RequestError, match="no C library at all"):
        image.prepare()


def test_fedora_has_its_libraries_elsewhere(image: Image) -> None:
    (image.root / HOME[1:] / "libc.so.6").unlink()
    image.put("/usr/lib64/libc.so.6")
    assert image.prepare().drivers == {"/usr/lib64/libcuda.so.1", "/usr/lib64/libcuda.so"}


def test_a_c_library_kept_elsewhere(image: Image) -> None:
    """The loader searches the directory in which it finds the link."""
    (image.root / HOME[1:] / "libc.so.6").unlink()
    image.put("/opt/glibc/libc.so.6")
    image.link(f"{HOME}/libc.so.6", "/opt/glibc/libc.so.6")
    assert image.prepare().drivers == ADDED


def test_the_other_machine_s_paths(image: Image) -> None:
    assert search.default_directories("aarch64")[0] == "/usr/lib/aarch64-linux-gnu"
    image.put("/lib/ld-linux-aarch64.so.1")
    image.put("/usr/lib/aarch64-linux-gnu/libc.so.6")
    with_root(image, "aarch64", "/usr/lib/aarch64-linux-gnu")


def test_a_root_on_a_read_only_file_system(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mount points cannot be made there; an image that has them will do."""
    monkeypatch.setattr(Root, "read_only", property(lambda self: True))
    with pytest.raises(RequestError, match="read-only file system and has no directory /run/vgpu"):
        image.prepare()
    for directory in ("run/vgpu", "run/vgpu-sim", "usr/lib/vgpu"):
        (image.root / directory).mkdir()
    image.put(f"{HOME}/libcuda.so.1", b"")
    image.put("/etc/ld.so.preload", b"")
    assert image.prepare().drivers == {f"{HOME}/libcuda.so.1"}


def with_root(image: Image, machine: str, expected_root: str) -> None:
    with Root.at("/") as host, Root.at(image.root) as root, View(root, host, []) as view:
        assert search.loader_directory(view, machine) == expected_root


# ---- mounts of config.json ----


def with_mounts(image: Image, *mounts: dict[str, Any]) -> None:
    image.config["mounts"] += mounts


def test_a_users_own_bind_of_a_driver_is_covered(image: Image, tmp_path: Path) -> None:
    own = tmp_path / "libcuda.so.1"
    own.write_bytes(DRIVER)
    with_mounts(image, bound(own, "/lib64/../usr/lib/libcuda.so.77"), bound(own, "/opt/elsewhere/libcuda.so.1", "ro"))
    done = image.prepare()
    assert {"/usr/lib/libcuda.so.77", "/opt/elsewhere/libcuda.so.1"} <= done.drivers
    last = [m["destination"] for m in done.config["mounts"]].index
    assert last("/opt/elsewhere/libcuda.so.1") < len(done.config["mounts"]) - 1
    assert (done.mount("/opt/elsewhere/libcuda.so.1") or {})["source"].endswith(tree.SHIM)


def test_a_users_own_bind_under_another_name_is_covered(image: Image, tmp_path: Path) -> None:
    own = tmp_path / "libcuda.so.535"
    own.write_bytes(DRIVER)
    (tmp_path / "link").symlink_to(own)
    with_mounts(image, bound(tmp_path / "link", "/opt/innocent.so"))
    assert "/opt/innocent.so" in image.prepare().drivers


def test_a_volume_hides_what_the_image_has(image: Image, tmp_path: Path) -> None:
    """No mount point is made in a user's volume for a file that no program sees."""
    image.put("/usr/local/cuda/compat/libcuda.so.550")
    volume = tmp_path / "volume"
    volume.mkdir()
    with_mounts(image, bound(volume, "/usr/local/cuda/compat"))
    assert image.prepare().drivers == ADDED


def test_a_driver_in_a_volume_on_a_search_path_is_covered(image: Image, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "libcuda.so.550").write_bytes(DRIVER)
    (volume / "libcuda.so.1").symlink_to("libcuda.so.550")
    (volume / "libcuda.so.2").symlink_to("/etc/passwd")
    with_mounts(image, bound(volume, "/data/lib"))
    image.config["process"]["env"].append("LD_LIBRARY_PATH=/data/lib")
    assert image.prepare().drivers == ADDED | {"/data/lib/libcuda.so.550"}


def test_a_shared_volume_is_left_alone(image: Image, tmp_path: Path) -> None:
    """Our mount in it would appear on the host."""
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "libcuda.so.1").write_bytes(DRIVER)
    with_mounts(image, bound(volume, "/usr/local/cuda/compat", "rshared"))
    done = image.prepare()
    assert done.drivers == ADDED
    assert any("shared propagation" in warning for warning in done.warnings)


def test_a_volume_over_the_library_directory(image: Image, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "libc.so.6").write_bytes(DRIVER)
    with_mounts(image, bound(volume, HOME, "ro"))
    assert image.prepare().drivers == set()


def test_a_tmpfs_takes_mount_points(image: Image, tmp_path: Path) -> None:
    with_mounts(image, {"destination": "/run", "type": "tmpfs", "source": "tmpfs", "options": []})
    done = image.prepare()
    destinations = [m["destination"] for m in done.config["mounts"]]
    assert destinations.index("/run") < destinations.index("/run/vgpu")


def test_run_from_the_host_with_shared_propagation_is_refused(image: Image) -> None:
    with_mounts(image, bound("/run", "/run", "rshared"))
    with pytest.raises(RequestError, match="shared propagation"):
        image.prepare()
