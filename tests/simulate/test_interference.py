"""What neighbours cost: by the sum of utilisations, by Gavel's pairs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.simulate.worlds import job
from vgpud.simulate.interference import FULL, SUMMED, Summed, gavel
from vgpud.simulate.trace import TraceError

TABLE = Path(__file__).resolve().parents[2] / "benchmarks" / "data" / "gavel" / "simulation_throughputs.json"


def test_summed() -> None:
    model = Summed()
    assert model.speed(job(0, 1), []) == FULL
    for most, slower in SUMMED:
        assert model.speed(job(0, 1, used=most - 100), [job(0, 1, used=100)]) == FULL * 1000 // slower
    crowd = [job(0, 1, used=1000)] * 3
    assert model.speed(job(0, 1, used=1000), crowd) == pytest.approx(FULL / 3.4, abs=1), "four: twice the last pairs"


def test_utilisation_that_is_not_known_is_the_share() -> None:
    model = Summed()
    known = model.speed(job(0, 1, used=500), [job(0, 1, used=500)])
    assert model.speed(job(0, 1, gpus=0.5), [job(0, 1, gpus=0.5)]) == known == FULL * 1000 // 1080


def test_gavel_pairs() -> None:
    pairs = gavel(TABLE, "v100")
    data = json.loads(TABLE.read_text())["v100"]
    row = data["('ResNet-18 (batch size 64)', 1)"]
    other = "('ResNet-18 (batch size 16)', 1)"
    one, two = (job(0, 1, model=f"ResNet-18 (batch size {size})") for size in (64, 16))
    assert pairs.speed(one, [two]) == min(FULL, round(FULL * row[other][0] / row["null"]))
    assert pairs.speed(one, []) == FULL
    both = pairs.speed(one, [two]) ** 2 // FULL
    assert pairs.speed(one, [two, two]) == max(1, both), "of two neighbours the product"
    assert all(0 < speed <= FULL for speed in pairs.speeds.values())


def test_gavel_families_and_strangers() -> None:
    pairs = gavel(TABLE, "v100")
    resnet, vgg = job(0, 1, model="resnet50", used=600), job(0, 1, model="vgg11", used=600)
    sizes = [
        speed
        for (model, other), speed in pairs.speeds.items()
        if model.startswith("ResNet-50 (") and other.startswith("ResNet-50 (")
    ]
    assert pairs.speed(resnet, [resnet]) == sum(sizes) // len(sizes)
    assert pairs.speed(resnet, [vgg]) == Summed().speed(resnet, [vgg])


@pytest.mark.parametrize("text", ["{", "[]", '{"k80": {}}', '{"v100": {"(\'a\', 1)": {}}}', '{"v100": 3}'])
def test_gavel_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(text)
    with pytest.raises(TraceError, match=r"table\.json"):
        gavel(path, "v100")


@pytest.mark.parametrize(
    "table", ["[" * 100_000, '{"v100": NaN}', '{"v100": {"(\'a\', 1)": {"null": 1, "(\'a\', 1)": [NaN]}}}']
)
def test_tables_that_are_none(tmp_path: Path, table: str) -> None:
    (tmp_path / "t.json").write_text(table)
    with pytest.raises(TraceError, match=r"t\.json"):
        gavel(tmp_path / "t.json", "v100")
