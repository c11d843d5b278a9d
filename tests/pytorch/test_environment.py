"""PyTorch's build for CUDA is got for the tests, or they say why it was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.pytorch import environment
from tests.pytorch.conftest import find_python


def test_a_python_that_the_user_names_is_taken_as_it_is(tmp_path: Path) -> None:
    assert find_python({"VGPU_TORCH_PYTHON": "/opt/own/python", "VGPU_TEST_TORCH": "1"}, tmp_path) == "/opt/own/python"


def test_nothing_is_downloaded_unless_asked_for(tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="`make test TORCH=1` gets it, or VGPU_TORCH_PYTHON names"):
        find_python({}, tmp_path / "torch")
    assert not (tmp_path / "torch").exists()


def test_the_reason_is_what_pip_says(tmp_path: Path) -> None:
    with pytest.raises(environment.CannotMakeError, match=r"^ERROR: No matching distribution found for filelock"):
        environment.make(tmp_path / "torch", index=("--no-index", "--find-links", str(tmp_path)))
    assert not (tmp_path / "torch").exists(), "nothing of it is left on the disk"


def test_time_and_disk_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(environment.CannotMakeError, match=r"torch===[0-9.]+ was not installed after 0 s"):
        environment.make(tmp_path / "torch", limit_s=0)
    monkeypatch.setattr(environment, "DISK_BYTES_MIN", 1 << 60)
    with pytest.raises(environment.CannotMakeError, match=r"MiB of free disk, and [0-9]+ are needed"):
        environment.make(tmp_path / "torch")
    with pytest.raises(pytest.skip.Exception, match=r"build for CUDA cannot be had: .* MiB of free disk"):
        find_python({"VGPU_TEST_TORCH": "1"}, tmp_path / "torch")


def test_a_complete_environment_is_used_again(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / environment.COMPLETE).write_text(environment.describe())
    assert find_python({"VGPU_TEST_TORCH": "1"}, tmp_path / "torch") == str(tmp_path / "torch/bin/python")


def test_the_reason_is_the_last_error() -> None:
    assert environment.find_reason("ERROR: first\nERROR: second\n\n[notice] a new pip\n") == "ERROR: second"
    assert environment.find_reason("Segmentation fault\n") == "Segmentation fault"
