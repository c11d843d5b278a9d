"""The memory of a model in Python by some steps of it on a private simulated device, where the model can be run."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vgpud.predict.interpreter import Torch
    from vgpud.predict.looked import Looked

#: as entry.TIMEOUT_S: PyTorch is imported once more
LIMIT_S = 120.0
#: as in entry.py: the module path is ours before anything else is imported
_START = "import sys; sys.path[:]=sys.argv[1:-1]; from vgpud.predict.dry_steps import main; main()"


def find_own_torch(model: str) -> Torch | None:
    """The PyTorch of this interpreter, which imports the model; None: the model is a file, or there is none."""
    from vgpud.libraries.environment import remove_shim
    from vgpud.predict import entry, interpreter

    return interpreter.find_torch([sys.executable], remove_shim(os.environ)) if entry.is_entry_point(model) else None


def find_environment(torch: Torch | None) -> dict[str, str] | None:
    """In which that PyTorch can be imported: without NVIDIA's libraries it needs those of the simulated device."""
    from vgpud.libraries.environment import preload_simulated

    return preload_simulated(os.environ) if torch and torch.cuda else None


def measure_memory(result: Looked, torch: Torch | None) -> Looked:
    """The same with the memory of the dry run, or with the reason why there is none."""
    from vgpud.errors import VgpudError

    if torch is None:
        return result
    if not torch.cuda:
        return replace(result, why_no_run=f"torch {torch.version} has no CUDA")
    try:
        return _run(result)
    except (VgpudError, OSError) as error:
        return replace(result, why_no_run=str(error))


def _run(result: Looked) -> Looked:
    from vgpud.cli.predict.predict_run import run_dry
    from vgpud.predict import dry_device, dry_steps

    device = dry_device.find_device(result.gpu.name)
    with tempfile.TemporaryDirectory(prefix="vgpu-predict-") as folder:
        error_file = Path(folder) / "error"
        asked = {
            "model": result.query.model,
            "batch": result.read.counts.batch,
            "optimizer": result.query.optimizer,
            "precision": result.query.precision,
            "error_file": str(error_file),
        }
        command = [sys.executable, "-c", _START, os.getcwd(), *sys.path, json.dumps(asked)]
        _torch, results, exit_code = run_dry(command, device, dry_steps.STEPS, os.environ, limit_s=LIMIT_S)
        why = error_file.read_text() if error_file.exists() else f"its steps ended with exit code {exit_code}"
    if exit_code or not results:
        return replace(result, why_no_run=why if exit_code else "its steps used no device")
    memory = results[0].memory()
    return replace(result, dry_memory=(memory.low, memory.value, memory.high))
