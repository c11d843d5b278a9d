"""The interpreter with PyTorch's build for CUDA, or the reason why there is none: what needs it is skipped then."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.pytorch import environment


def find_python(settings: Mapping[str, str], folder: Path) -> str:
    """The interpreter that the user names, as it is, or that of the environment in the folder. Or it skips the test."""
    if named := settings.get("VGPU_TORCH_PYTHON"):
        return named
    if not settings.get("VGPU_TEST_TORCH"):
        pytest.skip("PyTorch has 0.5 GB: `make test TORCH=1` gets it, or VGPU_TORCH_PYTHON names a Python that has it")
    try:
        return str(environment.make(folder))
    except environment.CannotMakeError as error:
        pytest.skip(f"PyTorch's build for CUDA cannot be had: {error}")


@pytest.fixture(scope="session")
def torch_python() -> str:
    return find_python(os.environ, Path(sys.prefix) / "torch")
