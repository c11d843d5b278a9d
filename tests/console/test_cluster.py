"""The nodes of a Slurm cluster on the page of nodes: what its controller has published on this machine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.cluster.conftest import system
from tests.cluster.system import System
from vgpud.cluster.shell import published
from vgpud.console.live import cluster
from vgpud.console.live.cluster import ClusterStatus

from .conftest import text_of

__all__ = ["system"]  # a fixture


@pytest.fixture
def look(alice: TestClient, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The page, of what is in a directory now."""
    monkeypatch.setattr(cluster, "KNOWN_S", 0.0)

    def ask(directory: Path) -> str:
        alice.app.state.site.cluster = ClusterStatus(directory)  # type: ignore[attr-defined]
        page, part = alice.get("/nodes"), alice.get("/nodes/part")
        assert (page.status_code, part.status_code) == (200, 200) and text_of(part.text) in text_of(page.text)
        return str(page.text)

    return ask


def test_nodes_of_a_controller(system: System, look: Any) -> None:
    one = system.service()
    system.submit("shard:500")
    system.submit("gpu:2")
    for _ in range(2):
        one.look()
    html = look(system.options.run)
    text = text_of(html)
    assert "Slurm partition gpu" in text and "2 jobs run 0 wait" in text and "0.5 GPUs free of 3" in text
    assert "n1 2 0 1 n2 1 0.5 1" in text and "Nothing new arrives" not in text
    one.close()
    assert "does not decide at present" in look(system.options.run)


def test_a_machine_without_a_controller(tmp_path: Path, look: Any) -> None:
    assert "Slurm" not in look(tmp_path)
    assert asyncio.run(ClusterStatus(None).look()) is None


STATUS: dict[str, Any] = {
    "partition": "<gpu>",
    "jobs": [{"state": "running", "nodes": ["n1", "n2"]}, {"state": "pending", "nodes": []}],
    "jobs_left_out": 0,
    "queues": [{"running": 1, "waiting": 1}],
    "refused": [],
    "nodes": [
        {"name": "n2", "devices": 4, "devices_offered": 4, "free_milli": 3500},
        {"name": "n1", "devices": 2, "devices_offered": 0, "free_milli": 0},
    ],
    "unusable_nodes": {"n3": "node n3 has no shards: write Gres=gpu:2,shard:2000"},
    "foreign_jobs": 0,
}


def test_nodes_that_take_no_jobs_say_why(tmp_path: Path, look: Any) -> None:
    published.publish(tmp_path, STATUS)
    html = look(tmp_path)
    assert "partition &lt;gpu&gt;" in html
    text = text_of(html)
    assert "n1 2 0 1 drained, down" in text and "n2 4 3.5 1 n3 0 0 0 node n3 has no shards" in text


@pytest.mark.parametrize(
    "damage", [{"nodes": [1]}, {"nodes": None}, {"queues": "x"}, {"jobs": [{}]}, {"unusable_nodes": 7}]
)
def test_a_status_of_another_version_is_left_out(tmp_path: Path, look: Any, damage: dict[str, Any]) -> None:
    published.publish(tmp_path, {**STATUS, **damage})
    assert "Slurm" not in look(tmp_path)
    (tmp_path / published.STATUS).write_text("{")
    assert "Slurm" not in look(tmp_path)


def test_many_nodes_are_a_bounded_page() -> None:
    nodes = [{**STATUS["nodes"][0], "name": f"n{at}"} for at in range(cluster.NODES_MAX + 5)]
    found = cluster.make_view(json.loads(json.dumps({**STATUS, "nodes": nodes, "unusable_nodes": {}})), is_fresh=True)
    assert (len(found.nodes), found.left_out) == (cluster.NODES_MAX, 5)
