"""The container benchmark's own arithmetic, and what it makes of lines, contexts and pids."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks import containers, containers_view, images
from benchmarks.container_runs import Container, Measured, Running, Stage, _pid_inside
from vgpud.simdevice.busy_log import Span

SECOND = 10**9
ROOT = Path(__file__).resolve().parents[2]


class FakePart:
    """A container's output."""

    def __init__(self, *lines: dict[str, Any]) -> None:
        self.given_lines = list(lines)

    def lines(self) -> list[dict[str, Any]]:
        found, self.given_lines = self.given_lines, []
        return found

    def check(self) -> None:
        return None


def running(shares: tuple[float, ...], *lines: dict[str, Any]) -> Running:
    return Running(Container("one", shares), FakePart(*lines))  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_equal_shares_fill_one_device_and_never_more(count: int) -> None:
    total = sum(one.gpus for one in containers.equal(count))
    assert 0.999 <= total <= 1


def test_the_loss_per_added_container_is_over_that_of_one() -> None:
    mixes = {"1": {"loss": 0.01}, "3": {"loss": 0.05}, "4": {"loss": -0.02}, "2.5 of 3": {"loss": 0.5}}
    containers.add_losses(mixes)
    assert mixes["3"]["loss_per_added_container"] == pytest.approx(0.02)
    assert mixes["4"]["loss_per_added_container"] == pytest.approx(-0.01)
    assert "loss_per_added_container" not in mixes["1"] and "loss_per_added_container" not in mixes["2.5 of 3"]


def test_a_missed_goal_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    good = {"2": {"loss_per_added_container": 0.02}}
    pair = {"kernels 0.25/0.75": {"worst_window": {"error_pp": 2.9}}}
    assert containers.judge_mixes(good, pair)
    assert not containers.judge_mixes({"2": {"loss_per_added_container": 0.11}}, pair)
    assert not containers.judge_mixes(good, {"kernels 0.25/0.75": {"worst_window": {"error_pp": 3.1}}})
    assert capsys.readouterr().out.count("MISSED") == 2


def test_figures_compare_the_sums() -> None:
    plain = Measured({"a": [600.0], "b": [400.0]}, {})
    shim = Measured({"a": [500.0], "b": [450.0]}, {"a": [0.5], "b": [0.5]})
    assert containers.figures_of("2", plain, shim)["loss"] == pytest.approx(0.05)


def test_several_trainers_of_one_container_are_distinguished_by_pid() -> None:
    lines = [{"event": "training", "pid": pid, "time_ns": 0} for pid in (7, 8)]
    one = running((1, 1, 0.5), *lines)
    assert not one.training()
    one.part.given_lines.append({"event": "training", "pid": 9, "time_ns": 0})  # type: ignore[attr-defined]
    assert one.training() and sorted(one.trainers) == [7, 8, 9]


def test_kernels_count_as_samples() -> None:
    lines = [{"event": "progress", "pid": 1, "time_ns": at * SECOND, "completed": at * 500} for at in range(4)]
    one = running((1,), *lines)
    assert one.training()
    assert one.trainers[1].rate(1 * SECOND, 3 * SECOND) == pytest.approx(500)


def test_shares_are_those_of_all_the_containers_processes() -> None:
    one = running((1, 0.5))
    one.pids = {7: 70, 8: 80}
    devices = [[Span(0, SECOND, 70)], [Span(0, SECOND // 4, 80), Span(SECOND // 4, SECOND, 99)], []]
    assert Stage._shares(one, devices, 0, SECOND) == [1.0, 0.25]


def test_a_process_knows_its_innermost_pid() -> None:
    assert _pid_inside(os.getpid()) == int(Path("/proc/self").readlink().name)


def test_a_context_holds_what_the_dockerfile_copies(tmp_path: Path) -> None:
    folder = images.context(tmp_path / "context")
    lines = (folder / "docker" / "Dockerfile").read_text().splitlines()
    sources = [s for line in lines if line.startswith("COPY ") and "--from" not in line for s in line.split()[1:-1]]
    assert sources and all((folder / source).exists() for source in sources), sources
    left = [str(path) for path in folder.rglob("*") if path.suffix in (".so", ".pyc", ".whl") or path.name == "lib"]
    assert not left, left


def test_table_and_plot_show_every_mix_and_container(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plain = Measured({"half": [600.0], "left": [400.0], "right": [300.0]}, {})
    shim = Measured(plain.rates, {"half": [0.5], "left": [0.25], "right": [0.25]}, seconds={"half": [0.5, 0.4]})
    mixes = {"0.5/0.25/0.25": containers.figures_of("0.5/0.25/0.25", plain, shim)}
    pair = containers.pair_figures({"trainers 0.25/0.75": shim})
    shown = containers_view.format_mixes(mixes, pair)
    assert all(word in shown for word in ("half", "left", "right", "1,300", "+0.00%", "trainers 0.25/0.75"))
    containers_view.plot(tmp_path / "plot.png", "SIMULATED", mixes, {"trainers 0.25/0.75": asdict(shim)})
    assert (tmp_path / "plot.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("target", "stages"),
    [
        ("cifar-bench", ["python", "build", "cifar-build", "cifar", "cifar-bench"]),
        ("cifar-bench-torch", ["python", "build", "cifar", "cifar-torch-build", "cifar-bench-torch"]),
    ],
)
def test_an_image_is_made_of_the_stages_that_it_needs(target: str, stages: list[str]) -> None:
    text = images.select_stages((ROOT / "docker/Dockerfile").read_text(), target)
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("FROM")] == stages
    assert "ARG BASE=" in text


def test_pytorchs_wheel_is_taken_for_cuda_and_the_images_python_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images.results, "ROOT", tmp_path)
    wheels = tmp_path / "docker/wheels"
    wheels.mkdir(parents=True)
    assert images.find_torch_wheel() is None
    for name in ("2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64", "2.13.0-cp313-cp313-manylinux_2_28_x86_64"):
        (wheels / f"torch-{name}.whl").touch()
    assert images.find_torch_wheel() is None
    wheel = wheels / "torch-2.13.0-cp311-cp311-manylinux_2_28_x86_64.whl"
    wheel.touch()
    assert images.find_torch_wheel() == wheel
