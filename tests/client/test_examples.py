"""Every Python example of the documents runs as it is written there."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.node import Node
from tests.rules.tree import ROOT, source_files

_TORCH = """
import torch
torch.manual_seed(0)
images, labels = torch.randn(64, 4), torch.randint(2, (64,))
model, loss_of = torch.nn.Linear(4, 2), torch.nn.functional.cross_entropy
optimizer = torch.optim.SGD(model.parameters(), 0.1)
scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
from vgpud.elastic import Workers
all_steps = Workers.steps
Workers.steps = lambda self, total: all_steps(self, total // 100)  # the rest would only take its time
"""
_VISION = """
import types, torch
torchvision = types.SimpleNamespace(models=types.SimpleNamespace(resnet50=lambda: torch.nn.Conv2d(3, 8, 3)))
"""
#: outside of a slice there is nothing to watch or to load: tests/system has the functions themselves
_PRESSURE = """
import contextlib, ctypes, signal, types
from vgpud import client
assert callable(client.watch_memory_pressure) and callable(client.memory_requests)
client.watch_memory_pressure = lambda callback: contextlib.nullcontext(callback)
ctypes.CDLL = lambda name: types.SimpleNamespace(cuInit=lambda flags: 0)
signal.pause = train = lambda: None
"""
_WEIGHTS = """
import types
from vgpud import client
assert callable(client.load_weights)
client.load_weights = lambda path, device: types.SimpleNamespace(tensors=dict)
model = types.SimpleNamespace(load_state_dict=lambda tensors, assign: None)
"""
#: document -> (what its text assumes before the example, the check after it)
AROUND = {
    "docs/api.md": ("", "assert done.state == 'completed', done"),
    "docs/elastic.md": (_TORCH, "import os; assert os.path.exists('model.pt')"),
    "docs/memory-pressure.md": (_PRESSURE, ""),
    "docs/predict.md": (_VISION, "model, inputs = make(2)\nassert model(inputs).shape[:2] in ((2, 10), (2, 8))"),
    "docs/ray.md": ("", "assert isinstance(Model, ray.actor.ActorClass)"),
    "docs/shared-weights.md": (_WEIGHTS, ""),
}


def examples(name: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / name).read_text(), re.MULTILINE | re.DOTALL)


def test_all_documents_with_examples_are_listed() -> None:
    with_examples = {name for name in source_files(".md") if examples(name)}
    assert with_examples == set(AROUND)


@pytest.mark.parametrize("name", AROUND)
def test_an_example_runs_as_it_is_written(name: str, empty_node: Node, tmp_path: Path) -> None:
    before, after = AROUND[name]
    if name == "docs/ray.md":
        pytest.importorskip("ray")
    for example in examples(name):
        file = tmp_path / "example.py"
        file.write_text(f"{before}\n{example}\n{after}\n")
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
        env["VGPU_HOST"] = f"unix://{empty_node.runtime / 'vgpud.sock'}"
        done = subprocess.run(
            [sys.executable, file], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
