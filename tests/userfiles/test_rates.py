"""Tables of speeds: the one that is shipped, a site's own, and both."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from vgpud.core.devices.rates import model_key, speed_on
from vgpud.userfiles import rates
from vgpud.userfiles.bounded import FileError

ROOT = Path(__file__).resolve().parents[2]
HEAD = "model,gpu,rate\n"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gavel_rates", ROOT / "tools" / "gavel_rates.py")
    assert spec and spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


# ---- the shipped one ----


def test_it_is_made_from_the_data(tool: ModuleType) -> None:
    text = rates.SHIPPED["gavel"].read_text()
    assert text == tool.text(), "run tools/gavel_rates.py"
    assert "MIT License" in text and "Copyright (c) 2020 Stanford" in text


def test_it_has_every_measurement_of_one_gpu() -> None:
    """Compared with the data itself: the ratio of two GPUs, to the thousandths that are kept."""
    table = json.loads((ROOT / "benchmarks/data/gavel/simulation_throughputs.json").read_text())
    found = rates.read_all(["gavel"])
    ones = [key.removesuffix(", 1)").strip("('") for key in table["v100"] if key.endswith(", 1)")]
    assert len(ones) == 26
    for name in ones:
        alone = {gpu: table[gpu][f"('{name}', 1)"]["null"] for gpu in ("k80", "p100", "v100")}
        for gpu, rate in alone.items():
            milli = 1000 * rate / max(alone.values())
            assert speed_on(found[model_key(name)], gpu.upper()) == pytest.approx(milli, abs=1), (name, gpu)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("resnet18", "ResNet-18 (batch size 64)"),
        ("ResNet-50", "ResNet-50 (batch size 64)"),
        ("transformer", "Transformer (batch size 64)"),
        ("lm", "LM (batch size 20)"),
        ("recommendation", "Recommendation (batch size 2048)"),
        ("a3c", "A3C"),
        ("cyclegan", "CycleGAN"),
    ],
)
def test_a_name_alone_is_the_middle_size(name: str, size: str) -> None:
    found = rates.read_all(["gavel"])
    assert found[model_key(name)] == found[model_key(size)]


def test_it_is_the_table_of_the_documents() -> None:
    """docs/cluster.md shows what a user gets."""
    found = rates.read_all(["gavel"])
    lines = (ROOT / "docs" / "cluster.md").read_text().splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    shown = {row[0]: row[2:] for row in rows if row[0] in found}
    assert set(shown) == {"resnet18", "resnet50", "transformer", "lm", "recommendation", "a3c", "cyclegan"}
    for model, speeds in shown.items():
        assert [float(speed) for speed in speeds] == pytest.approx([m / 1000 for _, m in found[model]], abs=0.0055)


# ---- a site's own ----


def write_table(tmp_path: Path, text: str, name: str = "mine.csv") -> str:
    path = tmp_path / name
    path.write_text(text)
    return str(path)


def test_none_is_empty() -> None:
    assert rates.read_all([]) == {}


@pytest.mark.parametrize("first", [True, False])
def test_a_model_is_taken_from_the_sites_own_table(tmp_path: Path, first: bool) -> None:
    mine = write_table(tmp_path, HEAD + "ResNet-50,A100,30\nresnet_50,V100,10\nmine,A100,1\n")
    found = rates.read_all([mine, "gavel"] if first else ["gavel", mine])
    shipped = rates.read_all(["gavel"])
    assert found["resnet50"] == (("A100", 1000), ("V100", 333)), "units differ: none of its rows is Gavel's"
    assert found["mine"] == (("A100", 1000),)
    assert {key: found[key] for key in shipped if key != "resnet50"} == {
        key: shipped[key] for key in shipped if key != "resnet50"
    }


def test_a_later_file_wins(tmp_path: Path) -> None:
    one = write_table(tmp_path, HEAD + "m,a,1\nm,b,2\n", "one.csv")
    two = write_table(tmp_path, HEAD + "M,a,2\nM,b,1\n", "two.csv")
    assert rates.read_all([one, two])["m"] == (("a", 1000), ("b", 500))
    assert rates.read_all([two, one])["m"] == (("a", 500), ("b", 1000))


def test_a_file_may_be_called_gavel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path, HEAD + "mine,a,1\n", "gavel")
    monkeypatch.chdir(tmp_path)
    assert rates.read_all(["./gavel"]) == {"mine": (("a", 1000),)}
    assert "resnet50" in rates.read_all(["gavel"])


def test_comments_are_passed_over(tmp_path: Path) -> None:
    text = '# measured, "as is"\n\n' + HEAD + "# one\nm,a,1\n"
    assert rates.read_all([write_table(tmp_path, text)]) == {"m": (("a", 1000),)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + "ResNet-50,V100,1\nresnet50,v100,2\n", "mine.csv:3: resnet50 on v100 is there twice"),
        (HEAD + "-,V100,1\n", "mine.csv:2: write a model, a GPU and a rate"),
        (HEAD + "m,-,1\n", "mine.csv:2: write a model, a GPU and a rate"),
        (HEAD + "m,a,-1\n", "mine.csv:2: the rate is '-1'"),
        (HEAD + "m,a,inf\n", "mine.csv:2: the rate is 'inf'"),
        ("# about\nmodel,gpu\n", "mine.csv:2: the header is model,gpu; it must be model,gpu,rate"),
        (HEAD + "m," + "a" * 200_000 + ",1\n", "mine.csv:2: field larger"),
    ],
)
def test_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(rates.RatesError) as refused:
        rates.read_all(["gavel", write_table(tmp_path, text)])
    assert message in str(refused.value) and "\n" not in str(refused.value)


def test_a_name_that_is_neither_is_a_file_that_is_missing() -> None:
    with pytest.raises(FileError, match="gavle"):
        rates.read_all(["gavle"])
