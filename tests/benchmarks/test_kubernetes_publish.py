"""The nodes of the publishing benchmark: what counts as an error of theirs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from lightkube import KubeConfig

from benchmarks.kubernetes.publish import Publisher, gpus_of, wait_published
from tests.k8s.fake_api import FakeApi
from tests.k8s.parts import NODE, kubeconfig


@pytest.mark.parametrize(
    ("dropped_lines", "errors"), [((), []), (("consumesCounters",), ["not stored: devices.consumesCounters"])]
)
def test_only_failures_are_errors(tmp_path: Path, dropped_lines: tuple[str, ...], errors: list[str]) -> None:
    """A line of the log, such as that the slices are written, is none."""
    with FakeApi(dropped_lines) as api:
        api.add_node(NODE)
        config = KubeConfig.from_file(kubeconfig(tmp_path, api.url))

        async def story() -> list[str]:
            node = Publisher(NODE, gpus_of(1), config)
            node.start()
            try:
                await wait_published([node], 60)
            finally:
                await node.stop()
            return node.errors

        assert asyncio.run(story()) == errors
