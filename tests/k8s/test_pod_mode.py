"""`daemon.mode: pod` on a real node: the daemon's pod starts on a clean one, and is replaced under other pods."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.k8s import node as nodes
from tests.k8s.pod_node import PodNode, pod_node
from tests.k8s.test_upgrade import start, template, waits_s
from vgpud.cli.demo.private_system import wait_for

pytestmark = [
    pytest.mark.skipif(bool(nodes.missing()), reason=nodes.missing() or "there is a node"),
    pytest.mark.root,
    pytest.mark.slow,
]
PODS = 10


@pytest.fixture(scope="module")
def node() -> Iterator[PodNode]:
    with pod_node({"devices": "4", "memory_bytes": "40G"}) as made:
        made.api.create(template())
        yield made


def test_the_daemons_pod_is_replaced_under_pods_that_run_and_start(node: PodNode) -> None:
    (daemon,) = node.daemon_pods()
    assert daemon["status"]["phase"] == "Running"
    before = start(node, "before", PODS)
    node.running(*before)
    undisturbed = max(waits_s(node.pod(name)) for name in before)
    node.upgrade_daemon()
    names: list[str] = []
    for number in range(5):
        names += start(node, f"during-{number}", PODS // 5)
        time.sleep(0.5)  # so that some begin before, some while and some after the daemon is away
    node.running(*names)
    waited = [waits_s(node.pod(name)) for name in names]

    def is_new() -> bool:
        pods = node.daemon_pods()
        return len(pods) == 1 and pods[0]["metadata"]["name"] != daemon["metadata"]["name"]

    wait_for("the daemon's next pod", is_new, nodes.READY_S)
    assert {node.phase(name) for name in (*before, *names)} == {"Running"}
    assert max(waited) <= undisturbed + 10, (undisturbed, sorted(waited))
    print(f"longest wait: {undisturbed} s without an upgrade, {max(waited)} s with it")
