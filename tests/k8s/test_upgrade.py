"""Upgrades on a real node: of the driver, under pods that run and others that start; of pods with whole GPUs."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
import yaml
from lightkube.types import PatchType

from tests.daemon.node import wait_until
from tests.k8s import control_plane as plane
from tests.k8s import node as nodes
from tests.k8s.node import RealNode, cluster
from tests.k8s.pods import amounts, claim, on_gpu, pod

PODS = 20

pytestmark = [
    pytest.mark.skipif(bool(nodes.missing()), reason=nodes.missing() or "there is a node"),
    pytest.mark.root,
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def node() -> Iterator[RealNode]:
    with cluster({"devices": "4", "memory_bytes": "40G"}) as made:
        made.api.create(template())
        yield made


def template() -> dict[str, Any]:
    """Each pod has a claim of its own: a twentieth of a GPU."""
    wanted = claim("part", amounts(50, "1Gi"))
    return {**wanted, "kind": "ResourceClaimTemplate", "spec": {"spec": wanted["spec"]}}


def start(node: RealNode, begin: str, count: int) -> list[str]:
    names = [f"{begin}-{number}" for number in range(count)]
    node.run(*(pod(name, template="part") for name in names))
    return names


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 does not know the Z


def waits_s(one: dict[str, Any]) -> float:
    """How long a pod that runs has waited since it was placed."""
    times = {c["type"]: _time(c["lastTransitionTime"]) for c in one["status"]["conditions"]}
    return (times["ContainersReady"] - times["PodScheduled"]).total_seconds()


def replace(node: RealNode, uid: str) -> None:
    """As the DaemonSet does: the old driver ends when the next one is ready."""
    old = node.driver
    node.start_driver(uid)
    wait_until((node.directory / uid / "ready").exists, "the next driver's readiness")
    assert old and old.stop(signal.SIGTERM, 30) == 0


def test_no_pod_waits_for_the_next_driver(node: RealNode) -> None:
    """Without an upgrade one pod after another takes its time, too: that is what it is compared with."""
    before = start(node, "before", PODS)
    node.running(*before)
    undisturbed = max(waits_s(node.pod(name)) for name in before)
    replace(node, "aaaaaaaa")
    names: list[str] = []
    for number in range(4):  # some are under way whenever something changes
        names += start(node, f"during-{number}", PODS // 4)
        if number == 1:
            replace(node, "bbbbbbbb")
    node.running(*names)
    waited = [waits_s(node.pod(name)) for name in names]
    assert max(waited) <= undisturbed + 10, (undisturbed, sorted(waited))
    assert all(node.phase(name) == "Running" for name in before)
    said = [line for name in names for line in node.events(name) if "not registered" in line or "Failed" in line]
    assert not said
    print(f"longest wait: {undisturbed} s without an upgrade, {max(waited)} s with it")


# ---- pods of whole GPUs ----

Deployment = plane.kind_of("apps/v1", "Deployment")


def deployment() -> dict[str, Any]:
    """One replica, on the only whole GPU that will do."""
    made = pod("whole", template="whole", restart="Always")
    labels = {"app": "whole"}
    made["spec"]["volumes"] = [{"name": "programs", "emptyDir": {}}]
    spec = {"replicas": 1, "selector": {"matchLabels": labels}}
    spec["template"] = {"metadata": {"labels": labels}, "spec": made["spec"]}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "whole"}, "spec": spec}


def update_deployment(node: RealNode, **fields: Any) -> None:
    patch = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}, **fields}}
    node.api.client().patch(Deployment, "whole", patch, namespace="default", patch_type=PatchType.MERGE)


def replicas(node: RealNode, of: str) -> int:
    status = node.api.client().get(Deployment, "whole", namespace="default")["status"]
    return int(status.get(of, 0))


def test_the_documented_strategy_updates_a_deployment_of_whole_gpus(node: RealNode) -> None:
    """Kubernetes' default starts a new pod first, for which there is no GPU."""
    (text,) = re.findall(r"`(strategy: \{.*\})` in the Deployment", (plane.ROOT / "docs/kubernetes.md").read_text())
    node.clear()
    wanted = claim("whole", on_gpu(0))
    node.api.create({**wanted, "kind": "ResourceClaimTemplate", "spec": {"spec": wanted["spec"]}})
    node.api.create(deployment())
    wait_until(lambda: replicas(node, "readyReplicas") == 1, "the first pod")
    update_deployment(node)
    wait_until(lambda: replicas(node, "unavailableReplicas") == 1, "a pod too many")
    time.sleep(5)
    assert (replicas(node, "readyReplicas"), replicas(node, "unavailableReplicas")) == (1, 1), "it stands still"
    update_deployment(node, **yaml.safe_load(text))
    wait_until(lambda: replicas(node, "updatedReplicas") == replicas(node, "readyReplicas") == 1, "the update")
    node.api.remove(Deployment, "whole")
