"""The pure parts of `vgpu demo`: rates, shares, what counts as off, the pictures."""

from pathlib import Path

import pytest

from vgpud.cli.demo import demo_measure, demo_view
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
    assert bar.index("[") == 10 and bar[-1] == "]"
    assert bar[15] == "━" and bar[25] == "·"


def test_the_series_is_a_mean_over_half_a_second() -> None:
    points = demo_measure.series(trained(), None, 0, 10 * SECOND_NS, 400)
    assert points[0] == pytest.approx((0.5, 0.25))
    assert len(points) == 39


def test_the_plot_is_written(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "shares.png"
    demo_view.plot(path, "SIMULATED", {"t": [(0, 0.2), (1, 0.3)]}, [("alone", 0, 1)], [(0, 1, 0.25)])
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_the_table_names_phase_share_and_memory() -> None:
    from rich.console import Console

    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(demo_view.final_table("SIMULATED thing", [row(EXACT, 0.21)]))
    text = console.export_text()
    for part in ("SIMULATED thing", "0.25..0.25", "25%", "21.0%", "50%", units.format_bytes(1 << 30)):
        assert part in text
