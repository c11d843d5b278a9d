"""`vgpu queue` and `vgpu usage`: what is asked of the API, what is refused, the tables and the csv."""

from __future__ import annotations

import csv
import io
import os
import time
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.cli.fake_queue import SUBMITTED_S
from vgpud.simulate import readers
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view import job_tables
from vgpud.view import jobs as views
from vgpud.view.fit import draw

USAGE, NOT_FOUND = 2, 4
HOUR = 3600.0


def one_line(text: str) -> str:
    assert text.startswith("vgpu: "), text
    assert text.count("\n") == 1, text
    return text


def test_set_sends_what_is_said_and_no_more(vgpu: Any, daemon: Any) -> None:
    words = "--guarantee 2 --limit 24.5 --weight 3 --policy 2d-las(3250,7200) --placement fgd --parent org"
    more = "--min-run 5m --cpus 64 --ram 256G --strict --no-backfill --spread --member uid:1000 --member root"
    result = vgpu("queue", "set", "team", *words.split(), *more.split(), "-o", "json", host=daemon.host)
    assert result.code == 0, result
    request = daemon.queue.requests[-1]
    queue = request.queue
    assert (queue.guarantee_milli, queue.limit_milli, queue.weight, queue.parent) == (2000, 24_500, 3, "org")
    assert (queue.policy, queue.placement, queue.min_run.seconds) == ("2d-las(3250,7200)", "fgd", 300)
    assert (queue.strict, queue.backfill, queue.spread) == (True, False, True)
    assert queue.HasField("backfill")
    assert (queue.cpu_limit_milli, queue.ram_limit_bytes) == (64_000, 256 << 30)
    assert list(queue.members) == ["uid:1000", "uid:0"]
    assert len(request.update_mask.paths) == 13
    assert result.json["queue"]["limit_milli"] == 24_500
    assert vgpu("queue", "set", "team", "--no-strict", host=daemon.host).code == 0
    request = daemon.queue.requests[-1]
    assert (list(request.update_mask.paths), request.queue) == (["strict"], pb.Queue(name="team", strict=False))


def test_default_takes_back(vgpu: Any, daemon: Any) -> None:
    words = [
        "--limit",
        "default",
        "--guarantee",
        "default",
        "--member",
        "default",
        "--min-run",
        "default",
        "--parent",
        "default",
    ]
    assert vgpu("queue", "set", "team", *words, host=daemon.host).code == 0
    request = daemon.queue.requests[-1]
    assert request.queue == pb.Queue(name="team")
    assert sorted(request.update_mask.paths) == ["guarantee_milli", "limit_milli", "members", "min_run", "parent"]


BAD = [
    ((), "specify a value"),
    (("--limit", "-1"), "-1"),
    (("--limit", "0.0001"), "0.0001"),
    (("--limit", "many"), "many"),
    (("--guarantee", "5", "--limit", "4"), "--guarantee 5"),
    (("--weight", "0"), "0"),
    (("--min-run", "-5"), "-5"),
    (("--member", "uid:x"), "uid:x"),
    (("--member", "nobody-of-that-name"), "nobody-of-that-name"),
    (("--member", "@no-such-group"), "@no-such-group"),
    (("--cpus", "few"), "few"),
    (("--ram", "8Q"), "8Q"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_quotas_are_one_line_and_nothing_is_set(
    vgpu: Any, daemon: Any, words: tuple[str, ...], message: str
) -> None:
    result = vgpu("queue", "set", "team", *words, host=daemon.host)
    assert result.code == USAGE, result
    assert message in one_line(result.stderr)
    assert daemon.queue.requests == []


def test_get_shows_queues(vgpu: Any, daemon: Any) -> None:
    team = pb.Queue(name="team", parent="org", guarantee_milli=2000, limit_milli=4000, weight=3, used_milli=1500)
    team.MergeFrom(pb.Queue(running=3, pending=7, history_gpu_seconds=9000, policy="fifo", placement="fgd"))
    team.MergeFrom(pb.Queue(strict=True, min_run=Duration(seconds=300), cpu_limit_milli=64_000))
    team.members.extend(["gid:0", "uid:0", "gid:4294967287"])
    daemon.queue.queues["team"] = team
    lines = vgpu("queue", "ls", host=daemon.host).stdout.splitlines()
    row = dict(zip(lines[0].split(), lines[2].split(), strict=True))
    assert (row["QUEUE"], row["PARENT"], row["GUARANTEE"], row["LIMIT"], row["USED"]) == (
        "team",
        "org",
        "2",
        "4",
        "1.5",
    )
    assert [row[key] for key in ("USED", "RUNNING", "PENDING", "GPU-TIME")] == ["1.5", "3", "7", "2.5h"]
    assert row["MEMBERS"] == "@root,root,gid:4294967287"
    assert row["RULES"] == "strict,no-backfill,min-run=5m,cpus=64"
    assert lines[1].split()[:4] == ["default", "-", "0", "-"]
    one = vgpu("queue", "ls", "team", "-o", "json", host=daemon.host).json["queue"]
    assert (one["limit_milli"], one["ram_limit_bytes"], one["min_run_ns"]) == (4000, None, 300 * 10**9)
    assert vgpu("queue", "ls", "-o", "name", host=daemon.host).stdout.split() == ["default", "team"]
    result = vgpu("queue", "ls", "nobody", host=daemon.host)
    assert result.code == NOT_FOUND
    assert "the queues are default, team" in one_line(result.stderr)


def test_rm(vgpu: Any, daemon: Any) -> None:
    assert vgpu("queue", "rm", "default", host=daemon.host).code == 0
    assert daemon.queue.queues == {}
    assert vgpu("queue", "rm", "default", host=daemon.host).code == NOT_FOUND


def test_help_names_the_policies(vgpu: Any) -> None:
    from vgpud.core.policy.registry import NAMES

    shown = vgpu("queue", "set", "--help").stdout
    assert all(name in shown for name in NAMES)


# ---- usage ----


@pytest.fixture
def rows(daemon: Any) -> list[pb.Usage]:
    job = pb.Usage(
        node="n",
        queue="team",
        uid=os.getuid(),
        job_id=7,
        state=pb.JOB_STATE_COMPLETED,
        gpus_milli=500,
        members=4,
        jobs=1,
    )
    job.gpu_seconds_asked, job.gpu_seconds_granted, job.gpu_seconds_used = 2 * HOUR, HOUR, HOUR / 2
    job.copy_to_device_bytes, job.copy_from_device_bytes = 3 << 40, 1500
    job.submit_time.CopyFrom(Timestamp(seconds=SUBMITTED_S, nanos=500_000_000))
    job.start_time.CopyFrom(Timestamp(seconds=SUBMITTED_S + 10))
    job.end_time.CopyFrom(Timestamp(seconds=SUBMITTED_S + 1810))
    job.run_duration.CopyFrom(Duration(seconds=1800))
    waits = pb.Usage(
        node="n", queue="team", uid=os.getuid(), job_id=8, state=pb.JOB_STATE_PENDING, gpus_milli=1000, members=1
    )
    waits.submit_time.CopyFrom(Timestamp(seconds=SUBMITTED_S))
    direct = pb.Usage(node="n", queue="default", uid=os.getuid(), slice="run-1", gpu_seconds_granted=HOUR)
    direct.copy_from_device_bytes = 5 << 20
    daemon.queue.rows = [job, waits, direct]
    return [job, waits, direct]


def test_a_month_of_jobs_is_one_answer(vgpu: Any, daemon: Any, rows: list[pb.Usage]) -> None:
    daemon.queue.rows = rows[:1] * 50_000
    assert pb.GetUsageResponse(usage=daemon.queue.rows).ByteSize() > 4 << 20, "more than gRPC takes by itself"
    result = vgpu("usage", "-o", "csv", "--no-headers", host=daemon.host)
    assert (result.code, result.stdout.count("\n")) == (0, 50_000)


def _write_csv(folder: Path, text: str) -> Path:
    (folder / "month.csv").write_text(text)
    return folder / "month.csv"


def test_csv_is_a_trace(vgpu: Any, daemon: Any, rows: list[pb.Usage], tmp_path: Path) -> None:
    result = vgpu("usage", "-o", "csv", host=daemon.host)
    assert daemon.queue.requests[-1].by == pb.USAGE_BY_JOB
    assert result.code == 0
    head = "job_id,queue,uid,submitted_s,started_s,ended_s,gpus_milli,members,duration_s,state"
    amounts = "gpu_seconds_asked,gpu_seconds_granted,gpu_seconds_used,slice"
    assert result.stdout.splitlines()[0] == f"{head},{amounts},copy_to_device_bytes,copy_from_device_bytes"
    first, second, direct = csv.DictReader(io.StringIO(result.stdout))
    assert (direct["slice"], direct["state"], direct["job_id"], direct["duration_s"]) == ("run-1", "slice", "", "")
    assert float(direct["gpu_seconds_granted"]) == HOUR, "what containers and `vgpu run` had is not left out"
    jobs = readers.read(_write_csv(tmp_path, result.stdout))
    assert [job.spec.name for job in jobs] == ["7"], "and the simulator passes over it: it was not queued"
    assert (first["job_id"], first["queue"], first["uid"], first["state"]) == (
        "7",
        "team",
        str(os.getuid()),
        "completed",
    )
    assert (first["submitted_s"], first["started_s"]) == (f"{SUBMITTED_S}.500000", f"{SUBMITTED_S + 10}.000000")
    assert (first["gpus_milli"], first["members"], first["duration_s"]) == ("500", "4", "1800.000000")
    assert (float(first["gpu_seconds_asked"]), float(first["gpu_seconds_used"])) == (2 * HOUR, HOUR / 2)
    assert (first["copy_to_device_bytes"], first["copy_from_device_bytes"]) == (str(3 << 40), "1500")
    assert (direct["copy_to_device_bytes"], direct["copy_from_device_bytes"]) == ("0", str(5 << 20))
    assert (second["started_s"], second["ended_s"], second["duration_s"]) == ("", "", "0.000000")
    assert len(vgpu("usage", "--by", "job", "-o", "csv", "--no-headers", host=daemon.host).stdout.splitlines()) == 3


def test_tables_are_for_people(vgpu: Any, daemon: Any, rows: list[pb.Usage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_tables, "user_name", lambda uid: "ann")
    lines = vgpu("usage", "--by", "job", host=daemon.host).stdout.splitlines()
    amounts = ["ASKED", "GRANTED", "USED", "TO-GPU", "FROM-GPU"]
    assert lines[0].split() == ["JOB", "USER", "QUEUE", "STATE", "GPUS", *amounts]
    assert lines[1].split() == ["7", "ann", "team", "completed", "4x0.5", "2.0h", "1.0h", "30.0m", "3TiB", "1.5KiB"]
    assert lines[3].split() == ["run-1", "ann", "default", "slice", "-", "0s", "1.0h", "0s", "0B", "5MiB"]
    daemon.queue.rows = [pb.Usage(queue="team", jobs=5, gpu_seconds_granted=9000, copy_to_device_bytes=1 << 30)]
    lines = vgpu("usage", "--by", "queue", host=daemon.host).stdout.splitlines()
    assert lines == [
        "QUEUE  JOBS  ASKED  GRANTED  USED  TO-GPU  FROM-GPU",
        "team      5     0s     2.5h    0s    1GiB        0B",
    ]
    answer = vgpu("usage", "--by", "queue", "-o", "json", host=daemon.host).json
    assert (answer["by"], answer["usage"][0]["gpu_seconds_granted"], answer["usage"][0]["uid"]) == (
        "queue",
        9000.0,
        None,
    )
    sums = vgpu("usage", "--by", "queue", "-o", "csv", host=daemon.host).stdout.splitlines()
    assert sums[0].endswith(",gpu_seconds_used,copy_to_device_bytes,copy_from_device_bytes")
    assert sums[1] == f"team,,5,0.0,9000.0,0.0,{1 << 30},0"


def test_on_80_columns_the_least_important_ones_go() -> None:
    """Time before copies, which are worth more than the size of a job that has ended."""
    row = {"queue": "research", "uid": None, "jobs": 12, "copy_to_device_bytes": 3 << 40, "copy_from_device_bytes": 1}
    row |= dict.fromkeys(("gpu_seconds_asked", "gpu_seconds_granted", "gpu_seconds_used"), 1e6)
    job = row | {"job_id": 12345, "state": "completed", "gpus_milli": 500, "members": 4}
    for by, shown, left_out in (
        ("queue", row, []),
        ("job", job, []),
        ("job", job | {"uid": 4_000_000}, ["GPUS"]),
        ("job", job | {"uid": 4_000_000_000}, ["GPUS", "FROM-GPU"]),
    ):
        assert draw(job_tables.usage_grid([shown], by), headers=True, width=80).left_out == left_out


def test_usage_of_pods(vgpu: Any, daemon: Any) -> None:
    daemon.queue.rows = [
        pb.Usage(gpu_seconds_used=HOUR, namespace="lab", copy_to_device_bytes=2048),
        pb.Usage(gpu_seconds_granted=9000, namespace="team", pod="train-0"),
    ]
    lines = vgpu("usage", "--by", "pod", host=daemon.host).stdout.splitlines()
    assert daemon.queue.requests[-1].by == pb.USAGE_BY_POD
    assert [line.split() for line in lines] == [
        ["NAMESPACE", "POD", "ASKED", "GRANTED", "USED", "TO-GPU", "FROM-GPU"],
        ["lab", "-", "0s", "0s", "1.0h", "2KiB", "0B"],
        ["team", "train-0", "0s", "2.5h", "0s", "0B", "0B"],
    ]
    csv_ = vgpu("usage", "--by", "pod", "-o", "csv", host=daemon.host).stdout.splitlines()
    assert csv_[0].startswith("namespace,pod,gpu_seconds_asked") and csv_[2] == "team,train-0,0.0,9000.0,0.0,0,0"
    answer = vgpu("usage", "--by", "namespace", "-o", "json", host=daemon.host).json
    assert [(row["namespace"], row["pod"]) for row in answer["usage"]] == [("lab", None), ("team", "train-0")]
    refused = vgpu("usage", "--by", "pod", "--cluster", host=daemon.host)
    assert refused.code == 2 and "--by pod is for claims of Kubernetes" in refused.stderr


def test_moments(vgpu: Any, daemon: Any, rows: list[pb.Usage]) -> None:
    assert vgpu("usage", "--since", "7d", "--until", "1h", host=daemon.host).code == 0
    request = daemon.queue.requests[-1]
    now_s = time.time_ns() // 10**9
    assert abs(now_s - 7 * 86_400 - request.since_time.seconds) < 60
    assert abs(now_s - 3_600 - request.until_time.seconds) < 60
    assert vgpu("usage", "--since", "2026-11-01T00:00:00+00:00", host=daemon.host).code == 0
    request = daemon.queue.requests[-1]
    assert (request.since_time.ToJsonString(), request.by) == ("2026-11-01T00:00:00Z", pb.USAGE_BY_USER)
    assert not request.HasField("until_time")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--since", "0001-01-01"), "is not a point in time"),
        (("--since", "yesterday"), "yesterday"),
        (("--since", "2026-13-01"), "2026-13-01"),
        (("--since", "1h", "--until", "7d"), "--until"),
        (("--by", "moon"), "moon"),
        (("-o", "xml"), "xml"),
    ],
)
def test_bad_usage(vgpu: Any, daemon: Any, words: tuple[str, ...], message: str) -> None:
    result = vgpu("usage", *words, host=daemon.host)
    assert result.code == USAGE
    assert message in one_line(result.stderr)


def test_what_is_not_known_is_null() -> None:
    view = views.usage_view(pb.Usage(queue=""))
    assert (view["uid"], view["queue"]) == (None, None)
    assert "job_id" not in view


def test_bounds_of_elastic_jobs(vgpu: Any, daemon: Any) -> None:
    words = ("--elastic-wait", "10s", "--elastic-idle", "0", "--placement", "colocate(120,2)")
    assert vgpu("queue", "set", "team", *words, host=daemon.host).code == 0
    (request,) = daemon.queue.requests
    assert sorted(request.update_mask.paths) == ["elastic_idle", "elastic_wait", "placement"]
    queue = request.queue
    assert (queue.elastic_wait.seconds, queue.HasField("elastic_idle"), queue.elastic_idle.seconds) == (10, True, 0)
    assert queue.placement == "colocate(120,2)"
    (one,) = [q for q in vgpu("queue", "ls", "-o", "json", host=daemon.host).json["queues"] if q["name"] == "team"]
    assert (one["elastic_wait_ns"], one["elastic_idle_ns"]) == (10 * 10**9, 0)
    assert "elastic-wait=10s,elastic-idle=0s" in vgpu("queue", "ls", "team", host=daemon.host).stdout
    daemon.queue.requests.clear()
    assert vgpu("queue", "set", "team", "--elastic-wait", "default", host=daemon.host).code == 0
    assert daemon.queue.requests[0].update_mask.paths == ["elastic_wait"]
    assert not daemon.queue.requests[0].queue.HasField("elastic_wait")
    assert "elastic-wait" not in vgpu("queue", "ls", "team", host=daemon.host).stdout


def test_a_number_is_no_queue(vgpu: Any, daemon: Any) -> None:
    result = vgpu("queue", "set", "12", "--ram", "64G", host=daemon.host)
    assert result.code == 2 and "`vgpu job set 12`" in result.stderr and not daemon.queue.requests


@pytest.mark.parametrize(("word", "eager"), [("--elastic-eager", True), ("--no-elastic-eager", False)])
def test_an_eager_queue(vgpu: Any, daemon: Any, word: str, eager: bool) -> None:
    assert vgpu("queue", "set", "team", word, host=daemon.host).code == 0
    (request,) = daemon.queue.requests
    assert list(request.update_mask.paths) == ["elastic_eager"] and request.queue.elastic_eager is eager
    (one,) = [q for q in vgpu("queue", "ls", "-o", "json", host=daemon.host).json["queues"] if q["name"] == "team"]
    assert one["elastic_eager"] is eager
    assert ("elastic-eager" in vgpu("queue", "ls", "team", host=daemon.host).stdout) is eager
