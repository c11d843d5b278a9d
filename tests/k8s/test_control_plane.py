"""The published devices and the chart against a real API server and scheduler, where KUBEBUILDER_ASSETS has them."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from lightkube import ApiError
from lightkube.types import PatchType

from tests.daemon.node import wait_until
from tests.k8s import control_plane as plane
from tests.k8s.charts import template
from tests.k8s.control_plane import ControlPlane, control_plane
from tests.k8s.parts import NODE, Cluster
from tests.k8s.pods import claim
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.v1alpha1 import vgpud_pb2 as pb

SYSTEM = "vgpu-system"  # where the chart is installed
ACCOUNT = "x-vgpud-driver"

pytestmark = pytest.mark.skipif(bool(plane.missing()), reason=plane.missing() or "there is a control plane")


@pytest.fixture(scope="module")
def cluster_api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with control_plane(tmp_path_factory.mktemp("plane")) as made:
        made.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
        made.apply(template(namespace=SYSTEM))
        made.add_node(NODE)
        yield made


def token_of(api: ControlPlane, node: str) -> str:
    """What the driver's pod on a node has to show: the chart's rights and no others. "" while there is no account."""
    try:
        return api.driver_token(ACCOUNT, node, SYSTEM)
    except ApiError:
        return ""


@pytest.fixture
def cluster(cluster_api: ControlPlane, short_dir: Path, make_system: Callable[..., OwnSystem]) -> Iterator[Cluster]:
    config = [f'cdi_dir = "{short_dir / "cdi"}"', "[devices]", 'kubernetes = ["all"]']
    system = make_system({"devices": "3", "memory_bytes": "4G"}, config)
    token = wait_until(lambda: token_of(cluster_api, NODE), "a token of the driver's pod")
    made = Cluster(short_dir, system, cluster_api.kubeconfig_for("driver", token))
    try:
        made.start()
        made.kubelet.register()
        yield made
    finally:
        made.close()
        for kind in (plane.Pod, plane.ResourceClaim):
            for one in cluster_api.client().list(kind, namespace="default"):
                cluster_api.remove(kind, one["metadata"]["name"])


def amounts(**quantities: str) -> dict[str, Any]:
    return {"capacity": {"requests": quantities}}


def pod(name: str, claim_name: str = "", **limits: str) -> dict[str, Any]:
    container: dict[str, Any] = {"name": "c", "image": "none"}
    spec: dict[str, Any] = {"containers": [container]}
    if claim_name:
        container["resources"] = {"claims": [{"name": "gpu"}]}
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimName": claim_name}]
    else:
        container["resources"] = {"limits": limits}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def devices(api: ControlPlane, name: str) -> list[str]:
    """On what a claim was allocated, once it was."""
    found: list[dict[str, Any]] = wait_until(lambda: api.allocated(name), f"the allocation of {name}")
    return [one["device"] for one in found]


# ---- published ----


def test_the_server_stores_all_that_is_published(cluster: Cluster, cluster_api: ControlPlane) -> None:
    def list_slices() -> list[Any]:
        return list(cluster_api.client().list(plane.ResourceSlice))

    wait_until(lambda: len(list_slices()) == 2, "two ResourceSlices")
    time.sleep(2)  # for a second write, if there were any
    assert {one["spec"]["pool"]["generation"] for one in list_slices()} == {
        list_slices()[0]["spec"]["pool"]["generation"]
    }
    assert "does not store" not in cluster.log.read_text()
    versions = {one["metadata"]["name"]: one["metadata"]["generation"] for one in list_slices()}
    assert set(versions.values()) == {1}


@pytest.mark.skipif(not plane.find_kubectl(), reason="kubectl is not installed")
@pytest.mark.parametrize("text", ["docs/kubernetes.md", "deploy/helm/vgpud/templates/NOTES.txt"])
def test_the_documented_command_shows_the_gpus(cluster: Cluster, cluster_api: ControlPlane, text: str) -> None:
    """`kubectl get resourceslices` alone, or with -o wide, names no device."""
    (command,) = re.findall(r"kubectl (get resourceslices -o .*)$", (plane.ROOT / text).read_text(), re.MULTILINE)
    words = [plane.find_kubectl(), "--kubeconfig", str(cluster_api.kubeconfig), *shlex.split(command)]

    def run_command() -> str:
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout

    said: str = wait_until(lambda: "gpu-0" in run_command() and run_command(), "the devices")
    assert "gpu-2-quarter-3" in said and "SIMULATED" in said and NODE in said


# ---- allocated ----


def test_five_fifths_of_each_gpu_are_allocated_and_no_sixth(cluster: Cluster, cluster_api: ControlPlane) -> None:
    for n in range(16):
        cluster_api.create(claim(f"fifth-{n}", amounts(sm="200", memory="700Mi")))
        cluster_api.create(pod(f"fifth-{n}", f"fifth-{n}"))

    def list_devices() -> list[str]:
        found = [cluster_api.allocated(f"fifth-{n}") for n in range(16)]
        return [one[0]["device"] for one in found if one]

    wait_until(lambda: len(list_devices()) == 15, "15 allocations")
    assert sorted(list_devices()) == ["gpu-0"] * 5 + ["gpu-1"] * 5 + ["gpu-2"] * 5
    (last,) = [n for n in range(16) if not cluster_api.allocated(f"fifth-{n}")]
    gone = next(n for n in range(16) if n != last)
    cluster_api.remove(plane.Pod, f"fifth-{gone}")
    cluster_api.remove(plane.ResourceClaim, f"fifth-{gone}")
    assert devices(cluster_api, f"fifth-{last}")


def test_two_and_a_half_gpus_are_three(cluster: Cluster, cluster_api: ControlPlane) -> None:
    part = amounts(sm="500", memory="2Gi")
    distinct = [{"distinctAttribute": "gpu.vgpu.dev/uuid"}]
    cluster_api.create(claim("many", {"count": 2}, part, constraints=distinct))
    cluster_api.create(pod("many", "many"))
    assert sorted(devices(cluster_api, "many")) == ["gpu-0", "gpu-1", "gpu-2"]
    (answer,) = cluster.kubelet.prepare(cluster_api.claim("many")).values()
    assert not answer.error and len(answer.devices) == 3
    (made,) = cluster.slices().values()
    assert sorted(one.min_milli for one in made.devices) == [500, 1000, 1000]
    status = wait_until(lambda: cluster_api.claim("many")["status"].get("devices"), "the claim's status")
    assert [one["conditions"][0]["type"] for one in status] == ["Ready"] * 3
    assert {one["data"]["slice"] for one in status} == {made.name}


def test_a_maximum_is_a_parameter_that_never_binds(cluster: Cluster, cluster_api: ControlPlane) -> None:
    for n in range(4):
        wanted = amounts(sm="250", memory="800Mi", smMax="1000", memoryMax="3Gi")
        selector = {"selectors": [{"cel": {"expression": "device.attributes['gpu.vgpu.dev'].index == 1"}}]}
        cluster_api.create(claim(f"max-{n}", wanted | selector))
        cluster_api.create(pod(f"max-{n}", f"max-{n}"))
        assert devices(cluster_api, f"max-{n}") == ["gpu-1"]
    for answer in cluster.kubelet.prepare(*(cluster_api.claim(f"max-{n}") for n in range(4))).values():
        assert not answer.error
    assert {one.devices[0].max_milli for one in cluster.slices().values()} == {1000}


def test_an_extended_resource_is_a_fixed_part(cluster: Cluster, cluster_api: ControlPlane) -> None:
    """Six halves of three GPUs, by claims that the scheduler makes; the seventh pod gets the first one that is free."""
    for n in range(7):
        cluster_api.create(pod(f"half-{n}", **{"vgpu.dev/half": "1"}))

    def bound() -> set[str]:
        pods = cluster_api.client().list(plane.Pod, namespace="default")
        return {one["metadata"]["name"] for one in pods if one.get("spec", {}).get("nodeName")}

    wait_until(lambda: len(bound()) == 6, "six pods with halves of three GPUs")
    claims = list(cluster_api.client().list(plane.ResourceClaim, namespace="default"))
    assert len(claims) == 6
    answers = cluster.kubelet.prepare(*(dict(one) for one in claims))
    assert not [one.error for one in answers.values() if one.error]
    shares = [(one.devices[0].min_milli, one.devices[0].max_milli) for one in cluster.slices().values()]
    assert shares == [(500, 500)] * 6
    (last,) = {f"half-{n}" for n in range(7)} - bound()
    gone = min(bound())
    used = next(one for one in claims if one["metadata"]["ownerReferences"][0]["name"] == gone)
    cluster_api.remove(plane.Pod, gone)
    cluster_api.remove(plane.ResourceClaim, used["metadata"]["name"])
    wait_until(lambda: last in bound(), "the seventh pod")


def test_two_halves_for_a_pod_may_be_of_one_gpu(cluster: Cluster, cluster_api: ControlPlane) -> None:
    """In one container, and in two: the scheduler takes the first that are free, and the pod has one slice."""
    cluster_api.create(pod("two", **{"vgpu.dev/half": "2"}))
    each = pod("each", **{"vgpu.dev/half": "1"})
    each["spec"]["containers"].append(each["spec"]["containers"][0] | {"name": "d"})
    cluster_api.create(each)

    def claims() -> list[dict[str, Any]]:
        found = [dict(one) for one in cluster_api.client().list(plane.ResourceClaim, namespace="default")]
        return found if len(found) == 2 and all("allocation" in one.get("status", {}) for one in found) else []

    found = wait_until(claims, "two allocations")
    for one in found:
        results = one["status"]["allocation"]["devices"]["results"]
        assert len({result["device"].rpartition("-half-")[0] for result in results}) == 1 < len(results)
    for answer in cluster.kubelet.prepare(*found).values():
        assert not answer.error and [len(device.cdi_device_ids) for device in answer.devices] == [1, 0]
    made = list(cluster.slices().values())
    assert [[one.min_milli for one in each.devices] for each in made] == [[1000], [1000]]


def test_an_alternative_is_prepared_under_its_requests_name(cluster: Cluster, cluster_api: ControlPlane) -> None:
    many = amounts(sm="1000", memory="64Gi") | {"name": "large", "deviceClassName": "vgpu"}
    few = amounts(sm="500", memory="1Gi") | {"name": "small", "deviceClassName": "vgpu"}
    given = claim("either", {})
    given["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": [many, few]}]
    cluster_api.create(given)
    cluster_api.create(pod("either", "either"))
    assert devices(cluster_api, "either") == ["gpu-0"]
    (result,) = cluster_api.allocated("either")
    (answer,) = cluster.kubelet.prepare(cluster_api.claim("either")).values()
    assert (result["request"], [list(one.request_names) for one in answer.devices]) == ("gpu/small", [["gpu"]])


def test_a_drained_gpu_gets_no_claim(cluster: Cluster, cluster_api: ControlPlane) -> None:
    for index in ("0", "1"):
        cluster.nodes.DrainDevice(pb.DrainDeviceRequest(device_uuid=index, reason="tried"))

    def count_tainted() -> int:
        found = cluster_api.client().list(plane.ResourceSlice)
        named = [one for s in found for one in s["spec"].get("devices", []) if one["name"] in ("gpu-0", "gpu-1")]
        return sum(bool(one.get("taints")) for one in named)

    wait_until(lambda: count_tainted() == 2, "two tainted devices")
    cluster_api.create(claim("kept", amounts(sm="500", memory="1Gi")))
    cluster_api.create(pod("kept", "kept"))
    assert devices(cluster_api, "kept") == ["gpu-2"]


def test_a_resize_is_written_into_the_claim_once(cluster: Cluster, cluster_api: ControlPlane) -> None:
    cluster_api.create(claim("resized", amounts(sm="500", memory="1Gi")))
    cluster_api.create(pod("resized", "resized"))
    assert devices(cluster_api, "resized")
    (answer,) = cluster.kubelet.prepare(cluster_api.claim("resized")).values()
    assert not answer.error

    def list_status_maxima() -> list[int]:
        return [one["data"]["smMilli"]["max"] for one in cluster_api.claim("resized")["status"].get("devices", [])]

    wait_until(lambda: list_status_maxima() == [500], "the claim's status")
    (name,) = cluster.slices()
    cluster.system.vgpu("slice", "set", name, "--max", "0.9")
    wait_until(lambda: list_status_maxima() == [900], "the new maximum in the claim's status")
    version = cluster_api.claim("resized")["metadata"]["resourceVersion"]
    cluster.stop()
    cluster.start()
    cluster.kubelet.register()
    (again,) = cluster.kubelet.prepare(cluster_api.claim("resized")).values()
    assert again == answer
    time.sleep(3)  # for a write, if there were any
    assert cluster_api.claim("resized")["metadata"]["resourceVersion"] == version


def test_a_monitor_sees_gpus_that_are_full(cluster: Cluster, cluster_api: ControlPlane) -> None:
    cluster.stop()
    cluster.start("--monitors")
    cluster.kubelet.register()
    label = {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}}
    cluster_api.client().patch(plane.Namespace, "default", label, patch_type=PatchType.MERGE)
    cluster_api.create(claim("all", {"count": 3}, constraints=[{"distinctAttribute": "gpu.vgpu.dev/uuid"}]))
    cluster_api.create(pod("all", "all"))
    assert len(devices(cluster_api, "all")) == 3
    asked = {"deviceClassName": "vgpu-monitor", "adminAccess": True, "allocationMode": "All"}
    monitor = claim("monitor", asked)
    del monitor["spec"]["devices"]["requests"][0]["exactly"]["count"]  # all of them
    cluster_api.create(monitor)
    cluster_api.create(pod("monitor", "monitor"))
    assert sorted(devices(cluster_api, "monitor")) == [f"gpu-{n}-monitor" for n in range(3)]
    (answer,) = cluster.kubelet.prepare(cluster_api.claim("monitor")).values()
    assert not answer.error and len(answer.devices) == 3


# ---- the chart's policies ----


LATENCY = {"deviceClassName": "vgpu-latency"}


def alternatives(*requests: dict[str, Any]) -> dict[str, Any]:
    named = [{"name": f"s{n}", "deviceClassName": "vgpu", **one} for n, one in enumerate(requests)]
    return {"firstAvailable": named}


@pytest.mark.parametrize(
    "request_",
    [
        {},
        LATENCY,
        amounts(sm="0", memory="1Gi", smMax="1k", memoryMax="2Gi", slices="1"),
        LATENCY | amounts(sm="1", memory="1Gi"),
        amounts(sm="1000", memoryMax="0", smMax="0"),
    ],
)
def test_claims_that_some_gpu_can_satisfy_are_let_through(cluster_api: ControlPlane, request_: dict[str, Any]) -> None:
    cluster_api.create(claim("right", request_))
    cluster_api.remove(plane.ResourceClaim, "right")


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (amounts(sm="500"), "sm below 1000 needs memory"),
        (amounts(sm="500m", memory="1Gi"), "whole thousandths"),
        (amounts(sm="1500", memory="1Gi"), "at most 1000 on one GPU"),
        (amounts(sm="500", memory="1Gi", smMax="400"), "smMax is the maximum"),
        (amounts(sm="500", memory="2Gi", memoryMax="1Gi"), "memoryMax is the maximum"),
        (amounts(sm="0", memory="1Gi"), "sm 0 guarantees nothing"),
        (amounts(sm="500", memory="1Gi", smMax="2000"), "smMax is at most 1000"),
        (amounts(sm="500", memory="20"), "memory is in bytes"),
        (amounts(cores="500"), "a capacity is not known"),
        (amounts(sm="0", memory="1Gi", smMax="500m"), "smMax is in whole thousandths"),
        (amounts(sm="1000", memoryMax="20Gi"), "memoryMax needs memory"),
        (amounts(sm="500", memory="1Gi", slices="2"), "slices is 1 for each GPU"),
        (LATENCY | amounts(sm="0", memory="1Gi", smMax="1000"), "class latency serves a guarantee"),
        ({"deviceClassName": "vgpu-monitor"}, "class vgpu-monitor is for adminAccess"),
        (alternatives({"deviceClassName": "vgpu-monitor"}), "class vgpu-monitor is for adminAccess"),
        (alternatives(amounts(sm="500", memory="1Gi"), amounts(sm="500")), "sm below 1000 needs memory"),
        (alternatives(LATENCY | amounts(sm="0", memory="1Gi", smMax="9")), "class latency serves a guarantee"),
    ],
)
def test_claims_that_would_wait_for_ever_are_refused(
    cluster_api: ControlPlane, request_: dict[str, Any], message: str
) -> None:
    given = claim("wrong", request_)
    if "firstAvailable" in request_:
        given["spec"]["devices"]["requests"] = [{"name": "r0", **request_}]

    def catch_refusal() -> str:
        try:
            cluster_api.create(given)
        except ApiError as error:
            return str(error)
        cluster_api.remove(plane.ResourceClaim, "wrong")
        return ""

    assert message in wait_until(catch_refusal, "the policy's refusal")


def test_templates_are_held_to_the_same(cluster_api: ControlPlane) -> None:
    given = claim("wrong", amounts(sm="500")) | {"kind": "ResourceClaimTemplate"}
    with pytest.raises(ApiError, match="sm below 1000 needs memory"):
        cluster_api.create(given | {"spec": {"spec": given["spec"]}})


@pytest.mark.parametrize(
    "words", [["0.5", "--mem", "1G"], ["2.5", "--device-memory", "4G"], ["0.5", "--max", "1", "--mem", "1G"]]
)
def test_what_vgpu_claim_prints_is_accepted(cluster_api: ControlPlane, words: list[str]) -> None:

    command = [sys.executable, "-m", "vgpud.cli.main", "claim", *words, "--name", "printed"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    cluster_api.create(yaml.safe_load(text))
    cluster_api.remove(plane.ResourceClaim, "printed")


def slice_of(node: str, pool: str, driver: str = "gpu.vgpu.dev") -> dict[str, Any]:
    count = {"name": pool, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": count, "nodeName": node, "devices": []}
    metadata = {"generateName": "tried-"}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": metadata, "spec": spec}


def test_a_driver_writes_its_own_nodes_slices_only(cluster_api: ControlPlane) -> None:
    """Neither another node's, nor its pool with a higher generation, nor another driver's devices."""
    token = wait_until(lambda: token_of(cluster_api, NODE), "a token")
    with pytest.raises(ApiError, match="may not write ResourceSlices of node another"):
        cluster_api.create(slice_of("another", "another"), token=token)
    with pytest.raises(ApiError, match=r"may not write pool another of gpu\.vgpu\.dev"):
        cluster_api.create(slice_of(NODE, "another"), token=token)
    with pytest.raises(ApiError, match=rf"may not write pool {NODE} of gpu\.other\.example"):
        cluster_api.create(slice_of(NODE, NODE, "gpu.other.example"), token=token)
    theirs = cluster_api.create(slice_of("another", "another"))["metadata"]["name"]
    with pytest.raises(ApiError, match="may not write ResourceSlices of node another"):
        cluster_api.client(token).delete(plane.ResourceSlice, theirs)
    made = cluster_api.create(slice_of(NODE, NODE), token=token)
    cluster_api.client(token).delete(plane.ResourceSlice, made["metadata"]["name"])
    cluster_api.remove(plane.ResourceSlice, theirs)


def test_a_driver_writes_its_own_entries_of_a_claims_status_only(cluster_api: ControlPlane) -> None:
    token = wait_until(lambda: token_of(cluster_api, NODE), "a token")
    cluster_api.create(claim("watched", amounts(sm="500", memory="1Gi")))
    result = {"request": "r0", "driver": "gpu.vgpu.dev", "pool": NODE, "device": "gpu-0"}
    elsewhere = result | {"pool": "another"}
    selector = {"nodeSelectorTerms": [{"matchFields": [in_(NODE)]}]}

    def write(status: dict[str, Any], token: str) -> Any:
        body = {"status": status}
        kind = plane.ResourceClaim.Status
        client = cluster_api.client(token)
        return client.patch(kind, "watched", body, namespace="default", patch_type=PatchType.MERGE)

    stolen = {"allocation": {"devices": {"results": [elsewhere]}}}
    with pytest.raises(ApiError, match=r"own entries of status\.devices|is forbidden|resourceclaims/binding"):
        write(stolen, token)
    allocation = {"devices": {"results": [result, elsewhere | {"request": "r0"}]}, "nodeSelector": selector}
    write({"allocation": allocation}, plane.ADMIN)
    entry = {"driver": "gpu.vgpu.dev", "pool": NODE, "device": "gpu-0"}
    with pytest.raises(ApiError, match=r"own entries of status\.devices"):
        write({"devices": [entry | {"pool": "another"}]}, token)
    (written,) = write({"devices": [entry]}, token)["status"]["devices"]
    assert written.items() >= entry.items()
    cluster_api.remove(plane.ResourceClaim, "watched")


def test_a_driver_writes_events_of_its_own_about_claims_and_pods_only(cluster_api: ControlPlane) -> None:
    token = wait_until(lambda: token_of(cluster_api, NODE), "a token")
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": "default", "name": "p", "uid": "u"}
    event: dict[str, Any] = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"generateName": "p-", "namespace": "default"},
        "eventTime": "2026-11-29T00:00:00.000000Z",
        "reportingController": "gpu.vgpu.dev",
        "reportingInstance": NODE,
        "action": "PrepareClaim",
        "reason": "Prepared",
        "type": "Normal",
        "note": "x",
        "regarding": regarding,
    }
    wrong = {"reportingController": "kubelet"}, {"reportingInstance": "n2"}, {"regarding": regarding | {"kind": "Node"}}
    for one in wrong:
        with pytest.raises(ApiError, match="may only write Events of its own"):
            cluster_api.create(event | one, token=token)
    assert cluster_api.create(event, token=token)["note"] == "x"


def in_(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}
