"""A table that is interrupted loses the run at work and no other; kept runs never meet others of another kind."""

import contextlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.sharing import __main__ as command
from benchmarks.sharing import estimate
from benchmarks.sharing import plan as plan_module
from benchmarks.sharing.bench import Observed, Program, observed_of_json
from benchmarks.sharing.kept import Kept, KeptError
from benchmarks.sharing.measure import Histogram, ProcessorTime
from benchmarks.sharing.plan import Plan, TimeIsUp, run_undisturbed
from benchmarks.sharing.rows import ROWS
from vgpud.simdevice.busy_log import SECOND_NS, Span

ROOT = Path(__file__).resolve().parents[2]
MS = 1_000_000
MADE_BY = {"commit": "1", "seconds": 3.0, "machine": {"cores": 2}}


class StubBench:
    """Tenants that get exactly their minimum, in turns of 10 ms. Counts its runs; one too many ends in a Ctrl-C."""

    def __init__(self, seconds: float, is_shipped: bool, runs: Iterator[int], last: float) -> None:
        self.is_shipped, self.seconds, self._runs, self._last = is_shipped, seconds, runs, last

    def observe(self, tenants: Sequence[Program], *, side_task: Any = None, **_how: Any) -> Observed:
        if next(self._runs) >= self._last:
            raise KeyboardInterrupt
        end_ns = int(self.seconds * SECOND_NS)
        spans: dict[str, list[Span]] = {tenant.name: [] for tenant in tenants}
        for turn_ns in range(0, end_ns, 10 * MS):
            at_ns = turn_ns
            for pid, tenant in enumerate(tenants):
                until_ns = at_ns + int(tenant.minimum * 10 * MS)
                spans[tenant.name].append(Span(at_ns, until_ns, pid))
                at_ns = until_ns
        return Observed(
            0,
            end_ns,
            spans,
            {tenant.name: 1000 * tenant.minimum for tenant in tenants},
            {tenant.name: [Histogram(((4 * MS, 10),))] for tenant in tenants},
            {
                tenant.name: [(ms * MS, ("idle", "active")[ms // 500 % 2]) for ms in range(0, 3000, 500)]
                for tenant in tenants
            },
            {tenant.name: 0 for tenant in tenants},
            make_notes(getattr(side_task, "__name__", ""), end_ns),
            {"idle": 1.0, "stolen": 0.0},
        )


def make_notes(what: str, end_ns: int) -> Any:
    if what == "swap":
        return [{"began_ns": SECOND_NS, "answered_ns": SECOND_NS + MS, "parts": {"first": 0.2, "second": 0.8}}]
    if what == "ask_every_second":
        return [[0, {"slice": 0, "neighbour": 0}], [end_ns, {"slice": end_ns // 3, "neighbour": end_ns // 2}]]
    return {"killed_ns": end_ns // 3, "started_ns": end_ns * 2 // 3, "answered_ns": end_ns * 2 // 3}


def stub_benches(monkeypatch: pytest.MonkeyPatch, last: float = float("inf")) -> Iterator[int]:
    """Puts stubs in the place of devices; the iterator's next number is that of the runs so far."""
    runs = itertools.count()

    @contextlib.contextmanager
    def open_stub(
        seconds: float, _kernels: Any, switch_us: int | None, *_real: Any, **_options: Any
    ) -> Iterator[StubBench]:
        yield StubBench(seconds, switch_us is None, runs, last)

    monkeypatch.setattr(plan_module, "open_bench", open_stub)
    return runs


# ---- what is kept ----


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    kept = Kept(tmp_path, MADE_BY, resume=False)
    kept.put("W1 x", {"lost": float("inf")})
    assert (kept.get("W1 x"), kept.get("W1 y"), kept.count()) == ({"lost": float("inf")}, None, 1)
    kept.close()
    again = Kept(tmp_path, MADE_BY, resume=True)
    assert again.get("W1 x") == {"lost": float("inf")}
    again.forget()
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_starts_again_takes_nothing(tmp_path: Path) -> None:
    kept = Kept(tmp_path, MADE_BY, resume=False)
    kept.put("W1 x", 1)
    kept.close()
    assert Kept(tmp_path, MADE_BY, resume=False).get("W1 x") is None


@pytest.mark.parametrize("other", [{"commit": "2"}, {"seconds": 60.0}, {"machine": {"cores": 4}}])
def test_runs_of_another_kind_are_refused_and_it_is_said_why(tmp_path: Path, other: dict[str, Any]) -> None:
    Kept(tmp_path, MADE_BY, resume=False).close()
    (name,) = other
    with pytest.raises(KeptError, match=f"{name} was .*, is ") as refused:
        Kept(tmp_path, MADE_BY | other, resume=True)
    assert "without --resume" in str(refused.value)
    Kept(tmp_path, MADE_BY, resume=True)


def test_two_tables_do_not_keep_in_one_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = command.where_kept(tmp_path, MADE_BY, resume=False, must_keep=False)
    assert first
    first.put("W1 x", 1)
    assert command.where_kept(tmp_path, MADE_BY, resume=False, must_keep=False) is None
    assert "another table is at work" in capsys.readouterr().err
    with pytest.raises(KeptError, match="another table is at work"):
        command.where_kept(tmp_path, MADE_BY, resume=False, must_keep=True)
    assert first.get("W1 x") == 1


def test_a_run_is_the_same_after_it_was_kept() -> None:
    run = Observed(
        1,
        9,
        {"a": [Span(1, 3, 7), Span(4, 9, 8)], "b": []},
        {"a": 1.5, "b": 0},
        {"a": [Histogram(((10, 1), (20, 2)), 3)], "b": []},
        {"a": [(1, "idle")], "b": []},
        {"a": float("inf"), "b": 0},
        {"killed_ns": 5},
        processors=[ProcessorTime(1, 2.5, 0.5), ProcessorTime(9, 3.5, 0.5)],
    )
    assert observed_of_json(json.loads(json.dumps(run.as_json()))) == run


# ---- interruptions ----


def test_each_run_is_made_once_however_often_the_table_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = stub_benches(monkeypatch)
    whole = command.run_rows(Plan(3, 2, False), ["W1"])
    needed = next(runs)
    made = 0
    for attempt in itertools.count():
        runs = stub_benches(monkeypatch, last=3)  # the fourth run of each attempt is cut off
        kept = Kept(tmp_path, MADE_BY, resume=attempt > 0)
        plan = Plan(3, 2, False, store=kept)
        try:
            figures = command.run_rows(plan, ["W1"])
        except KeyboardInterrupt:
            made += 3
            assert kept.count() == made
            kept.close()
            continue
        made += next(runs)
        break
    assert made == needed > 20
    assert figures == whole
    assert len(plan.raw["W1"]) == needed


def test_a_part_of_a_table_begins_no_run_after_its_hours(tmp_path: Path) -> None:
    kept = Kept(tmp_path, MADE_BY, resume=False)
    assert Plan(3, 1, False, store=kept).keep(("W8", "x"), lambda: 7) == 7
    part = Plan(3, 1, False, store=kept, until_s=time.monotonic())
    assert part.keep(("W8", "x"), lambda: pytest.fail("it is kept")) == 7
    with pytest.raises(TimeIsUp):
        part.keep(("W8", "x"), lambda: pytest.fail("the part is over"))


def test_runs_of_one_name_are_distinguished(tmp_path: Path) -> None:
    kept = Kept(tmp_path, MADE_BY, resume=False)
    plan = Plan(3, 1, False, store=kept)
    numbers = itertools.count()
    assert [plan.keep(("W8", "x"), lambda: next(numbers)) for _ in range(3)] == [0, 1, 2]
    again = Plan(3, 1, False, store=kept)
    assert [again.keep(("W8", "x"), lambda: next(numbers)) for _ in range(4)] == [0, 1, 2, 3]


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """Short enough for the paths of sockets below it."""
    with tempfile.TemporaryDirectory(prefix="k") as name:
        yield Path(name)


def has_tenants(pid: int) -> bool:
    """Their programs run below a process."""
    with contextlib.suppress(psutil.NoSuchProcess):  # one of those that were found has just ended
        return any(child.name() == "load" for child in psutil.Process(pid).children(recursive=True))
    return False


@pytest.mark.slow
def test_sigterm_in_the_midst_of_a_run_costs_that_run_only(tmp_path: Path, short_tmp: Path) -> None:
    words = [sys.executable, "-m", "benchmarks.sharing", "W6", "--seconds", "3", "--seeds", "2"]
    words += ["--results", str(tmp_path / "results")]
    folder = tmp_path / "results" / "sharing-runs"
    # without git, so that it does not matter who edits the tree meanwhile
    env = {**os.environ, "TMPDIR": str(short_tmp), "GIT_DIR": str(tmp_path / "none")}
    with subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as first:
        while first.poll() is None and len(list(folder.glob("*.run.gz"))) < 1:
            time.sleep(0.05)
        while first.poll() is None and not has_tenants(first.pid):  # those of the first run have ended
            time.sleep(0.05)
        first.send_signal(signal.SIGTERM)
        _, said = first.communicate(timeout=60)
    assert first.returncode == command.INTERRUPTED, said
    finished = {path: path.read_bytes() for path in folder.glob("*.run.gz")}
    assert f"not finished: {len(finished)} finished runs are kept" in said
    assert not list(short_tmp.iterdir()), "all that was started is ended and cleared away"
    other = subprocess.run([*words[:5], "4", *words[6:], "--resume"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert other.returncode == command.CANNOT
    assert "seconds was 3.0, is 4.0" in other.stdout
    again = subprocess.run([*words, "--resume"], cwd=ROOT, env=env, capture_output=True, text=True)
    assert again.returncode in (0, 1), again.stderr
    assert f"in all 3 runs, about 0.0 hours, of which {len(finished)} are kept already" in again.stderr
    result = json.loads((tmp_path / "results" / "sharing-sim.json").read_text())
    assert len(result["raw"]["W6"]) == 3
    assert not folder.exists() or not list(folder.iterdir()), "nothing is left to go on with"


# ---- how long it takes ----


def test_every_row_is_estimated() -> None:
    assert set(estimate.ROWS) == set(ROWS)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in ("W8", "W9", "G1")])
@pytest.mark.parametrize("full", [False, True], ids=["short", "full"])
def test_as_many_runs_are_made_as_were_said(row: str, full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = stub_benches(monkeypatch)
    plan = Plan(3, 2, full)
    for _figure in ROWS[row].figures(plan):
        pass
    assert estimate.ROWS[row](plan)[0] == next(runs)


def test_a_full_solo_row_makes_as_many_runs_as_were_said(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = stub_benches(monkeypatch)
    plan = Plan(3, 2, True, real=True)  # without the launches over a stub driver
    assert len(list(ROWS["W8"].figures(plan))) == 6
    assert estimate.ROWS["W8"](plan)[0] == next(runs)


def test_the_estimate_names_rows_and_hours() -> None:
    said = estimate.text(Plan(60, 5, True), ["W6", "W7"])
    assert said.splitlines() == [
        "W6      6 runs, about    6 minutes",
        "W7      5 runs, about    5 minutes",
        "in all 11 runs, about 0.2 hours",
    ]


def test_the_readme_lists_every_row() -> None:
    listed = re.findall(r"^\| ([WGCL]\d+[a-z]?) \|", (ROOT / "benchmarks" / "README.md").read_text(), re.MULTILINE)
    assert listed == list(ROWS)


@pytest.mark.parametrize(
    ("stolen", "chosen_part", "tries"),
    [((0.005, 0.0), 0.005, 1), ((0.2, 0.01), 0.01, 2), ((0.2, 0.1, 0.3, 0.0), 0.1, 3)],
)
def test_a_run_that_the_host_disturbs_is_made_again(stolen: tuple[float, ...], chosen_part: float, tries: int) -> None:
    """By what the host took alone: nothing that a run found is looked at."""
    machines = iter({"idle": 0.5, "stolen": part} for part in stolen)
    found = run_undisturbed(lambda: Observed(0, 1, {}, {}, {}, {}, machine=next(machines)))
    assert found.machine == {"idle": 0.5, "stolen": chosen_part, "tries": tries}
