"""Descriptions of clusters: nodes x GPUs, Tiresias' and openb's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from vgpud.simulate import clusters
from vgpud.simulate.trace import TraceError

DATA = Path(__file__).resolve().parents[2] / "benchmarks" / "data"


def gpus(text: str) -> list[int]:
    return [len(node.devices) for node in clusters.parse(text)]


def test_nodes_by_gpus() -> None:
    assert gpus("8x8") == [8] * 8
    nodes = clusters.parse("2x8:V100+1x4:T4")
    assert [(node.name, len(node.devices), node.gpu_model) for node in nodes] == [
        ("n0", 8, "V100"),
        ("n1", 8, "V100"),
        ("n2", 4, "T4"),
    ]
    uuids = [device.uuid for node in nodes for device in node.devices]
    assert len(set(uuids)) == 20


def test_files(tmp_path: Path) -> None:
    assert gpus(str(DATA / "tiresias" / "n8g8.csv")) == [8] * 8
    assert gpus(str(DATA / "tiresias" / "cluster_spec.csv")) == [4] * 16
    path = tmp_path / "nodes.csv"
    path.write_text("sn,cpu_milli,memory_mib,gpu,model\na,64000,262144,2,P100\nb,32000,1024,0,\n")
    a, b = clusters.parse(str(path))
    assert (a.name, len(a.devices), a.cpu_milli, a.ram_bytes, a.gpu_model) == ("a", 2, 64000, 262144 << 20, "P100")
    assert (b.name, len(b.devices)) == ("b", 0)


@pytest.mark.parametrize("text", ["8", "8x", "axb", "8x8+", "-1x8", "nowhere.csv", ""])
def test_refused_descriptions(text: str) -> None:
    with pytest.raises(TraceError, match=r"neither a file nor nodes x GPUs: write NODESxGPUS, for example 8x8"):
        clusters.parse(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [("0x8", "has no GPU"), ("8x0", "has no GPU"), ("9999999x9", "too large"), ("9999999x0", "too large")],
)
def test_refused_sizes(text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        clusters.parse(text)


def test_refused_files(tmp_path: Path) -> None:
    path = tmp_path / "c.csv"
    path.write_text("sn,gpu\na,2\na,2\n")
    with pytest.raises(TraceError, match=r"c\.csv:3: sn is 'a': another node has that name"):
        clusters.parse(str(path))
    path.write_text("sn,gpu\na,-2\n")
    with pytest.raises(TraceError, match=r"c\.csv:2: gpu is -2"):
        clusters.parse(str(path))
    path.write_text("x,y\n1,2\n")
    with pytest.raises(TraceError, match="no cluster has these columns"):
        clusters.parse(str(path))
