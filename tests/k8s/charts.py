"""The chart as `helm template` makes it, and objects checked against Kubernetes' own types, without a cluster."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy" / "helm" / "vgpud"
VERSION = "1.36.2"
IMAGE = "image.repository=registry.example/vgpud-k8s"
#: resources of others' operators, which lightkube has no types of
FOREIGN = {"ServiceMonitor"}


def helm(*words: str) -> subprocess.CompletedProcess[str]:
    """helm, of the package helm-binary."""
    command = [str(Path(sys.executable).parent / "helm"), *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def template(*settings: str, version: str = VERSION, namespace: str = "vgpu-system") -> str:
    """The chart's objects as YAML. settings: as for --set. Fails with what helm says."""
    given = [word for setting in (IMAGE, *settings) for word in ("--set", setting)]
    done = helm("template", "x", str(CHART), "--kube-version", version, "-n", namespace, *given)
    assert done.returncode == 0, done.stderr
    return done.stdout


def render_objects(*settings: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(template(*settings)) if one]


def wrong(manifest: dict[str, Any]) -> list[str]:
    """What Kubernetes' types say against an object: unknown fields, missing ones, values of another type."""
    if manifest.get("kind") in FOREIGN:
        return []
    group, _, version = str(manifest["apiVersion"]).rpartition("/")
    # the models alone: lightkube's resources are in one table of the process with those that vgpud declares
    module = importlib.import_module(f"lightkube.models.{group.split('.')[0] or 'core'}_{version}")
    try:
        made = msgspec.convert(manifest, getattr(module, manifest["kind"]))
    except msgspec.ValidationError as error:
        return [str(error)]
    return find_lost_fields(manifest, msgspec.to_builtins(made))


def find_lost_fields(original: Any, read_back: Any, path: str = "$") -> list[str]:
    """Fields that a type does not have: they do not come back."""
    if isinstance(original, dict) and isinstance(read_back, dict):
        return [
            name
            for key, value in original.items()
            for name in find_lost_fields(value, read_back.get(key), f"{path}.{key}")
        ]
    if isinstance(original, list) and isinstance(read_back, list):
        pairs: Sequence[tuple[Any, Any]] = list(zip(original, read_back, strict=True))
        return [name for n, (a, b) in enumerate(pairs) for name in find_lost_fields(a, b, f"{path}[{n}]")]
    return [path] if original is not None and read_back is None else []
