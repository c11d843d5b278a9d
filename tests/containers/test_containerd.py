"""vgpu-runtime under containerd alone: `ctr run --runc-binary`, as a containerd runtime's BinaryName has it."""

from __future__ import annotations

from pathlib import Path

from benchmarks import engine
from vgpud.cli.demo.private_system import OwnSystem

from .helpers import half_a_gpu_is_seen, slices, until_free, view

IMAGE = f"docker.io/{engine.BASE}:latest"


def options(programs: Path) -> list[str]:
    return ["--mount", f"type=bind,src={programs},dst=/programs,options=rbind:ro"]


def test_half_a_gpu(containerd: engine.Containerd, front: Path, system: OwnSystem, programs: Path) -> None:
    request = ["--env", "VGPU=0.5", "--env", "VGPU_MEM=1g"]
    done = containerd.run(front, *request, *options(programs), IMAGE, "half", "/programs/view")
    half_a_gpu_is_seen(view(done))
    until_free(system)


def test_annotations_win(containerd: engine.Containerd, front: Path, programs: Path) -> None:
    request = ["--env", "VGPU=1", "--annotation", "dev.vgpu/gpus=0.5", "--annotation", "dev.vgpu/mem=1g"]
    done = containerd.run(front, *request, *options(programs), IMAGE, "annotated", "/programs/view")
    half_a_gpu_is_seen(view(done))


def test_the_refusal_reaches_the_user(containerd: engine.Containerd, front: Path, system: OwnSystem) -> None:
    done = containerd.run(front, "--env", "VGPU=abc", IMAGE, "refused", "true")
    assert done.returncode != 0
    assert "OCI runtime create failed: VGPU: 'abc' is not a number of GPUs" in done.stderr, done.stderr
    assert not slices(system)


def test_without_a_request_nothing_changes(containerd: engine.Containerd, front: Path) -> None:
    done = containerd.run(front, IMAGE, "plain", "sh", "-c", "test ! -e /run/vgpu && echo absent")
    assert done.stdout == "absent\n", done.stderr
