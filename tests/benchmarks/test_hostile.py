"""What benchmarks/hostile works out from phases, spans and calls, without a device."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from benchmarks import results
from benchmarks.hostile import __main__ as command
from benchmarks.hostile import frame, host
from benchmarks.hostile.cases import CASES
from benchmarks.hostile.phases import Harm, Judge, Phase, PhaseFigure, pauses_ms, per_second, quantile
from benchmarks.table import format_figures
from vgpud.simdevice.busy_log import SECOND_NS, Span

MS = 1_000_000
#: four phases of two seconds: honest, attacking, honest, attacking
PHASES = [Phase(number % 2 == 1, number * 2 * SECOND_NS, (number + 1) * 2 * SECOND_NS) for number in range(4)]


def turns(phase: Phase, busy_ms: int, period_ms: int = 10) -> Iterator[Span]:
    """Spans of busy_ms at the begin of every period."""
    for begin_ns in range(phase.begin_ns, phase.end_ns, period_ms * MS):
        yield Span(begin_ns, begin_ns + busy_ms * MS, 1)


def judge() -> Judge:
    return Judge("page", host.QUIET, PHASES)


def test_a_victim_that_loses_its_share_has_missed_the_goal() -> None:
    spans = [span for phase in PHASES for span in turns(phase, 2 if phase.attacking else 4)]
    share, worst, best, middle, tail = judge().shares("large", 0.45, spans)
    assert (share.honest, share.value, share.moved_percent) == pytest.approx((0.4, 0.2, -50))
    assert share.is_missed and share.cells()[-1] == "**missed**" and str(share.goal) == "-5 %, <= 0.4725"
    assert (worst.honest, worst.value, best.honest) == pytest.approx((0.4, 0.2, 0.4)) and not worst.is_judged
    assert (middle.honest, middle.value) == pytest.approx((6, 8))
    assert tail.is_missed and tail.moved_percent == pytest.approx(100 / 3)


def test_a_victim_that_keeps_its_share_has_not() -> None:
    spans = [span for phase in PHASES for span in turns(phase, 4)]
    assert [figure.is_missed for figure in judge().shares("large", 0.45, spans)] == [False] * 5


def test_more_than_the_maximum_is_missed_even_without_an_attack() -> None:
    spans = [span for phase in PHASES for span in turns(phase, 4)]
    share = judge().shares("capped", 0.25, spans)[0]
    assert share.is_missed and share.moved_percent == pytest.approx(0)


def test_a_movement_within_what_honest_phases_differ_decides_nothing() -> None:
    longer = Harm(5, more_is_worse=True)

    def verdict(moved_percent: float, spread_percent: float) -> str:
        return PhaseFigure("page", "busy", "p99", 1, longer, 1, moved_percent, spread_percent).verdict

    assert [verdict(4, 0), verdict(6, 7), verdict(8, 7), verdict(6, math.nan), verdict(-20, 1)] == [
        "met",
        "noise",
        "missed",
        "missed",
        "met",
    ]


def test_pairs_that_the_host_disturbed_are_made_again() -> None:
    taken = iter([0.0, 0.5, 0.01, 0.0, 0.3])
    made = iter(range(10))

    def make() -> tuple[Phase, Phase]:
        begin_ns, stolen = next(made) * 2 * SECOND_NS, next(taken)
        return Phase(False, begin_ns, begin_ns + 1, 0.0), Phase(True, begin_ns + 1, begin_ns + 2, stolen)

    chosen = frame.choose_quiet_pairs(make, 3)
    assert [phase.begin_ns // SECOND_NS for phase in chosen] == [0, 0, 4, 4, 6, 6]
    assert [phase.attacking for phase in chosen] == [False, True] * 3
    taken, made = iter([0.9, 0.1, 0.5]), iter(range(3))
    assert [phase.stolen for phase in frame.choose_quiet_pairs(make, 1)] == [0.0, 0.1], "the least of three"


def test_a_tenant_that_never_comes_back_pauses_to_the_end() -> None:
    phase = PHASES[1]
    assert pauses_ms([], phase) == [2000]
    once = Span(phase.begin_ns + 500 * MS, phase.begin_ns + 1500 * MS, 1)
    assert pauses_ms([once], phase) == [500, 500]
    across = Span(phase.begin_ns - MS, phase.end_ns + MS, 1)
    assert pauses_ms([across], phase) == []
    kernels = [Span(phase.begin_ns + n * MS, phase.begin_ns + (n + 1) * MS - 20_000, 1) for n in range(2000)]
    assert pauses_ms(kernels, phase) == []


def test_a_phase_without_any_share_is_a_loss_and_not_unknown() -> None:
    spans = [span for phase in PHASES if not phase.attacking for span in turns(phase, 4)]
    figures = judge().shares("large", 1.0, spans)
    assert figures[0].value == 0 and figures[0].is_missed and figures[4].is_missed


def test_latencies_are_pooled_over_the_phases() -> None:
    points = [(p.begin_ns + n * MS, 3.0 if p.attacking and n > 900 else 1.0) for p in PHASES for n in range(1000)]
    middle, tail = judge().latencies("root's list", points)
    assert (middle.honest, middle.value, tail.honest, tail.value) == (1, 1, 1, 3)
    assert tail.is_missed and tail.moved_percent == 200
    unknown = judge().latencies("root's list", [])[1]
    assert unknown.is_missed and unknown.cells()[3:7] == ("-", "-", "-", "-") and unknown.as_json()["honest"] is None


def test_refusals_count_in_either_kind_of_phase() -> None:
    after = judge().total("another user's attach: refused", lambda phase: 0 if phase.attacking else 3, Harm(at_most=0))
    assert (after.honest, after.value, after.is_missed) == (6, 0, True)
    assert not judge().total("refused", lambda _phase: 0, Harm(at_most=0)).is_missed


def test_rates_are_of_the_readings_in_the_phase() -> None:
    points = [(n * 100 * MS, float(max(0, n - 20) * 5)) for n in range(40)]
    assert per_second(points, PHASES[0]) == 0 and per_second(points, PHASES[1]) == pytest.approx(50)
    assert math.isnan(per_second(points, PHASES[3]))
    rate = judge().rate("attacker: doorbells, 1/s", points)
    assert (rate.honest, rate.value) == pytest.approx((0, 50)) and not rate.is_judged


def test_quantiles() -> None:
    assert [quantile(range(1, 101), fraction) for fraction in (0.5, 0.99, 1)] == [50, 99, 100]
    assert math.isnan(quantile([], 0.5))


def test_a_busy_host_is_as_many_spinning_processes_as_processors_and_ends_them() -> None:
    me = psutil.Process()
    before = set(me.children())
    with host.load(host.BUSY, 60):
        spinning = set(me.children()) - before
        assert len(spinning) == len(os.sched_getaffinity(0))
    assert not any(process.is_running() for process in spinning)
    with host.load(host.QUIET, 60):
        assert set(me.children()) <= before


def test_the_command_checks_its_words(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = command.arguments(["page", "reads", "page", "--seconds", "2", "--out", str(tmp_path)])
    assert (args.cases, args.host, args.out) == (["page", "reads"], ["quiet", "busy"], tmp_path)
    assert command.arguments([]).out == results.RESULTS and command.arguments(["page"]).out != results.RESULTS
    for words in (["pag"], ["--seconds", "0"], ["--pairs", "0"]):
        with pytest.raises(SystemExit):
            command.arguments(words)
    assert "pag is no case: choose from page," in capsys.readouterr().err


def test_what_is_written_is_a_good_result_and_names_what_was_left_out(tmp_path: Path) -> None:
    figures = [PhaseFigure("page", "busy", "large: share", 0.69, Harm(5), 0.7, -1.4, 2.0)]
    args = command.arguments(["page", "reads", "--out", str(tmp_path)])
    path, page = command.write(figures, {"reads": "run it as root"}, args)
    written = json.loads(path.read_text())
    assert results.problems(written) == [] and written["raw"] == {"skipped": {"reads": "run it as root"}}
    assert written["figures"]["page"][0]["verdict"] == "met"
    assert "reads: not measured: run it as root" in page.read_text() and format_figures(figures) in page.read_text()


def test_a_case_that_fails_has_missed_its_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object) -> list[PhaseFigure]:
        raise RuntimeError("no such thing")

    monkeypatch.setattr(frame, "run", fail)
    (figure,) = command.measure(CASES["page"], host.QUIET, frame.Plan(1, 1))
    assert figure.is_missed and "no such thing" in figure.what


def test_the_attacker_is_honest_and_attacks_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole frame on a device, once and short: what it costs the others is the benchmark's to say."""
    monkeypatch.setattr(frame, "WARM_UP_S", 0.0)
    monkeypatch.setattr(frame, "SWITCH_S", 0.1)
    figures = {figure.what: figure for figure in frame.run(CASES["page"], host.QUIET, frame.Plan(0.5, 1))}
    rings = figures["attacker: doorbells of one process, 1/s"]
    assert rings.honest == 0 and rings.value > 0
    assert figures["large: share"].honest > 0
