"""`vgpu explain` and what job views say of jobs that are elastic, predicted and estimated."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.cli.fake_queue import SUBMITTED_S
from vgpud.cli.jobs import explain
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view import job_tables, jobs

NOT_FOUND, USAGE = 4, 2
NOW = datetime.datetime.fromtimestamp(SUBMITTED_S + 600, tz=datetime.timezone.utc)
LONG = (
    "no device has 0.75 GPU and 30GiB free: device 0 of n1 has the most free: 0.5 GPU and 20GiB;"
    " place 1 in queue default"
)


def fact(kind: str | int, text: str, at_s: int | None = None) -> pb.Fact:
    at = None if at_s is None else Timestamp(seconds=SUBMITTED_S + at_s)
    return pb.Fact(kind=kind if isinstance(kind, int) else words.FACT_KIND.to_number(kind), text=text, decision_time=at)


@pytest.fixture
def fake(daemon: Any) -> Any:
    fake = daemon.queue
    fake.add(4, "pending", reason="no room", position=1)
    fake.add(5, "running", start_time=Timestamp(seconds=SUBMITTED_S + 60), device_indices=[0])
    return fake


def test_a_screen_is_short_ordered_and_no_wider_than_80(
    vgpu: Any, daemon: Any, fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    fake.facts = [
        fact("queue", LONG),
        fact("help", "with --gpus 0.5 it would start now"),
        fact("help", "with --mem 20G it would start now"),
        fact("size", "0.75 GPU and 30GiB"),
        fact("resize", "from 1 to 2 workers", 30),
        fact(77, "a later daemon says this"),
    ]
    lines = vgpu("explain", "4", host=daemon.host).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert re.fullmatch(r"job 4 \(train\) is pending, submitted \d+d ago", lines[0])
    assert lines[1:6] == [
        "  why         no device has 0.75 GPU and 30GiB free: device 0 of n1 has the most",
        "              free: 0.5 GPU and 20GiB; place 1 in queue default",
        "  would help  with --gpus 0.5 it would start now",
        "              with --mem 20G it would start now",
        "  size        0.75 GPU and 30GiB",
    ]
    assert re.fullmatch(r"  resized     2023-11-1\d \d\d:\d\d:\d\d from 1 to 2 workers", lines[6])
    assert lines[7:] == ["  77          a later daemon says this"]


def test_narrow_and_wide_terminals(vgpu: Any, daemon: Any, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.facts = [fact("queue", LONG)]
    for columns, most in (("20", 40), ("50", 50), ("500", 100)):
        monkeypatch.setenv("COLUMNS", columns)
        lines = vgpu("explain", "4", host=daemon.host).stdout.splitlines()
        assert max(map(len, lines)) <= most
        assert " ".join(line[14:] for line in lines if line.startswith("  ")) == LONG


def test_what_others_wrote_cannot_draw_on_the_terminal(vgpu: Any, daemon: Any, fake: Any) -> None:
    fake.jobs[5].spec.name = "evil\x1b[2J"
    fake.facts = [fact("anomaly", "no\x1b]0;x\x07 step"), fact("device", "evil\x1b[1m")]
    out = vgpu("explain", "5", host=daemon.host).stdout
    assert "\x1b" not in out and "\x07" not in out
    assert "WRONG" in out and "is running on device 0-SIMULATED, for " in out


def test_json_and_name(vgpu: Any, daemon: Any, fake: Any) -> None:
    fake.facts = [fact("size", "0.5 GPU"), fact("device", "there", 60)]
    answer = vgpu("explain", "5", "-o", "json", host=daemon.host).json
    assert answer["job"]["job_id"] == 5
    assert answer["facts"] == [
        {"decision_time": None, "kind": "size", "text": "0.5 GPU"},
        {"decision_time": "2023-11-14T22:14:20Z", "kind": "device", "text": "there"},
    ]
    assert vgpu("explain", "5", "-o", "name", host=daemon.host).stdout == "5\n"


def test_refusals_are_one_line(vgpu: Any, daemon: Any, fake: Any) -> None:
    unknown = vgpu("explain", "99", host=daemon.host)
    assert (unknown.code, unknown.stdout) == (NOT_FOUND, "")
    assert unknown.stderr == "vgpu: no job 99: `vgpu job ls --all` lists yours\n"
    assert vgpu("explain", "x", host=daemon.host).code == USAGE
    assert vgpu("explain", host=daemon.host).code == USAGE


def test_today_has_no_date() -> None:
    stamp = NOW.astimezone().replace(hour=12, minute=0, second=5)
    at = stamp.astimezone(datetime.timezone.utc).isoformat().replace("+00:00", "Z")
    assert explain._moment(at, stamp + datetime.timedelta(hours=3)) == "12:00:05 "
    assert explain._moment(at, stamp + datetime.timedelta(days=3)).endswith(" 12:00:05 ")
    assert explain._moment(None, NOW) == ""


# ---- views ----


def lines_of(job: pb.Job) -> dict[str, str]:
    rows = job_tables.job_lines(jobs.job_view(job, frozenset()), NOW)[1:]
    return {row[2:15].strip(): row[16:] for row in rows}


def test_views_of_workers(fake: Any) -> None:
    job = fake.jobs[5]
    job.spec.members, job.samples_per_second, job.utilisation, job.utilisation_measured = 4, 1234.56, 0.431, True
    job.spec.elastic.CopyFrom(pb.ElasticSpec(workers_min=1, workers_max=8, heuristic="efficiency(0.2)", batch=64))
    job.spec.prediction.CopyFrom(pb.Prediction(model="net:make", device="h200", utilisation=pb.Range(value=0.54)))
    job.estimated_duration.CopyFrom(Duration(seconds=720))
    view = jobs.job_view(job, frozenset())
    assert job_tables.gpus_label(view) == "4x0.5[1-8]"
    shown = lines_of(job)
    assert shown["asks for"].startswith("0.5 GPUs for each of 1-8 workers, 4 now")
    assert shown["throughput"] == "1,234.6 samples/s"
    assert shown["utilisation"] == "43% of a device, measured; 54% was predicted"
    assert shown["model"] == "net:make, h200"
    assert shown["takes about"] == "12m, as similar jobs did"
    assert (view["workers_min"], view["workers_max"], view["members"], view["batch"]) == (1, 8, 4, 64)
    assert (view["heuristic"], view["estimated_duration_ns"]) == ("efficiency(0.2)", 720 * 10**9)
    assert view["prediction"]["utilisation"]["value"] == pytest.approx(0.54)


def test_views_of_an_elastic_slice(fake: Any) -> None:
    job = fake.jobs[5]
    job.spec.elastic.gpus_milli_min, job.spec.elastic.gpus_milli_max = 250, 1000
    job.utilisation = 0.5
    view = jobs.job_view(job, frozenset())
    assert job_tables.gpus_label(view) == "0.5[0.25..1]"
    shown = lines_of(job)
    assert shown["asks for"].startswith("0.25..1 GPUs, 0.5 now")
    assert shown["utilisation"] == "50% of a device, predicted"


def test_views_of_what_is_not_known(fake: Any) -> None:
    view = jobs.job_view(fake.jobs[5], frozenset())
    unknown = ("samples_per_second", "utilisation", "prediction", "estimated_duration_ns", "workers_max", "heuristic")
    assert [view[key] for key in unknown] == [None] * len(unknown)
    assert not {"throughput", "utilisation", "model", "takes about"} & lines_of(fake.jobs[5]).keys()
