"""`daemon.mode: pod` on a real node: both pods start on a clean one, and are replaced under other pods."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.k8s import node as nodes
from tests.k8s.pod_node import PodNode, pod_node
from tests.k8s.test_upgrade import PODS, start, template, waits_s
from vgpud.cli.demo.private_system import wait_for

pytestmark = [
    pytest.mark.skipif(bool(nodes.missing()), reason=nodes.missing() or "there is a node"),
    pytest.mark.root,
    pytest.mark.slow,
]


@pytest.fixture(scope="module")
def node() -> Iterator[PodNode]:
    with pod_node({"devices": "4", "memory_bytes": "40G"}) as made:
        made.api.create(template())
        yield made


def test_an_upgrade_fails_no_pod_and_keeps_none_waiting(node: PodNode) -> None:
    wait_for("both pods", lambda: all(node.system_pods().values()), nodes.READY_S)
    old = node.system_pods()
    before = start(node, "before", PODS)
    node.running(*before)
    undisturbed = max(waits_s(node.pod(name)) for name in before)
    node.upgrade()
    names: list[str] = []
    for number in range(10):  # some begin before, some while and some after the daemon is away
        names += start(node, f"during-{number}", PODS // 10)
        time.sleep(1)
    node.running(*names)
    waited = [waits_s(node.pod(name)) for name in names]

    def are_replaced() -> bool:
        return all(len(pods) == 1 and pods != old[name] for name, pods in node.system_pods().items())

    wait_for("the next pods of both", are_replaced, nodes.READY_S)
    assert {node.phase(name) for name in (*before, *names)} == {"Running"}
    assert max(waited) <= undisturbed + 10, (undisturbed, sorted(waited))
    print(f"longest wait: {undisturbed} s without an upgrade, {max(waited)} s with it: {sorted(waited)}")
