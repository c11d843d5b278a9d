"""The pure parts of `vgpu demo`: rates, shares, what counts as off, the pictures."""

import importlib
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from vgpud.cli.common.options import Settings
from vgpud.cli.demo import demo_host, demo_measure, demo_programs, demo_view
from vgpud.cli.demo.demo_host import Mark
from vgpud.cli.demo.demo_measure import KEPT_TOLERANCE_PP, BusyTail, Row, Trainer, Wanted
from vgpud.core import units
from vgpud.simdevice.busy_log import RECORD, SECOND_NS, Span
from vgpud.view.fit import Cell

demo_command = importlib.import_module("vgpud.cli.demo.demo")
EXACT = Wanted(0.25, 0.25, 0.25, 0.25)


def make_trainer(samples_per_s: int = 100, seconds: int = 10) -> Trainer:
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


def row(target: Wanted, share: float) -> Row:
    return Row("phase", "t", target, share, 50.0, 100.0, 1 << 30, 1 << 29)


def test_a_rate_is_measured_between_reports() -> None:
    trainer = make_trainer()
    assert trainer.training and trainer.pid == 7
    assert trainer.rate(1_500_000_000, 3_250_000_000) == pytest.approx(100)
    assert trainer.rate(9 * SECOND_NS, 12 * SECOND_NS) == pytest.approx(100)  # reports reach to 10 s
    assert trainer.rate(11 * SECOND_NS, 12 * SECOND_NS) == 0.0
    assert Trainer("new").rate(0, SECOND_NS) == 0.0


def test_share_by_busy_log_or_by_completed_work() -> None:
    spans = [Span(i * 10_000_000, i * 10_000_000 + 2_500_000, 7) for i in range(1000)]
    assert demo_measure.share_of_phase(make_trainer(), spans, 0, 10 * SECOND_NS, 400) == pytest.approx(0.25)
    assert demo_measure.share_of_phase(make_trainer(), None, 0, 10 * SECOND_NS, 400) == pytest.approx(0.25)


@pytest.mark.parametrize(("share", "off_pp"), [(0.25, 0), (0.20, 5), (0.29, 4)])
def test_an_exact_promise_is_broken_on_both_sides(share: float, off_pp: float) -> None:
    assert row(EXACT, share).off_pp() == pytest.approx(off_pp)


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
    points = demo_measure.series(make_trainer(), None, 0, 10 * SECOND_NS, 400)
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


# ---- a busy host ----


def mark(
    at_s: float, waited_s: float, ran_s: float, used_s: float, stolen_s: float = 0, throttled_s: float = 0
) -> Mark:
    return Mark(*(round(value * SECOND_NS) for value in (at_s, waited_s, ran_s, used_s, stolen_s, throttled_s)))


@pytest.mark.parametrize(
    ("end", "denied_cpus"),
    [
        (mark(10, 0.1, 8, 8), 0.0),  # a free host: the parts wait only for each other
        (mark(10, 5, 20, 20), 0.0),  # too small a host is no excuse
        (mark(10, 5, 8, 20), 0.5),  # others used 12 s, the parts waited for 5
        (mark(10, 5, 18, 20), 0.2),  # others used only 2 s
        (mark(10, 0.2, 8, 8, stolen_s=3), 0.3),  # by a hypervisor, where nothing seems to wait
        (mark(10, 4, 8, 8, throttled_s=3), 0.3),  # by the quota of a cgroup
        (mark(10, 1, 9, 8), 0.0),  # ticks are coarser than what threads count
    ],
)
def test_what_the_host_denied(end: Mark, denied_cpus: float) -> None:
    assert demo_host.count_denied_cpus(mark(0, 0, 0, 0), end) == pytest.approx(denied_cpus)
    assert demo_host.count_denied_cpus(None, end) is None


def denied_row(share: float, denied_part: float | None, target: Wanted = EXACT) -> Row:
    return Row("phase", "t", target, share, 50.0, 100.0, 1 << 30, 1 << 29, denied_part)


def test_a_share_is_excused_by_as_much_processor_as_the_host_denied() -> None:
    assert denied_row(0.12, 0.10).is_hosts_doing  # 13 points off, 5 allowed
    assert not denied_row(0.12, 0.05).is_hosts_doing
    assert not denied_row(0.12, 0.0).is_hosts_doing and not denied_row(0.12, None).is_hosts_doing
    assert denied_row(0.12, 0.05).is_off
    assert not denied_row(0.25, 3.0).is_hosts_doing  # nothing to excuse
    grid = demo_view.final_grid([denied_row(0.12, 0.34), denied_row(0.12, 0.01), denied_row(0.25, None)])
    hosts, ours, fine = ([cell for cell in cells if isinstance(cell, Cell)] for cells in grid.rows)
    assert {cell.style for cell in hosts} == {"yellow"} and "34%" in [cell.text for cell in hosts]
    assert {cell.style for cell in ours} == {"red"} and "1%" in [cell.text for cell in ours]
    assert {cell.style for cell in fine} == {""} and "-" in [cell.text for cell in fine]


def print_report(rows: list[Row], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[bool, str]:
    """The verdict of the demo's report on these rows, and what it says of shares that are off."""
    said = io.StringIO()
    run = demo_command._Demo(
        Settings(), tmp_path, demo_programs.choose(True), is_simulated=True, seconds=2, output=tmp_path
    )
    run.console, run.rows, run.title = Console(file=said, width=200), rows, "X: words"
    monkeypatch.setattr(run, "_plot", lambda: None)
    return run._report(), said.getvalue()


def test_the_demo_fails_only_where_the_host_was_not_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, said = print_report([denied_row(0.25, 0.0)], tmp_path, monkeypatch)
    assert good and "points outside" not in said
    good, said = print_report([denied_row(0.12, 0.34)], tmp_path, monkeypatch)
    assert good and "other programs of this machine denied the demo 34% of a processor" in said
    good, said = print_report([denied_row(0.12, 0.34), denied_row(0.12, 0.01)], tmp_path, monkeypatch)
    assert not good and "see `vgpu docs limits`" in said
    assert json.loads((tmp_path / "demo.json").read_text())["rows"][0]["denied_part"] == 0.34


def test_the_report_says_what_cpu_denied_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report([denied_row(0.25, 0.34)], tmp_path, monkeypatch)
    assert "CPU-DENIED: processor time that other programs" in capsys.readouterr().out


def test_threads_are_followed_to_their_end(tmp_path: Path) -> None:
    def thread(pid: int, tid: int, run_ns: int, wait_ns: int) -> Path:
        folder = tmp_path / str(pid) / "task" / str(tid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "schedstat").write_text(f"{run_ns} {wait_ns} 7\n")
        return folder

    (tmp_path / "stat").write_text("cpu  10 20 30 1000 5 1 2 4 0 0\ncpu0 ...\n")
    quota = tmp_path / "cpu.stat"
    quota.write_text("usage_usec 5\nthrottled_usec 6\n")
    watch = demo_host.HostWatch(tmp_path, quota)
    watch.look([1, 2])
    assert watch.mark() is None  # a kernel that does not count
    thread(1, 1, 100, 10)
    ended = thread(1, 5, 200, 20)
    thread(2, 2, 300, 30)
    watch.look([1, 2, 3])
    (ended / "schedstat").unlink()
    thread(1, 1, 150, 15)
    watch.look([1, 2])
    found = watch.mark()
    assert found is not None and found.waited_ns == 65 and found.ran_ns >= 650
    tick_ns = SECOND_NS // os.sysconf("SC_CLK_TCK")
    assert (found.used_ns, found.stolen_ns, found.throttled_ns) == (63 * tick_ns, 4 * tick_ns, 6000)


# ---- what is installed ----


def hide_packages(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    monkeypatch.setattr(demo_programs, "is_installed", lambda name: name not in names)
    monkeypatch.setattr(demo_programs, "has_torch", lambda: "torch" not in names)
    monkeypatch.setattr(demo_programs, "find_torch_fault", lambda: "")


def test_without_tinygrad_the_demo_says_what_it_shows_instead(monkeypatch: pytest.MonkeyPatch) -> None:
    hide_packages(monkeypatch, "tinygrad", "torch")
    chosen = demo_programs.choose(is_simulated=True)
    assert chosen.command[1:6] == ["-m", "vgpud.cli.main", "sim", "load", "trainer"]
    (remark,) = chosen.remarks
    assert "tinygrad" in remark and "vgpu sim load trainer" in remark and "pip install" in remark


def test_without_the_sources_there_is_a_demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_packages(monkeypatch, "matplotlib", "torch")
    monkeypatch.setattr(demo_programs, "KERNEL_MODEL", tmp_path / "none")
    chosen = demo_programs.choose(is_simulated=True)
    assert "load" in chosen.command
    assert any("matplotlib" in remark for remark in chosen.remarks)


@pytest.mark.parametrize(
    ("missing", "trainer", "framework"),
    [
        ((), demo_programs.TORCH_TRAINER, "PyTorch"),
        (("tinygrad",), demo_programs.TORCH_TRAINER, "PyTorch"),
        (("torch",), demo_programs.TRAINER, "tinygrad"),
    ],
)
def test_a_network_is_trained_and_it_is_said_with_what(
    monkeypatch: pytest.MonkeyPatch, missing: tuple[str, ...], trainer: str, framework: str
) -> None:
    hide_packages(monkeypatch, *missing)
    chosen = demo_programs.choose(is_simulated=True)
    assert trainer in chosen.command and not chosen.remarks
    assert chosen.words == f"two training programs ({framework}), one device"
    assert "VGPU_SIM_KERNELS" in chosen.env and "VGPU_SIM_KERNELS" not in demo_programs.choose(is_simulated=False).env


def test_a_pytorch_that_the_simulated_libraries_do_not_know_is_not_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its import says which name is missing. On a GPU it is not asked."""
    monkeypatch.setattr(demo_programs, "has_torch", lambda: True)
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch_cuda.so: undefined symbol: cudaNew')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (remark,) = (text for text in demo_programs.choose(is_simulated=True).remarks if "PyTorch" in text)
    assert remark.startswith("PyTorch is not used") and remark.endswith("undefined symbol: cudaNew")
    assert demo_programs.TORCH_TRAINER in demo_programs.choose(is_simulated=False).command
    (tmp_path / "torch.py").write_text("")
    assert demo_programs.TORCH_TRAINER in demo_programs.choose(is_simulated=True).command


def test_curves_are_a_line_per_tenant_within_the_width() -> None:
    points = [(index / 4, 0.25 if index < 100 else 1.0) for index in range(200)]
    small, large = demo_view.curves({"small": points, "the large": points[:4]}, 60).split("\n")
    assert len(small) == 60 and small.startswith("    small  ▃") and small.endswith("█")
    assert large == "the large  ▃▃▃▃"
