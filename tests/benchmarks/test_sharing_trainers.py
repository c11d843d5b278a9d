"""What W2c takes from the trainers' lines, and how it judges their parts."""

import random
from pathlib import Path

import pytest

from benchmarks.sharing.bench import Observed
from benchmarks.sharing.rows_trainers import CASES, Trainer, least_of_part

SMALL, LARGE = CASES[".25/.75"]


def test_a_trainer_is_at_work_when_its_set_up_is_over() -> None:
    assert SMALL.work({"event": "start", "device": "x"}) is None
    assert SMALL.work({"event": "training"}) == (0, 0)
    assert SMALL.work({"event": "progress", "samples": 512}) == (512, 512)


def test_parts_are_judged_by_what_each_was_given() -> None:
    def run(small: float, large: float) -> Observed:
        return Observed(0, 1, {}, {SMALL.name: small, LARGE.name: large}, {}, {})

    assert least_of_part(run(25, 75), (SMALL, LARGE)) == pytest.approx(1)
    assert least_of_part(run(50, 50), (SMALL, LARGE)) == pytest.approx(2 / 3)
    assert least_of_part(run(20, 80), (SMALL, LARGE)) == pytest.approx(0.8)


def test_a_trainer_is_started_with_its_own_kernel_model(tmp_path: Path) -> None:
    words = Trainer("a", 0.5, 0.5).command(random.Random(1), 30, tmp_path)
    assert words[-2:] == ["--seconds", "30"]
    assert Path(SMALL.env["VGPU_SIM_KERNELS"]).is_file()
