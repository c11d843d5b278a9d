"""The pure parts of `vgpu demo`: rates, shares, what counts as off, the pictures."""

from pathlib import Path
from typing import Any

import pytest

from vgpud.cli.common.fit import Cell
from vgpud.cli.demo import demo_measure, demo_programs, demo_view
from vgpud.cli.demo.demo_measure import KEPT_TOLERANCE_PP, BusyTail, Row, Trainer, Wanted
from vgpud.core import units
from vgpud.simdevice.busy_log import RECORD, SECOND_NS, Span

EXACT = Wanted(0.25, 0.25, 0.25, 0.25)


def trained(samples_per_s: int = 100, seconds: int = 10) -> Trainer:
    trainer = Trainer("t")
    lines = [
        {"event": "start", "pid": 7, "time_ns": 0, "device": "SIMULATED X"},
        {"event": "training", "pid": 7, "time_ns": 0},
    ]
    for second in range(1, seconds + 1):
        samples = samples_per_s * second
        lines.append({"event": "progress", "pid": 7, "time_ns": second * SECOND_NS, "samples": samples})
    trainer.take(lines)
    return trainer


def row(wanted: Wanted, got: float) -> Row:
    return Row("phase", "t", wanted, got, 50.0, 100.0, 1 << 30, 1 << 29)


def test_a_rate_is_measured_between_reports() -> None:
    trainer = trained()
    assert trainer.training and trainer.pid == 7
    assert trainer.rate(1_500_000_000, 3_250_000_000) == pytest.approx(100)
    assert trainer.rate(9 * SECOND_NS, 12 * SECOND_NS) == pytest.approx(100)  # reports reach to 10 s
    assert trainer.rate(11 * SECOND_NS, 12 * SECOND_NS) == 0.0
    assert Trainer("new").rate(0, SECOND_NS) == 0.0


def test_share_by_busy_log_or_by_completed_work() -> None:
    spans = [Span(i * 10_000_000, i * 10_000_000 + 2_500_000, 7) for i in range(1000)]
    assert demo_measure.share_of_phase(trained(), spans, 0, 10 * SECOND_NS, 400) == pytest.approx(0.25)
    assert demo_measure.share_of_phase(trained(), None, 0, 10 * SECOND_NS, 400) == pytest.approx(0.25)


@pytest.mark.parametrize(("got", "off_pp"), [(0.25, 0), (0.20, 5), (0.29, 4)])
def test_an_exact_promise_is_broken_on_both_sides(got: float, off_pp: float) -> None:
    assert row(EXACT, got).off_pp() == pytest.approx(off_pp)


def test_a_borrower_may_have_more_but_not_less() -> None:
    borrower = Wanted(0.25, 1, 0.25, 1)
    assert row(borrower, 0.9).off_pp() == 0
    assert row(borrower, 0.1).off_pp() == pytest.approx(15)


def test_a_guarantee_beside_a_borrower_is_judged_by_a_point() -> None:
    kept = Wanted(0.75, 0.75, 0.75, 0.75, KEPT_TOLERANCE_PP)
    assert not row(kept, 0.741).is_off
    assert row(kept, 0.739).is_off
    assert not row(Wanted(0.75, 0.75, 0.75, 0.75), 0.739).is_off


def test_the_busy_log_is_followed_over_a_record_that_is_half_written(tmp_path: Path) -> None:
    path = tmp_path / "busy-0.log"
    tail = BusyTail(path)
    tail.poll()  # not there yet
    whole = RECORD.pack(0, SECOND_NS // 2, 7, 1)
    path.write_bytes(whole + whole[:5])
    tail.poll()
    assert len(tail.spans) == 1
    path.write_bytes(whole + RECORD.pack(SECOND_NS // 2, SECOND_NS, 8, 1))
    tail.poll()
    assert [span.pid for span in tail.spans] == [7, 8]
    assert tail.recent_share(7, SECOND_NS) == pytest.approx(0.5)


def test_the_bar_shows_share_minimum_and_maximum() -> None:
    bar = demo_view.share_bar(0.5, Wanted(0.25, 1, 0.25, 1))
    assert len(bar) == demo_view.BAR_CELLS
    assert bar.index("[") == 8 and bar[-1] == "]"
    assert bar[12] == "━" and bar[20] == "·"


def test_the_series_is_a_mean_over_half_a_second() -> None:
    points = demo_measure.series(trained(), None, 0, 10 * SECOND_NS, 400)
    assert points[0] == pytest.approx((0.5, 0.25))
    assert len(points) == 39


def test_the_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "shares.png"
    demo_view.plot(path, "SIMULATED", {"t": [(0, 0.2), (1, 0.3)]}, [("alone", 0, 1)], [(0, 1, 0.25)])
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_the_plot_names_its_lines_and_its_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    drawn: list[Any] = []
    monkeypatch.setattr(pyplot, "close", drawn.append)
    lines = {"small (0.25..1)": [(0.0, 0.25), (1.0, 0.25)], "large (0.75..0.75)": [(0.0, 0.25), (1.0, 0.25)]}
    demo_view.plot(tmp_path / "a.png", "SIMULATED", lines, [("both", 0, 1)], [(0, 1, 0.25)])
    (axes,) = drawn[0].axes
    first, second, promise = axes.get_lines()
    assert first.get_linewidth() > second.get_linewidth()  # its edges are seen beside the line that covers it
    assert promise.get_linestyle() == "--" and promise.get_zorder() > second.get_zorder()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [*lines, "guaranteed"]
    assert {"small", "large"} <= {text.get_text() for text in axes.texts}


def test_the_table_names_phase_share_and_memory() -> None:
    grid = demo_view.final_grid([row(EXACT, 0.21), row(EXACT, 0.05)])
    kept, missed = grid.rows
    text = " ".join(cell.text for cell in kept if isinstance(cell, Cell))
    for part in ("phase", "0.25..0.25", "25%", "21.0%", "50%", units.format_bytes(1 << 30)):
        assert part in text
    assert {cell.style for cell in kept if isinstance(cell, Cell)} == {""}
    assert {cell.style for cell in missed if isinstance(cell, Cell)} == {"red"}


# ---- what is installed ----


def without(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(demo_programs, "installed", lambda name: name not in names)


def test_without_tinygrad_the_demo_says_what_it_shows_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "tinygrad")
    chosen = demo_programs.choose(simulated=True)
    assert chosen.command[1:6] == ["-m", "vgpud.cli.main", "sim", "load", "trainer"]
    (remark,) = chosen.remarks
    assert "tinygrad" in remark and "vgpu sim load trainer" in remark and "pip install" in remark


def test_without_the_sources_there_is_a_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    without(monkeypatch, "matplotlib")
    monkeypatch.setattr(demo_programs, "KERNEL_MODEL", tmp_path / "none")
    chosen = demo_programs.choose(simulated=True)
    assert "load" in chosen.command
    assert any("matplotlib" in remark for remark in chosen.remarks)


def test_with_everything_a_network_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch)
    chosen = demo_programs.choose(simulated=True)
    assert demo_programs.TRAINER in chosen.command and not chosen.remarks
    assert "VGPU_SIM_KERNELS" in chosen.env and "VGPU_SIM_KERNELS" not in demo_programs.choose(simulated=False).env


def test_curves_are_a_line_per_tenant_within_the_width() -> None:
    points = [(index / 4, 0.25 if index < 100 else 1.0) for index in range(200)]
    small, large = demo_view.curves({"small": points, "the large": points[:4]}, 60).split("\n")
    assert len(small) == 60 and small.startswith("    small  ▃") and small.endswith("█")
    assert large == "the large  ▃▃▃▃"
