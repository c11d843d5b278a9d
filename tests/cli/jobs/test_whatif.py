"""`vgpu whatif`: figures, files, refusals; the same seed gives the same bytes."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.examples import is_nightly
from vgpud.core.policy.registry import NAMES, NEW_QUEUE
from vgpud.simulate import readers

DATA = Path(__file__).resolve().parents[3] / "benchmarks" / "data"
SIXTY = str(DATA / "tiresias" / "60_job.csv")
MURI = str(DATA / "muri" / "muri_cluster400_job.csv")
USAGE = 2


def test_table(vgpu: Any) -> None:
    result = vgpu("whatif", "--trace", SIXTY, "--cluster", "2x4", "--policy", "strict:fifo", "--compare", "srtf")
    assert result.code == 0, result
    titles, fifo, srtf = result.stdout.splitlines()
    assert titles.split()[:2] == ["POLICY", "AVG-JCT"]
    assert fifo.split()[:2] == ["strict:fifo", "1556.5s"]
    assert srtf.split()[:2] == ["srtf", "519.9s"]
    assert "60 jobs under 2 policies: simulated in" in result.stderr


def test_json_and_its_bytes(vgpu: Any) -> None:
    args = ("whatif", "--trace", MURI, "--cluster", "8x8", "--policy", "srsf", "--error", "0.5", "-o", "json")
    first, again, other = (vgpu(*args, "--seed", seed) for seed in ("7", "7", "8"))
    assert first.stdout == again.stdout != other.stdout
    read = json.loads(first.stdout)
    (run,) = read["runs"]
    assert (read["trace"], read["jobs"], read["cluster"], read["seed"]) == ("muri_cluster400_job.csv", 400, "8x8", 7)
    assert run["policy"] == "srsf" and run["jobs"] == 400
    assert set(run["jct_s"]) == {"mean", "p50", "p95", "p99", "max"}
    right = json.loads(vgpu(*args[:-4], "-o", "json").stdout)["runs"][0]
    assert right["jct_s"]["mean"] != run["jct_s"]["mean"], "wrong durations make another order"


@pytest.mark.slow
def test_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    """Sets and hashes of strings are another in each process; no figure is. The first jobs of the trace, and all of
    them nightly."""
    found = set()
    trace, cluster = tmp_path / "trace.csv", "4x8:V100+8x4:T4" if is_nightly() else "2x8:V100+4x4:T4"
    rows = Path(MURI).read_text().splitlines(keepends=True)
    trace.write_text("".join(rows if is_nightly() else rows[:151]))
    for hash_seed in ("1", "2"):
        jobs = tmp_path / f"{hash_seed}.csv"
        args = [
            "--trace",
            str(trace),
            "--cluster",
            cluster,
            "--policy",
            "las(3250,7200,narrow)",
            "--compare",
            "ftf",
        ]
        args += ["--placement", "fgd", "--suspend-cost", "30", "--error", "0.3", "-o", "json", "--jobs", str(jobs)]
        command = [sys.executable, "-m", "vgpud.cli.main", "whatif", *args]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(DATA.parents[1])}
        done = subprocess.run(command, env=environment, capture_output=True, check=True, timeout=120)
        found.add((done.stdout, jobs.read_bytes()))
    assert len(found) == 1


def test_jobs_are_a_trace_again(vgpu: Any, tmp_path: Path) -> None:
    out = tmp_path / "jobs.csv"
    result = vgpu("whatif", "--trace", SIXTY, "--cluster", "2x4", "--jobs", str(out))
    assert result.code == 0, result
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 60 and {row["policy"] for row in rows} == {NEW_QUEUE}
    again, before = readers.read(out), readers.read(Path(SIXTY))
    facts = [[(job.submitted_ns, job.duration_ns, job.spec.width_milli) for job in jobs] for jobs in (again, before)]
    assert facts[0] == facts[1]


def test_plots(vgpu: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    args = ("whatif", "--trace", SIXTY, "--cluster", "2x4", "--compare", "srtf", "--plots")
    for folder in ("a", "b"):
        assert vgpu(*args, str(tmp_path / folder)).code == 0
    names = sorted(path.name for path in (tmp_path / "a").iterdir())
    assert names == ["60_job-jct.png", "60_job-utilisation.png"]
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in names)


@pytest.mark.parametrize(("hours", "unit"), [(1, "seconds"), (50, "hours")])
def test_curves_that_cover_each_other_are_seen_and_named(hours: int, unit: str) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    from vgpud.simulate import report, results

    end_ns = hours * 3600 * results.SECOND_NS
    job = SimpleNamespace(ended_ns=end_ns, submitted_ns=0, state=SimpleNamespace(is_final=True))
    samples = [SimpleNamespace(at_ns=0, held_milli=1000), SimpleNamespace(at_ns=end_ns, held_milli=0)]
    one = SimpleNamespace(jobs=[(None, job)] * 4, samples=samples, capacity_milli=2000)
    outcomes: Any = {"fifo": one, "strict:fifo": one, "srsf": one}
    for draw in (report._completion, report._utilisation):
        figure, axes = pyplot.subplots()
        draw(axes, outcomes)
        lines = axes.get_lines()
        widths = [line.get_linewidth() for line in lines]
        assert widths == sorted(widths, reverse=True) and len(set(widths)) == 3
        assert lines[0].get_linestyle() == "-" and {line.get_linestyle() for line in lines[1:]} == {"--"}
        assert [text.get_text() for text in axes.texts] == list(outcomes)
        assert axes.get_xlabel().split()[0] == unit
        assert max(lines[0].get_xdata()) == pytest.approx(hours if unit == "hours" else hours * 3600, rel=0.01)
        pyplot.close(figure)


def test_costs_and_neighbours_cost(vgpu: Any) -> None:
    args = ("whatif", "--trace", MURI, "--cluster", "8x8", "--policy", "srtf", "-o", "json")

    def mean(*options: str) -> float:
        result = vgpu(*args, *options)
        assert result.code == 0, result
        return float(json.loads(result.stdout)["runs"][0]["jct_s"]["mean"])

    free = mean()
    assert mean("--suspend-cost", "600", "--resume-cost", "600") > free
    assert mean("--start-cost", "60") > free
    assert mean("--interference", "summed") == free, "whole GPUs are nobody else's"


def test_policies_and_placements_are_listed(vgpu: Any) -> None:
    listed = vgpu("whatif", "--policies")
    assert listed.code == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == list(NAMES)
    assert "fgd" in vgpu("whatif", "--placements").stdout.split()


def test_speeds_of_gpus(vgpu: Any, tmp_path: Path) -> None:
    """All jobs of this trace are resnet50: best fit fills the slow GPUs first."""
    trace = tmp_path / "trace.csv"
    trace.write_text("".join(Path(MURI).read_text().splitlines(keepends=True)[:31]))
    mine = tmp_path / "mine.csv"
    mine.write_text("model,gpu,rate\nResNet-50,V100,1\nResNet-50,K80,1\n")
    args = ("whatif", "--trace", str(trace), "--cluster", "4x8:tesla_k80+4x8:Tesla-V100-SXM2-16GB", "-o", "json")

    def mean(*options: str) -> float:
        return float(vgpu(*args, *options).json["runs"][0]["jct_s"]["mean"])

    equal = mean()
    blind, knowing = mean("--rates", "gavel"), mean("--rates", "gavel", "--placement", "throughput")
    assert equal < knowing < blind
    assert mean("--rates", str(mine), "--rates", "gavel") == equal, "the site's own speeds win"
    assert vgpu(*args, "--rates", "gavel", "--rates", str(mine)).json["rates"] == ["gavel", str(mine)]


def test_switches(vgpu: Any, tmp_path: Path) -> None:
    """n0 is partly taken: the gang goes to n2 and n3, not to the first two that have enough."""
    topology = tmp_path / "topology.conf"
    topology.write_text("SwitchName=s0 Nodes=n[0-1]\nSwitchName=s1 Nodes=n[2-9]\nSwitchName=top Switches=s[0-1]\n")
    trace = tmp_path / "trace.csv"
    trace.write_text("num_gpu,submit_time,duration,skew\n1,0,9,0\n4,0,9,0.9\n")
    args = ("whatif", "--trace", str(trace), "--cluster", "4x2", "--topology", str(topology), "-o", "json")
    found = {place: vgpu(*args, "--placement", place) for place in ("tiresias", "worst-fit")}
    counts = {
        place: (run["starts_on_several_nodes"], run["starts_above_one_switch"])
        for place, result in found.items()
        for run in result.json["runs"]
    }
    assert counts["tiresias"] == (1, 0)
    assert counts["worst-fit"][1] > 0
    assert f"{NEW_QUEUE}: 1 start was on several nodes, 0 of them not below one switch" in found["tiresias"].stderr
    assert found["tiresias"].json["topology"] == "topology.conf"
    without = vgpu(*args[:5], "-o", "json").json
    assert without["topology"] is None and "starts_on_several_nodes" not in without["runs"][0]


def test_switches_of_another_cluster_are_refused(vgpu: Any, tmp_path: Path) -> None:
    topology = tmp_path / "topology.conf"
    topology.write_text("SwitchName=s0 Nodes=gpu[1-2]\n")
    result = vgpu("whatif", "--trace", SIXTY, "--cluster", "2x4", "--topology", str(topology))
    assert result.code == USAGE and result.stderr.count("\n") == 1
    assert "it has none of the cluster's nodes (n0 to n1), but for example gpu1" in result.stderr


def test_queues_of_a_node(vgpu: Any, tmp_path: Path) -> None:
    queues = tmp_path / "queues.json"
    queues.write_text(
        json.dumps({"queues": [{"name": "default", "policy": "fifo", "strict": True, "limit_milli": None}]})
    )
    trace = tmp_path / "usage.csv"
    trace.write_text("job_id,queue,uid,submitted_s,gpus_milli,members,duration_s\n1,default,0,5,500,1,10\n")
    args = ("whatif", "--trace", str(trace), "--cluster", "1x1", "--queues", str(queues))
    result = vgpu(*args, "--compare", "srtf")
    assert result.code == 0, result
    assert [line[:13].rstrip() for line in result.stdout.splitlines()[1:]] == ["as configured", "srtf"]
    refused = vgpu(*args, "--by-queue")
    assert refused.code == USAGE and "use one of them" in refused.stderr


def test_who_can_never_run_is_named(vgpu: Any) -> None:
    result = vgpu("whatif", "--trace", SIXTY, "--cluster", "1x4")
    assert result.code == 0
    assert "jobs never fit and are left out, the first of" in result.stderr and "60_job.csv:3" in result.stderr
    assert "which would be told: " in result.stderr
    both = vgpu("whatif", "--trace", SIXTY, "--cluster", "1x4", "--compare", "srtf")
    assert both.stderr.count("jobs never fit and are left out, the first of") == 1, "the same line under every policy"


def test_columns_of_any_file(vgpu: Any, tmp_path: Path) -> None:
    """With what really happened, as the file says when its jobs ended; cancelled ones are counted."""
    trace = tmp_path / "mine.csv"
    trace.write_text("GPUs,sent,begin,end,owner\n1,0,5,105,ann\n0,1,1,2,bob\n1,2,,,ann\n")
    columns = "num_gpu=GPUs,submit_time=sent,start_time=begin,end_time=end,user=owner"
    result = vgpu("whatif", "--trace", str(trace), "--cluster", "1x1", "--columns", columns)
    assert result.code == 0, result
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["as", "2d-gittins"]
    assert "mine.csv: 1 jobs ran with GPUs; left out: 1 had no GPU, 1 never ran" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--policy", "magic"), "there is no policy 'magic': choose one of fifo"),
        (("--policy", "2dlas(9)"), "there is no policy '2dlas', did you mean 2d-las or las?"),
        (("--compare", "strict:Themis"), "there is no policy 'Themis', did you mean ftf?"),
        (("--compare", "2d-las(9,3)"), "thresholds must rise"),
        (("--placement", "magic"), "no placement 'magic'"),
        (("--cluster", "8y8"), "neither a file nor nodes x GPUs"),
        (("--trace", "nowhere.csv"), "cannot read nowhere.csv"),
        (("--interference", "gavel"), "--interference gavel needs --throughputs"),
        (("--policy", "2d-gittins(file=nowhere.csv)"), "cannot read nowhere.csv"),
        (("--start-cost", "-1"), "-1"),
        (("--error", "nan"), "nan is not a valid number"),
        (("--rates", "gavle"), "cannot read gavle"),
        (("--topology", "nowhere.conf"), "cannot read nowhere.conf"),
        (("--estimates", "--error", "0.5"), "with --estimates none are given"),
        (("--cluster", "1x2", "--scaling", "4:1,2:2"), "--scaling: 2:2 after 4:1: sizes rise, rates do not fall"),
    ],
)
def test_refused_in_one_line(vgpu: Any, args: tuple[str, ...], message: str) -> None:
    result = vgpu("whatif", "--trace", SIXTY, "--cluster", "2x4", *args)
    assert result.code == USAGE, result
    assert message in result.stderr and result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_a_bad_row_names_its_line(vgpu: Any, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,num_gpu,submit_time,duration\n0,1,5,9\n1,1,4,9\n")
    result = vgpu("whatif", "--trace", str(trace), "--cluster", "1x1")
    assert result.code == USAGE and f"{trace}:3: submitted 1 s before the row above" in result.stderr
    assert vgpu("whatif", "--trace", str(trace), "--cluster", "1x1", "--sort").code == 0


def test_durations_are_learnt_where_no_user_states_them(vgpu: Any) -> None:
    base = ("whatif", "--trace", SIXTY, "--cluster", "2x4", "--placement", "count", "-o", "json")
    known_run = vgpu(*base, "--policy", "strict:fifo", "--backfill").json["runs"][0]
    learnt = vgpu(*base, "--policy", "strict:fifo", "--backfill", "--estimates").json["runs"][0]
    unknown = vgpu(*base, "--policy", "strict:fifo").json["runs"][0]
    assert known_run["jct_s"]["mean"] < learnt["jct_s"]["mean"] < unknown["jct_s"]["mean"]


def test_the_order_of_new_queues_learns_whose_jobs_are_short(vgpu: Any, tmp_path: Path) -> None:
    """One GPU, two users whose jobs come in pairs: the long one is submitted first."""
    rows = [
        f"{2 * n + uid},default,{1000 + uid},{4000 * n + uid},1000,1,{(3000, 300)[uid]}"
        for n in range(12)
        for uid in (0, 1)
    ]
    rows += [f"{100 + uid},default,{1000 + uid},{48000 + uid},1000,1,{(3000, 300)[uid]}" for uid in (0, 0, 0, 1, 1, 1)]
    trace = tmp_path / "users.csv"
    trace.write_text("\n".join(["job_id,queue,uid,submitted_s,gpus_milli,members,duration_s", *rows]) + "\n")
    base = ("whatif", "--trace", str(trace), "--cluster", "1x1", "-o", "json")
    learnt, plain = (vgpu(*base, *more).json["runs"][0]["jct_s"]["mean"] for more in (("--estimates",), ()))
    assert learnt < plain


@pytest.mark.parametrize("output", ["table", "json", "yaml"])
def test_jobs_that_never_fit_are_named_and_no_figure_is_made_up(vgpu: Any, tmp_path: Path, output: str) -> None:
    trace = tmp_path / "large.csv"
    trace.write_text("job_id,num_gpu,submit_time,duration\n" + "".join(f"{n},64,0,100\n" for n in range(22)))
    result = vgpu("whatif", "--trace", str(trace), "--cluster", "1x8", "-o", output)
    assert result.code == 6, result
    assert "nan" not in result.stdout.lower(), result.stdout
    said = result.stderr.splitlines()
    assert len([line for line in said if "never fits: " in line]) == 20
    assert f"{NEW_QUEUE}: 2 more jobs never fit" in result.stderr
    assert f"no job of large.csv ran on 1x8 under {NEW_QUEUE}" in said[-1]
