"""deploy/prometheus and deploy/grafana: valid by promtool and by Grafana's schema, and of metrics that exist."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD = ROOT / "deploy" / "grafana" / "vgpu.json"
#: what Grafana puts in place of its variables
VARIABLES = {"$__rate_interval": "5m", "$instance": ".*", "$gpu": ".*", "$slice": ".*"}


def promtool(folder: Path, *words: str) -> None:
    found = shutil.which("promtool")
    if not found:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run([found, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text())


def panels() -> list[Any]:
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    """Of the dashboard, its variables filled in."""
    texts = [target["expr"] for panel in panels() for target in panel["targets"]]
    for name, value in VARIABLES.items():
        texts = [text.replace(name, value) for text in texts]
    return texts


def rules() -> list[Any]:
    (group,) = yaml.safe_load((PROMETHEUS / "vgpu-alerts.yaml").read_text())["groups"]
    return list(group["rules"])


def test_the_rules_are_valid_and_fire_when_they_should() -> None:
    promtool(PROMETHEUS, "check", "rules", "vgpu-alerts.yaml")
    promtool(PROMETHEUS, "test", "rules", "vgpu-alerts-test.yaml")


def test_the_example_of_a_configuration_is_valid() -> None:
    promtool(PROMETHEUS, "check", "config", "scrape.yaml")


def test_the_queries_of_the_dashboard_are_valid(tmp_path: Path) -> None:
    made = [{"record": f"dashboard:query{number}", "expr": text} for number, text in enumerate(expressions())]
    assert len(made) > 20
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": made}]}))
    promtool(tmp_path, "check", "rules", "rules.yaml")


def test_queries_and_rules_name_metrics_that_exist() -> None:
    listed = re.findall(r"^\| `(vgpu_\w+)` \| (\w+)", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE)
    known = {name for name, kind in listed if kind != "histogram"}
    known |= {f"{name}{end}" for name, kind in listed if kind == "histogram" for end in ("_bucket", "_sum", "_count")}
    texts = [*expressions(), *(rule["expr"] for rule in rules())]
    texts += [variable["query"] for variable in dashboard()["templating"]["list"]]
    used = {name for text in texts for name in re.findall(r"\bvgpu_\w+", text)}
    assert used - known == set()


def test_every_alert_says_what_and_how_bad() -> None:
    for rule in rules():
        assert re.fullmatch(r"Vgpu\w+", rule["alert"])
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert rule["annotations"]["summary"]


# ---- the dashboard ----


def differences(document: Any, read_back: Any, where: str = "") -> Iterator[str]:
    """What Grafana's schema has dropped or changed."""
    if isinstance(document, dict) and isinstance(read_back, dict):
        for key, value in document.items():
            if key in read_back:
                yield from differences(value, read_back[key], f"{where}.{key}")
            else:
                yield f"{where}.{key} is not in the schema"
    elif isinstance(document, list) and isinstance(read_back, list) and len(document) == len(read_back):
        for index, (one, other) in enumerate(zip(document, read_back, strict=True)):
            yield from differences(one, other, f"{where}[{index}]")
    elif document != read_back:
        yield f"{where}: {document!r} is read as {read_back!r}"


def read_dashboard(document: Any) -> Any:
    """The document as Grafana's own types hold it."""
    encoder = pytest.importorskip("grafana_foundation_sdk.cog.encoder")
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    return json.loads(encoder.JSONEncoder().encode(Dashboard.from_json(document)))


def test_the_dashboard_is_of_grafanas_schema() -> None:
    assert list(differences(dashboard(), read_dashboard(dashboard()))) == []
    wrong = dashboard()
    wrong["panels"][0]["titel"] = wrong["panels"][0].pop("title")
    assert list(differences(wrong, read_dashboard(wrong))) == [".panels[0].titel is not in the schema"]


def test_panels_are_numbered_named_and_do_not_overlap() -> None:
    every = dashboard()["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    taken: dict[tuple[int, int], str] = {}
    for panel in every:
        place = panel["gridPos"]
        assert panel["title"] and place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    units = {panel["fieldConfig"]["defaults"]["unit"] for panel in panels()}
    assert {"percentunit", "bytes", "celsius", "watt", "s"} <= units
