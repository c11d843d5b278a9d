"""What goes wrong between a real vgpud, the driver and kubelet, with the sentence that the pod's event shows."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.node import wait_until
from tests.k8s.fake_api import FakeApi
from tests.k8s.parts import NODE, allocated
from tests.k8s.test_driver import POD, FakeCluster, cluster  # noqa: F401  a fixture
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.core.events import SaveSlice
from vgpud.core.origins import Claim
from vgpud.errors import ExitCode
from vgpud.store.database import Store
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

NO_LIMIT = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def claim(node: FakeCluster, name: str = "half", **amounts: str) -> dict[str, Any]:
    return node.add(allocated(name, ("gpu-0", {"sm": "500", "memory": "1Gi"} | amounts), pods=(POD,)))


def prepare(node: FakeCluster, one: dict[str, Any]) -> Any:
    (answer,) = node.kubelet.prepare(one).values()
    return answer


def unprepare(node: FakeCluster, one: dict[str, Any]) -> str:
    (answer,) = node.kubelet.unprepare(one).values()
    return str(answer.error)


def events(node: FakeCluster, kind: str) -> list[str]:
    stub = stubs.EventServiceStub(node._channel)
    return [one.message for one in stub.ListEvents(pb.ListEventsRequest()).events if one.kind == kind]


def cdi_file(node: FakeCluster, one: dict[str, Any]) -> Path:
    return node.directory / "cdi" / f"vgpu.dev-gpu_k-{one['metadata']['uid']}.json"


def test_a_disk_that_is_full(cluster: FakeCluster) -> None:  # noqa: F811
    kept, new = claim(cluster, "kept", sm="100"), claim(cluster, "new", sm="100")
    before = prepare(cluster, kept)
    assert cluster.system.daemon
    pid = cluster.system.daemon.process.pid
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    said = prepare(cluster, new).error
    assert said.startswith("claim team/new: nothing was changed: ") and "check that its disk has free space" in said
    assert prepare(cluster, kept) == before, "what is prepared needs no disk"
    assert "check that its disk has free space" in unprepare(cluster, kept)
    assert list(cluster.slices()) == [f"k-{kept['metadata']['uid']}"]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, NO_LIMIT)
    assert not prepare(cluster, new).error and not unprepare(cluster, kept)


def test_a_second_driver_on_the_node(cluster: FakeCluster) -> None:  # noqa: F811
    first = cluster.process
    cluster.start()
    second, cluster.process = cluster.process, first
    assert second and second.wait(30) == ExitCode.CONFLICT == 8
    said = f"another driver of gpu.vgpu.dev runs on this node: it has {cluster.kubelet.directory}/plugins/gpu.vgpu.dev"
    assert said in cluster.log.read_text()
    assert not prepare(cluster, claim(cluster)).error, "the first goes on"


def test_a_claim_of_another_boot(cluster: FakeCluster) -> None:  # noqa: F811
    """/var/run/cdi is empty after a boot, and kubelet may not ask for the claim again."""
    one = claim(cluster)
    before = prepare(cluster, one)
    system = cluster.system
    assert system.daemon
    system.daemon.stop()
    store = Store(system.folder / "state")
    (made,) = store.load(0).slices
    assert isinstance(made.origin, Claim) and made.origin.boot_id
    store.apply([SaveSlice(replace(made, origin=replace(made.origin, boot_id="the boot before")))])
    store.close()
    shutil.rmtree(cluster.directory / "cdi")
    system.start_daemon()
    wait_until(cdi_file(cluster, one).exists, "the CDI file")
    edits = json.loads(cdi_file(cluster, one).read_text())["devices"][0]["containerEdits"]
    assert edits["env"] == [f"VGPU_SLICE=k-{one['metadata']['uid']}"]
    assert prepare(cluster, one) == before and prepare(cluster, one) == before
    assert events(cluster, "claim.rebooted") == [
        "claim team/half was prepared before the machine was booted: its CDI file is written again"
    ]


def test_cdi_files_that_were_removed_come_back_with_the_next_prepare(cluster: FakeCluster) -> None:  # noqa: F811
    one = claim(cluster)
    before = prepare(cluster, one)
    cdi_file(cluster, one).unlink()
    assert prepare(cluster, one) == before and cdi_file(cluster, one).exists()


def test_a_claim_for_two_drivers_keeps_the_others_status(cluster: FakeCluster) -> None:  # noqa: F811
    one = allocated("both", ("gpu-0", {"sm": "500", "memory": "1Gi"}), pods=(POD,))
    nic = {"request": "nic", "driver": "nic.example.com", "pool": NODE, "device": "eth0"}
    one["status"]["allocation"]["devices"]["results"].append(nic)
    one["status"]["devices"] = [{"driver": "nic.example.com", "pool": NODE, "device": "eth0", "data": {"ip": "x"}}]
    answer = prepare(cluster, cluster.add(one))
    assert not answer.error and [d.device_name for d in answer.devices] == ["gpu-0"]

    def list_status_drivers() -> list[str]:
        return [d["driver"] for d in cluster.api.objects[cluster.api.claim_path("team", "both")]["status"]["devices"]]

    wait_until(lambda: list_status_drivers() == ["nic.example.com", "gpu.vgpu.dev"], "the status")


def test_an_api_server_that_is_away(cluster: FakeCluster) -> None:  # noqa: F811
    kept, late = claim(cluster, "kept", sm="100"), claim(cluster, "late", sm="100")
    assert not prepare(cluster, kept).error
    wait_until(lambda: ("patch", cluster.api.claim_path("team", "kept") + "/status") in cluster.api.writes, "a status")
    events = "/apis/events.k8s.io/v1/namespaces/team/events/"
    wait_until(lambda: sum(path.startswith(events) for _, path in cluster.api.writes) == 2, "its Events")
    writes = list(cluster.api.writes)
    cluster.api.broken = True
    begin_s = time.monotonic()
    said = prepare(cluster, late).error
    assert said.startswith("the API server cannot be asked for claim team/late: ")
    assert time.monotonic() - begin_s < 45, "kubelet has given up by then"
    assert not unprepare(cluster, kept) and not cluster.slices()
    cluster.api.broken = False
    assert cluster.api.writes == writes
    assert not prepare(cluster, late).error


def test_a_claim_whose_pods_were_deleted_by_force_and_that_others_got(cluster: FakeCluster) -> None:  # noqa: F811
    one = claim(cluster, sm="600")
    before = prepare(cluster, one)
    again = allocated("x", ("gpu-1", {"sm": "300", "memory": "1Gi"}), pods=("bbbbbbbb-0000-1111-2222-333333333333",))
    cluster.add(one | {"status": again["status"]})
    after = prepare(cluster, one)
    assert not after.error and [d.device_name for d in after.devices] == ["gpu-1"]
    assert after.devices[0].cdi_device_ids == before.devices[0].cdi_device_ids
    (made,) = cluster.slices().values()
    assert [(d.device_index, d.min_milli) for d in made.devices] == [(1, 300)]


def test_memory_that_holds_no_context(cluster: FakeCluster) -> None:  # noqa: F811
    assert (
        "claim team/half: memory 2MiB is less than one context needs on device 0"
        in prepare(cluster, claim(cluster, memory="2Mi")).error
    )
    assert not cluster.slices()


def test_a_device_that_is_given_while_a_slice_is_there_is_tainted_until_it_ends(
    short_dir: Path, make_system: Callable[..., OwnSystem]
) -> None:
    system = make_system(config=[f'cdi_dir = "{short_dir / "cdi"}"'])
    system.vgpu("slice", "create", "mine", "--gpus", "0.3", "--device", "1")
    assert system.daemon
    system.daemon.stop()
    with (system.folder / "vgpud.toml").open("a") as config:
        config.write('[devices]\nkubernetes = ["1"]\n')
    system.start_daemon()
    with FakeApi() as api:
        api.add_node(NODE)
        node = FakeCluster(short_dir, system, api)
        try:
            node.start()
            node.kubelet.register()

            def taints() -> list[Any]:
                devices = node.wait_for_slices(2)[1]["spec"]["devices"]
                return [one.get("taints") for one in devices if one["name"] == "gpu-1"]

            wanted = {"key": "vgpu.dev/taken", "value": "slice-mine", "effect": "NoSchedule"}
            assert taints() == [[wanted]]
            refused = prepare(node, node.add(allocated("big", ("gpu-1", {"sm": "900", "memory": "1Gi"}), pods=(POD,))))
            assert "claim team/big: device 1 has 0.7 GPU and" in refused.error
            wrong = prepare(node, node.add(allocated("other", ("gpu-0", {"sm": "100", "memory": "1Gi"}), pods=(POD,))))
            assert wrong.error == (
                "claim team/other: device 0 is not given to Kubernetes (devices.kubernetes): see `vgpu gpu ls`"
            )
            system.vgpu("slice", "rm", "mine")
            wait_until(lambda: taints() == [None], "the end of the taint")
        finally:
            node.close()


def test_a_device_in_mig_mode_gets_no_claim(cluster: FakeCluster) -> None:  # noqa: F811
    """It was put into it while vgpud runs, which takes the instances that are there when it starts."""
    cluster.system.vgpu("sim", "mode", "0", "mig")
    wanted = {"key": "vgpu.dev/taken", "value": "MIG-mode", "effect": "NoSchedule"}

    def taints() -> list[Any]:
        found = [one for made in cluster.api.slices() for one in made["spec"].get("devices", [])]
        return [one.get("taints") for one in found if one["name"] in ("gpu-0", "gpu-1")]

    wait_until(lambda: taints() == [[wanted], None], "the taint")
    said = "claim team/half: device 0 is taken by MIG mode: see `vgpu gpu ls`"
    assert prepare(cluster, claim(cluster)).error == said


@pytest.mark.parametrize("arguments", [["--slices-max", "0"], ["--priority-max", "1001"], ["--node"]])
def test_wrong_options_are_refused(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "vgpud.k8s", *arguments]
    assert subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == ExitCode.USAGE
