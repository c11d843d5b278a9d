"""Containers of pods on a real daemon: who joins a claim's slice is decided by the cgroup that kubelet has made."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.daemon import engine
from tests.daemon.engine import ID, OTHER, Engine, end
from tests.daemon.node import Node, wait_until
from tests.daemon.test_containers import fake_engine, site, with_device  # noqa: F401  fixtures
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

UID = "11111111-2222-3333-4444-555555555555"
POD = "aaaaaaaa-0000-1111-2222-333333333333"
POD_2 = "bbbbbbbb-0000-1111-2222-333333333333"
NAME = f"k-{UID}"
JOIN = f"VGPU_SLICE={NAME}"
THIRD = "c" * 64

pytestmark = pytest.mark.skipif(engine.why_no_cgroup() != "", reason=engine.why_no_cgroup() or "-")
Enter = Callable[[str], Path]


@pytest.fixture
def kubernetes(site: Node) -> Node:  # noqa: F811
    """Before the daemon starts: name it before `with_device`."""
    site.settings["[devices]"] = 'kubernetes = ["all"]'
    return site


def pids(cgroup: Path) -> list[int]:
    return [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]


@contextmanager
def tree() -> Iterator[Enter]:
    """Cgroups below one of the test's own: enter("kubepods/podU/x") makes a path."""
    with engine.cgroup() as top:
        paths: list[Path] = []

        def enter(subpath: str) -> Path:
            path = top
            for part in subpath.split("/"):
                path /= part
                if not path.exists():
                    path.mkdir()
                    paths.append(path)
            return path

        try:
            yield enter
        finally:
            for path in reversed(paths):
                for pid in pids(path):
                    os.kill(pid, signal.SIGKILL)
                wait_until(lambda path=path: not pids(path), f"an empty {path}")
                path.rmdir()


@pytest.fixture
def enter() -> Iterator[Enter]:
    with tree() as made_tree:
        yield made_tree


def prepare(node: Node, *pods: str) -> pb.Slice:
    claim = pb.Claim(uid=UID, namespace="team", name="half", pod_uids=pods)
    uuid = node.nodes.ListDevices(pb.ListDevicesRequest()).devices[0].uuid
    numbers = {"min_milli": 500, "max_milli": 500, "mem_min_bytes": 1 << 30, "mem_max_bytes": 1 << 30}
    claim.granted.add(device_uuid=uuid, **numbers)
    stub = stubs.ClaimServiceStub(node.channel())
    return stub.PrepareClaim(pb.PrepareClaimRequest(claim=claim)).slice


def cdi_hooks(node: Node) -> list[dict[str, Any]]:
    """Of the claim's CDI device: (stage, as config.json has it)."""
    edits = json.loads((node.directory / "cdi" / f"vgpu.dev-gpu_{NAME}.json").read_text())["containerEdits"]
    return [{"stage": one["hookName"], "hook": {"path": one["path"], "args": one["args"]}} for one in edits["hooks"]]


def join(fake_engine: Engine, cgroup: Path, container_id: str = ID) -> str:  # noqa: F811
    """Starts a container with the claim's CDI device in a cgroup; returns why not."""
    fake_engine.bundle(JOIN, container_id=container_id)
    init = fake_engine.process(cgroup, "sleep", "600")
    status, body = fake_engine.hook("started", container_id, init.pid)
    if status != "ok":
        end(init)
    return body.decode()


def members(node: Node) -> list[str]:
    return sorted(c.id for c in node.get(NAME).containers)


def test_containers_of_the_claims_pod_join_and_no_others(
    kubernetes: Node,
    with_device: Engine,  # noqa: F811
    enter: Enter,
) -> None:
    prepare(kubernetes, POD)
    assert join(with_device, enter(f"kubepods/burstable/pod{POD}/{ID}")) == ""
    assert join(with_device, enter(f"kubepods/burstable/pod{POD}/{OTHER}"), OTHER) == ""
    assert members(kubernetes) == [ID, OTHER]
    named_by_annotation = join(with_device, enter(f"kubepods/burstable/pod{POD_2}/{THIRD}"), THIRD)
    said = f"the ResourceClaim team/half is not reserved for pod {POD_2}: name the claim in the pod's spec"
    assert named_by_annotation == said
    assert kubernetes.messages("claim.pod_unknown")[0] == said
    nested = join(with_device, enter(f"kubepods/burstable/pod{POD_2}/{THIRD}/kubepods/pod{POD}/x"), THIRD)
    assert nested == said, "the outermost pod is the one that kubelet has made"
    outside = join(with_device, enter(f"docker/{THIRD}"), THIRD)
    assert outside == f"slice {NAME} is for the pods of the ResourceClaim team/half, and this container is in none"
    assert members(kubernetes) == [ID, OTHER]


def test_the_slice_outlives_its_containers_and_ends_with_the_claim(
    kubernetes: Node,
    with_device: Engine,  # noqa: F811
    enter: Enter,
) -> None:
    prepare(kubernetes, POD)
    for _ in range(3):  # a container that crashes
        assert join(with_device, enter(f"kubepods/pod{POD}/{ID}")) == ""
        end(with_device.running[-1])
        wait_until(lambda: members(kubernetes) == [], "its end")
    with pytest.raises(grpc.RpcError) as error:
        kubernetes.slices.DeleteSlice(pb.DeleteSliceRequest(name=NAME, force=True))
    assert "of the ResourceClaim team/half: delete its pods" in str(error.value.details())
    stub = stubs.ClaimServiceStub(kubernetes.channel())
    for _ in range(2):
        stub.UnprepareClaim(pb.UnprepareClaimRequest(claim_uid=UID))
    assert kubernetes.names() == []
    assert "no slice" in join(with_device, enter(f"kubepods/pod{POD}/{OTHER}"), OTHER)


def test_a_container_with_two_claims_is_refused(
    kubernetes: Node,
    with_device: Engine,  # noqa: F811
    enter: Enter,
) -> None:
    """Their devices' files both set VGPU_SLICE, so one of the claims would be reserved without use."""
    prepare(kubernetes, POD)
    (hook,) = [one["hook"] for one in cdi_hooks(kubernetes) if one["stage"] == "createRuntime"]
    config = with_device.bundle(JOIN) / "config.json"
    for count, said in ((2, "the container has several vgpu devices (ResourceClaims), and it can have one"), (1, "")):
        content = json.loads(config.read_text()) | {"hooks": {"createRuntime": [hook] * count}}
        config.write_text(json.dumps(content))
        init = with_device.process(enter(f"kubepods/pod{POD}/{ID}"), "sleep", "600")
        _status, body = with_device.hook("started", ID, init.pid)
        assert body.decode().startswith(said) and bool(body) == bool(said)
        end(init)


def test_no_other_container_gets_a_part_of_kubernetes_devices(
    kubernetes: Node,
    with_device: Engine,  # noqa: F811
    enter: Enter,
) -> None:
    """Neither by a variable with the runtime vgpu, nor by a CDI device of a size."""
    said = "device 0 belongs to Kubernetes here (devices.kubernetes in vgpud.toml): ask for it with a ResourceClaim"
    status, body, _runtime = with_device.create("VGPU=0.5")
    assert status == "refused" and said in body.decode()
    with_device.bundle("VGPU=0.25", container_id=OTHER)
    init = with_device.process(enter(f"kubepods/pod{POD}/{OTHER}"), "sleep", "600")
    status, body = with_device.hook("started", OTHER, init.pid)
    end(init)
    assert status == "refused" and said in body.decode()
    assert kubernetes.names() == []
