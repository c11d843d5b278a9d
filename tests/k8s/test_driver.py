"""The driver as a process between a real vgpud, an API server and a kubelet."""

from __future__ import annotations

import contextlib
import datetime
import json
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.console.conftest import HOST, FakeBroker, text_of
from tests.daemon.node import wait_until
from tests.k8s.charts import wrong
from tests.k8s.fake_api import SLICES, FakeApi
from tests.k8s.parts import MIB, NODE, Cluster, allocated, kubeconfig
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.console import app as application
from vgpud.k8s.driver import WAIT_S
from vgpud.v1alpha1 import vgpud_pb2 as pb

POD = "aaaaaaaa-0000-1111-2222-333333333333"


class FakeCluster(Cluster):
    """A cluster with the API server in this process."""

    def __init__(self, directory: Path, system: OwnSystem, api: FakeApi) -> None:
        super().__init__(directory, system, kubeconfig(directory, api.url))
        self.api = api

    def wait_for_slices(self, count: int) -> list[dict[str, Any]]:
        """The ResourceSlices, once there are so many of one generation."""

        def complete() -> list[dict[str, Any]]:
            found = self.api.slices()
            pools = {str(one["spec"]["pool"]) for one in found}
            return found if len(found) == count and len(pools) == 1 else []

        made: list[dict[str, Any]] = wait_until(complete, f"{count} ResourceSlices; {self.log.read_text()}")
        return made

    def add(self, claim: dict[str, Any]) -> dict[str, Any]:
        metadata = claim["metadata"]
        self.api.put(self.api.claim_path(metadata["namespace"], metadata["name"]), claim)
        return claim


@pytest.fixture
def cluster(short_dir: Path, make_system: Callable[..., OwnSystem]) -> Iterator[FakeCluster]:
    """A node with two devices whose driver kubelet has registered."""
    with registered_cluster(short_dir, make_system) as made:
        yield made


@contextlib.contextmanager
def registered_cluster(
    short_dir: Path, make_system: Callable[..., OwnSystem], sim: Mapping[str, Any] | None = None
) -> Iterator[FakeCluster]:
    """A node with two publishable ResourceSlices, on simulated devices as `sim` says or the usual two."""
    config = [f'cdi_dir = "{short_dir / "cdi"}"', "[devices]", 'kubernetes = ["all"]']
    system = make_system(sim, config) if sim else make_system(config=config)
    with FakeApi() as api:
        api.add_node(NODE)
        made = FakeCluster(short_dir, system, api)
        try:
            made.start()
            made.kubelet.register()
            made.wait_for_slices(2)
            yield made
        finally:
            made.close()


def half(cluster: FakeCluster, name: str = "half", **fields: Any) -> dict[str, Any]:
    return cluster.add(allocated(name, ("gpu-0", {"sm": "500", "memory": f"{1024}Mi"}), pods=(POD,), **fields))


def test_devices_are_published_once_and_nothing_is_written_while_nothing_changes(cluster: FakeCluster) -> None:
    counters, devices = cluster.wait_for_slices(2)
    assert counters["spec"]["sharedCounters"][0]["name"] == "gpu-0"
    first = devices["spec"]["devices"][0]
    assert (first["name"], first["allowMultipleAllocations"]) == ("gpu-0", True)
    assert first["capacity"]["sm"]["value"] == "1k"
    assert first["attributes"]["cudaComputeCapability"] == {"version": "9.0.0"}, "as NVML has it"
    assert len(cluster.api.writes) == 2


def test_vgpud_is_told_what_is_published(cluster: FakeCluster) -> None:
    wait_until(lambda: cluster.publication().devices, "a report")
    told, stored = cluster.publication(), cluster.wait_for_slices(2)
    assert (told.pool, told.problem) == (NODE, "")
    assert told.generation == stored[0]["spec"]["pool"]["generation"]
    assert [one.name for one in told.devices] == [one["name"] for one in stored[1]["spec"]["devices"]]
    capacities = {one.name: one for one in told.devices[0].capacities}
    assert (capacities["sm"].value, capacities["sm"].max_value) == ("1k", "1k"), "as the API server writes it"
    devices = cluster.nodes.ListDevices(pb.ListDevicesRequest()).devices
    assert told.devices[0].device_uuid == devices[0].uuid
    assert cluster.system.daemon
    cluster.system.daemon.kill()
    cluster.system.start_daemon()
    wait_until(lambda: cluster.publication().devices, "a report to a vgpud that was started again")


def test_the_console_shows_what_is_published_and_which_claim_has_what(cluster: FakeCluster) -> None:
    half(cluster)
    claim = half(cluster, "other")
    assert not next(iter(cluster.kubelet.prepare(claim).values())).error
    wait_until(lambda: cluster.publication().devices, "a report")
    daemon = SimpleNamespace(socket=cluster.system.host.removeprefix("unix://"))
    options = application.Options(
        frozenset({"127.0.0.1"}), secure=False, passwords=False, private=True, folder=cluster.directory
    )
    app = application.make(FakeBroker(daemon), options)  # type: ignore[arg-type]
    with TestClient(app, base_url=f"http://{HOST}") as browser:
        browser.cookies.set("vgpu", "root-0")
        text = text_of(browser.get("/kubernetes").text)
    generation = cluster.publication().generation
    assert f"pool {NODE} generation {generation} 14 published devices" in text
    assert "gpu-1-quarter-0 to gpu-1-quarter-3 4 memory 1024Mi all of it" in text and "Not published" not in text
    assert f"team/other p k-{claim['metadata']['uid']} 0.5 0.5" in text
    assert "team/half" not in text, "it was not prepared"


def test_kubernetes_1_34_gets_what_it_can_store(cluster: FakeCluster) -> None:
    cluster.stop()
    cluster.api.version = "v1.34.3"
    for one in cluster.api.slices():
        cluster.api.remove(f"{SLICES}/{one['metadata']['name']}")
    cluster.start()
    cluster.kubelet.register()
    (made,) = cluster.wait_for_slices(1)
    assert [one["name"] for one in made["spec"]["devices"]] == ["gpu-0", "gpu-1"]
    assert "consumesCounters" not in made["spec"]["devices"][0] and "sharedCounters" not in made["spec"]
    wait_until(lambda: "Kubernetes 1.34 cannot store halves" in cluster.log.read_text(), "a sentence about it")


def test_a_claim_is_prepared_and_released(cluster: FakeCluster) -> None:
    claim = half(cluster)
    (answer,) = cluster.kubelet.prepare(claim).values()
    assert not answer.error
    uid = claim["metadata"]["uid"]
    assert [(d.device_name, list(d.cdi_device_ids)) for d in answer.devices] == [("gpu-0", [f"vgpu.dev/gpu=k-{uid}"])]
    made = cluster.slices()[f"k-{uid}"]
    assert [(d.min_milli, d.max_milli, d.mem_max_bytes) for d in made.devices] == [(500, 500, 1024 * MIB)]
    assert (list(made.claim.pod_uids), list(made.claim.pod_names)) == ([POD], ["p"])
    cdi = json.loads((cluster.directory / "cdi" / f"vgpu.dev-gpu_k-{uid}.json").read_text())
    assert cdi["devices"][0]["containerEdits"]["env"] == [f"VGPU_SLICE=k-{uid}"]
    (again,) = cluster.kubelet.prepare(claim).values()
    assert again == answer
    (released,) = cluster.kubelet.unprepare(claim).values()
    assert not released.error and not cluster.slices()
    (released,) = cluster.kubelet.unprepare(claim).values()
    assert not released.error


def test_events_are_written_about_the_claim_and_its_pod(cluster: FakeCluster) -> None:
    claim = half(cluster)
    cluster.kubelet.prepare(claim)

    def read_events() -> dict[str, Any]:
        prefix = "/apis/events.k8s.io/v1/namespaces/team/events/"
        found = [one for path, one in list(cluster.api.objects.items()) if path.startswith(prefix)]
        return {one["regarding"]["kind"]: one for one in found}

    wait_until(lambda: len(read_events()) == 2, "the Events")
    event = read_events()["ResourceClaim"]
    assert event["regarding"] | {"apiVersion": ""} == {
        "apiVersion": "",
        "kind": "ResourceClaim",
        "namespace": "team",
        "name": "half",
        "uid": claim["metadata"]["uid"],
    }
    said = ("reason", "type", "action", "reportingController", "reportingInstance")
    assert [event[name] for name in said] == ["Prepared", "Normal", "PrepareClaim", "gpu.vgpu.dev", NODE]
    assert event["note"].startswith("slice k-") and not wrong(
        event | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}
    )
    assert datetime.datetime.fromisoformat(event["eventTime"].replace("Z", "+00:00")).microsecond >= 0
    assert read_events()["Pod"]["regarding"]["uid"] == POD


def test_an_alternative_is_answered_by_the_name_of_its_request(cluster: FakeCluster) -> None:
    """kubelet compares the names with those of the pod's containers, which do not know the alternatives. Both parts are
    of one GPU, as the scheduler may give them, and the slice has their sum."""
    claim = allocated("halves", ("gpu-0-half-0", {}), ("gpu-0-half-1", {}), pods=(POD,), request="gpu/large")
    (answer,) = cluster.kubelet.prepare(cluster.add(claim)).values()
    assert not answer.error
    assert [list(device.request_names) for device in answer.devices] == [["gpu"], ["gpu"]]
    assert [len(device.cdi_device_ids) for device in answer.devices] == [1, 0]
    (made,) = cluster.slices().values()
    assert [one.min_milli for one in made.devices] == [1000]


def test_killed_and_started_again_it_answers_the_same_and_writes_nothing(cluster: FakeCluster) -> None:
    def writes() -> list[tuple[str, str]]:
        """Without the claim's status and Events, which may still be on their way when the answer has come."""
        return [(verb, path) for verb, path in cluster.api.writes if verb != "patch" and "/events/" not in path]

    claim = half(cluster)
    before, written = cluster.kubelet.prepare(claim), writes()
    cluster.stop(signal.SIGKILL)
    cluster.start()
    cluster.kubelet.register()
    assert cluster.kubelet.prepare(claim) == before
    assert writes() == written


def test_a_kubelet_that_starts_deletes_the_slices_and_they_come_back(cluster: FakeCluster) -> None:
    for one in cluster.api.slices():
        cluster.api.remove(f"/apis/resource.k8s.io/v1/resourceslices/{one['metadata']['name']}")
    cluster.kubelet.register()
    cluster.wait_for_slices(2)


def test_each_claim_of_a_call_has_its_own_answer(cluster: FakeCluster) -> None:
    good, gone, other = half(cluster), allocated("gone", ("gpu-0", {"sm": "1"})), half(cluster, "other")
    uids = [str(claim["metadata"]["uid"]) for claim in (good, gone, other)]
    answers = cluster.kubelet.prepare(good, gone, other)
    assert [answers[uid].error for uid in uids] == [
        "",
        "claim team/gone does not exist: it was deleted before its pod started",
        "",
    ]
    assert {uid: one.error for uid, one in cluster.kubelet.unprepare(good, gone, other).items()} == dict.fromkeys(
        uids, ""
    )


def test_it_is_there_once_and_sigterm_takes_its_sockets_and_no_slice(cluster: FakeCluster) -> None:
    cluster.kubelet.prepare(half(cluster))
    second = FakeCluster(cluster.directory, cluster.system, cluster.api)
    second.start()
    assert second.process and second.process.wait(30) == 8
    assert "another driver of gpu.vgpu.dev runs on this node" in cluster.log.read_text()
    assert cluster.kubelet.registration.exists() and cluster.kubelet.endpoint.exists()
    assert cluster.stop(signal.SIGTERM) == 0
    assert not cluster.kubelet.registration.exists() and not cluster.kubelet.endpoint.exists()
    assert len(cluster.slices()) == 1 and len(cluster.api.slices()) == 2


def test_what_is_published_belongs_to_the_node(cluster: FakeCluster) -> None:
    node = cluster.api.objects[f"/api/v1/nodes/{NODE}"]["metadata"]
    wanted = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["uid"], "controller": True}
    assert [one["metadata"]["ownerReferences"] for one in cluster.api.slices()] == [[wanted]] * 2


def test_after_a_boot_the_cdi_files_are_there_before_kubelet_asks(cluster: FakeCluster) -> None:
    claim = half(cluster)
    before = cluster.kubelet.prepare(claim)
    file = cluster.directory / "cdi" / f"vgpu.dev-gpu_k-{claim['metadata']['uid']}.json"
    text = file.read_text()
    assert cluster.system.daemon
    cluster.system.daemon.kill()
    file.unlink()
    cluster.system.start_daemon()
    wait_until(file.exists, "the CDI file")
    assert file.read_text() == text and cluster.kubelet.prepare(claim) == before


def test_a_drained_device_is_tainted(cluster: FakeCluster) -> None:
    cluster.nodes.DrainDevice(pb.DrainDeviceRequest(device_uuid="0", reason="a fan is broken"))

    def taints() -> list[object]:
        return [one.get("taints") for one in cluster.api.slices()[-1]["spec"].get("devices", [])]

    wanted = {"key": "vgpu.dev/drained", "value": "a-fan-is-broken", "effect": "NoSchedule"}
    wait_until(lambda: [wanted] in taints() and taints().count([wanted]) == 7, "the taints")  # a tenth is too small
    (refused,) = cluster.kubelet.prepare(half(cluster, "strict")).values()
    assert "drained: a fan is broken" in refused.error
    tolerations = [{"key": "vgpu.dev/drained", "operator": "Exists", "effect": "NoSchedule"}]
    (answer,) = cluster.kubelet.prepare(half(cluster, "tolerant", tolerations=tolerations)).values()
    assert not answer.error and len(cluster.slices()) == 1


def test_a_monitor_gets_no_slice(cluster: FakeCluster) -> None:
    cluster.stop()
    cluster.start("--monitors")
    cluster.kubelet.register()
    claim = cluster.add(allocated("monitor", ("gpu-0", {}), ("gpu-1", {}), pods=(POD,), adminAccess=True))
    (answer,) = cluster.kubelet.prepare(claim).values()
    assert not answer.error and [d.device_name for d in answer.devices] == ["gpu-0", "gpu-1"]
    assert not any(d.cdi_device_ids for d in answer.devices), "NVIDIA's specification has no simulated devices"
    assert not cluster.slices()
    (released,) = cluster.kubelet.unprepare(claim).values()
    assert not released.error


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([("gpu-0", {"sm": "500", "smMax": "300"})], "smMax 0.3 is below sm 0.5"),
        ([("gpu-0", {"sm": "500m"})], "not a whole number"),
        ([("gpu-0", {"cores": "5"})], "no capacity cores"),
        ([("gpu-9", {"sm": "500"})], "which this node does not have"),
        ([("gpu-0", {"sm": "100", "memory": "1Gi"})] * 2, "distinctAttribute"),
    ],
)
def test_a_claim_that_cannot_be_prepared_says_why(
    cluster: FakeCluster, devices: list[tuple[str, dict[str, str]]], message: str
) -> None:
    (answer,) = cluster.kubelet.prepare(cluster.add(allocated("wrong", *devices))).values()
    assert message in answer.error
    assert not cluster.slices()


@pytest.mark.slow
@pytest.mark.parametrize("away_s", [0.3, 12.0], ids=["restarted", "its pod is replaced"])
def test_a_vgpud_that_is_away_during_a_call_is_waited_for(cluster: FakeCluster, away_s: float) -> None:
    claim = half(cluster)
    assert cluster.system.daemon
    cluster.system.daemon.kill()
    begin_s = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(cluster.kubelet.prepare, claim)
        time.sleep(away_s)
        cluster.system.start_daemon()
        too_late = time.monotonic() - begin_s > WAIT_S - 5  # on a busy machine
        (answer,) = call.result().values()
    if too_late and answer.error:
        (answer,) = cluster.kubelet.prepare(claim).values()
    assert not answer.error and len(cluster.slices()) == 1
