"""Real pods on a real node: kube-scheduler places them, kubelet prepares them through the driver, vgpud holds them to
their slices. Each container runs a program of the driver's API on the simulated device."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks import engine
from tests.daemon.node import wait_until
from tests.k8s import node as nodes
from tests.k8s.node import RealNode, cluster
from tests.k8s.pods import IMAGE, LOAD, VIEW, amounts, claim, on_gpu, pod
from tests.shares import check_shares_sum
from vgpud.cli.demo.private_system import PartError
from vgpud.v1alpha1 import vgpud_pb2 as pb

MIB = 1 << 20
#: one container of a pod says what it sees, and then loads the device
VIEW_AND_LOAD = ("sh", "-c", f"{VIEW} && exec {' '.join(LOAD)}")

pytestmark = [
    pytest.mark.skipif(bool(nodes.missing()), reason=nodes.missing() or "there is a node"),
    pytest.mark.root,
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def whole_node() -> Iterator[RealNode]:
    with cluster({"devices": "3", "memory_bytes": "4G"}) as made:
        yield made


@pytest.fixture
def node(whole_node: RealNode) -> Iterator[RealNode]:
    yield whole_node
    whole_node.clear()


def read_view(node: RealNode, name: str, container: str = "c0") -> dict[str, Any]:
    """What VIEW has said in a pod."""
    lines: list[dict[str, Any]] = wait_until(lambda: node.read_output(name, container), f"what {name} sees")
    return lines[0]


def use(node: RealNode, name: str, *requests: dict[str, Any], **fields: Any) -> None:
    """A claim, and a pod of the same name that views and loads its devices."""
    node.api.create(claim(name, *requests, **fields))
    node.run(pod(name, VIEW_AND_LOAD, claim_name=name))


def fifths(node: RealNode, *numbers: int) -> list[str]:
    names = [f"fifth-{number}" for number in numbers]
    for name in names:
        use(node, name, amounts(200, "700Mi") | on_gpu(0))
    return names


@pytest.mark.alone
def test_five_fifths_of_a_gpu_have_a_fifth_each(node: RealNode) -> None:
    names = fifths(node, *range(5))
    pids = node.at_work(*names)
    for name in names:
        found = read_view(node, name)
        assert (found["count"], found["cuda_bytes"], found["nvml_bytes"]) == (1, 700 * MIB, [700 * MIB]), found
    check_shares_sum(node.system, pids, 3, lambda *all_: all(abs(share - 0.2) <= 0.01 for share in all_))


def test_a_sixth_fifth_waits_until_one_ends(node: RealNode) -> None:
    names = fifths(node, *range(5))
    node.running(*names)
    (last,) = fifths(node, 5)
    wait_until(lambda: any("cannot allocate all claims" in text for text in node.events(last)), "the scheduler's word")
    assert node.phase(last) == "Pending"
    node.delete(names[0])
    node.running(last)
    assert read_view(node, last)["cuda_bytes"] == 700 * MIB


def test_two_and_a_half_gpus(node: RealNode) -> None:
    distinct = [{"distinctAttribute": "gpu.vgpu.dev/uuid"}]
    use(node, "many", {"count": 2}, amounts(500, "2Gi"), constraints=distinct)
    node.running("many")
    found = read_view(node, "many")
    assert found["count"] == 3
    made = node.slices()[node.slice_of("many")]
    by_size = sorted((one.min_milli, one.mem_max_bytes) for one in made.devices)
    assert [milli for milli, _ in by_size] == [500, 1000, 1000]
    assert sorted(found["nvml_bytes"]) == [size for _, size in by_size]
    assert by_size[0][1] == 2048 * MIB
    status = wait_until(lambda: node.api.claim("many")["status"].get("devices"), "the claim's status")
    status_sizes = sorted((one["data"]["smMilli"]["min"], one["data"]["memoryBytes"]["max"]) for one in status)
    assert status_sizes == by_size and {one["data"]["slice"] for one in status} == {made.name}


@pytest.mark.alone
def test_a_quarter_borrows_up_to_its_maximum_and_is_resized_under_way(node: RealNode) -> None:
    use(node, "quarter", amounts(250, "1Gi", smMax="1000") | on_gpu(1))
    pids = node.at_work("quarter")
    check_shares_sum(node.system, pids, 2, lambda share: share > 0.9, device=1)
    name = node.slice_of("quarter")
    node.system.vgpu("slice", "set", name, "--max", "0.25")
    check_shares_sum(node.system, pids, 2, lambda share: abs(share - 0.25) < 0.02, device=1)
    with pytest.raises(PartError, match="make another claim to get more"):
        node.system.vgpu("slice", "set", name, "--min", "0.5", "--max", "0.5")
    assert node.pids("quarter") == pids


def test_a_device_class_makes_a_slice_of_class_latency(node: RealNode) -> None:
    use(node, "quick", amounts(300, "1Gi") | {"deviceClassName": "vgpu-latency"})
    node.running("quick")
    assert node.slices()[node.slice_of("quick")].spec.service_class == pb.SERVICE_CLASS_LATENCY


def test_two_containers_of_a_pod_are_in_one_slice(node: RealNode) -> None:
    node.api.create(claim("pair", amounts(500, "2Gi")))  # enough for a context of each
    node.run(pod("pair", VIEW_AND_LOAD, VIEW_AND_LOAD, claim_name="pair"))
    node.running("pair")
    assert [read_view(node, "pair", name)["cuda_bytes"] for name in ("c0", "c1")] == [2048 * MIB] * 2
    wait_until(lambda: len(node.pids("pair")) == 2, "two programs in the slice")
    assert len(node.slices()[node.slice_of("pair")].containers) == 2


def test_fixed_parts_of_a_pods_containers_are_one_slice(node: RealNode) -> None:
    """The scheduler makes one claim for both, and takes two halves of one GPU."""
    given = pod("parts", VIEW_AND_LOAD, VIEW_AND_LOAD)
    for container in given["spec"]["containers"]:
        container["resources"] = {"limits": {"vgpu.dev/half": "1"}}
    node.run(given)
    node.running("parts")
    first, second = (read_view(node, "parts", name) for name in ("c0", "c1"))
    (made,) = node.slices().values()
    (share,) = made.devices
    assert (share.min_milli, share.max_milli, len(made.containers)) == (1000, 1000, 2)
    assert (first["count"], first["cuda_bytes"]) == (second["count"], second["cuda_bytes"]) == (1, share.mem_max_bytes)


def test_a_container_gets_the_alternative_that_the_scheduler_took(node: RealNode) -> None:
    """It names the request, and not one of the alternatives, which kubelet does not know."""
    sizes = {"large": amounts(1000, "1Ti"), "small": amounts(500, "1Gi")}
    alternatives = [{"name": name, "deviceClassName": "vgpu", **size} for name, size in sizes.items()]
    wanted = claim("either")
    wanted["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": alternatives}]
    node.api.create(wanted)
    given = pod("either", VIEW_AND_LOAD, claim_name="either")
    given["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu", "request": "gpu"}]}
    node.run(given)
    node.running("either")
    assert read_view(node, "either")["cuda_bytes"] == 1024 * MIB


def test_a_container_that_restarts_is_in_its_slice_again(node: RealNode) -> None:
    node.api.create(claim("crash", amounts(500, "1Gi")))
    node.run(pod("crash", ("sh", "-c", f"{VIEW}; exit 1"), claim_name="crash", restart="Always"))

    def restarts() -> int:
        statuses = node.pod("crash")["status"].get("containerStatuses", [])
        return sum(one["restartCount"] for one in statuses)

    wait_until(lambda: restarts() >= 2, "two restarts")
    assert read_view(node, "crash")["cuda_bytes"] == 1024 * MIB
    assert list(node.slices()) == [node.slice_of("crash")]


def test_a_claims_error_is_an_event_of_its_pod(node: RealNode) -> None:
    parameters = {"apiVersion": "vgpu.dev/v1alpha1", "kind": "SliceConfig", "class": "gold"}
    config = [{"opaque": {"driver": "gpu.vgpu.dev", "parameters": parameters}}]
    use(node, "wrong", amounts(500, "1Gi"), config=config)
    said = "claim default/wrong, class: 'gold' is no class: write batch or latency"
    wait_until(
        lambda: any(said in text for text in node.events("wrong")), f"the event; there are {node.events('wrong')}"
    )


# ---- another pod ----


def edits_of(node: RealNode, claim_name: str) -> dict[str, Any]:
    """What a claim's CDI device does to a container."""
    (path,) = node.cdi.glob(f"*{node.slice_of(claim_name)}.json")
    content = json.loads(path.read_text())
    env = content["devices"][0]["containerEdits"]["env"] + content["containerEdits"]["env"]
    return {**content["containerEdits"], "env": env}


def test_a_pod_that_mounts_all_of_anothers_device_gets_no_slice(node: RealNode) -> None:
    """By hostPath, as a user who may mount anything could; hooks cannot be had that way."""
    use(node, "owner", amounts(500, "1Gi"))
    node.running("owner")
    edits = edits_of(node, "owner")
    given = pod("thief", (VIEW,))
    (container,) = given["spec"]["containers"]
    container["env"] += [dict(zip(("name", "value"), one.split("=", 1), strict=True)) for one in edits["env"]]
    volumes = []
    for number, mount in enumerate(edits["mounts"]):
        volumes.append({"name": f"m{number}", "hostPath": {"path": mount["hostPath"]}})
        where = {"name": f"m{number}", "mountPath": mount["containerPath"], "readOnly": True}
        container["volumeMounts"] = [*container["volumeMounts"], where]
    node.run(given, volumes=volumes)
    node.wait_for_end("thief")
    assert node.phase("thief") == "Failed"
    assert not node.read_output("thief")
    assert len(node.slices()[node.slice_of("owner")].containers) == 1


def test_a_container_of_another_pod_with_the_cdi_device_does_not_start(node: RealNode, tmp_path: Path) -> None:
    """An engine's own way, in the other pod's cgroup, with the device's hooks."""
    use(node, "owner", amounts(500, "1Gi"))
    node.run(pod("other"))
    node.running("owner", "other")
    uid = node.pod("other")["metadata"]["uid"]
    runc = engine.find(engine.LOW_LEVEL) or ""
    subprocess.run([runc, "spec"], cwd=tmp_path, check=True)
    spec = json.loads((tmp_path / "config.json").read_text())
    edits = edits_of(node, "owner")
    root = tmp_path / "root"
    root.mkdir()
    node.ctr("image", "mount", "--rw", IMAGE, str(root))
    spec["root"] = {"path": str(root)}
    spec["process"] |= {"args": ["true"], "terminal": False, "env": [*spec["process"]["env"], *edits["env"]]}
    spec["linux"]["cgroupsPath"] = f"/{node.directory.name}/kubepods/besteffort/pod{uid}/by-hand"
    for mount in edits["mounts"]:
        made = {"source": mount["hostPath"], "destination": mount["containerPath"], "options": mount["options"]}
        spec["mounts"].append(made | {"type": "bind"})
    spec["hooks"] = {"createRuntime": [{k: v for k, v in h.items() if k != "hookName"} for h in edits["hooks"][:1]]}
    (tmp_path / "config.json").write_text(json.dumps(spec))
    try:
        done = subprocess.run([runc, "run", "by-hand"], cwd=tmp_path, capture_output=True, text=True, check=False)
    finally:
        node.ctr("image", "unmount", str(root))
    assert done.returncode and f"the ResourceClaim default/owner is not reserved for pod {uid}" in done.stderr


# ---- restarts ----


@pytest.mark.parametrize("part", ["kubelet", "driver", "vgpud"])
def test_pods_do_not_notice_the_restart_of(node: RealNode, part: str) -> None:
    use(node, "stays", amounts(400, "1Gi"))
    pids = node.at_work("stays")
    slices = node.slices()
    node.restart(part)
    wait_until(node.has_resource_slices, "the ResourceSlices")
    use(node, "later", amounts(400, "1Gi"))
    node.at_work("later")
    wait_until(lambda: node.pids("stays") == pids, "the same program in its slice, to a vgpud that was started again")
    (status,) = node.pod("stays")["status"]["containerStatuses"]
    assert status["restartCount"] == 0
    done = node.read_output("stays")[-1]["completed"]
    wait_until(lambda: node.read_output("stays")[-1]["completed"] > done, "more kernels")
    assert node.slices().keys() == {*slices, node.slice_of("later")}
    node.delete("stays")
    wait_until(lambda: len(node.slices()) == 1, "the end of the first slice")
