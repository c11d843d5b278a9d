"""Traces as they are shipped and as others write them: what is read, and what is refused with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vgpud.core.jobs.model import SECOND_NS
from vgpud.simulate import interference, quotas, readers, replay
from vgpud.simulate.trace import TraceError

DATA = Path(__file__).resolve().parents[2] / "benchmarks" / "data"


def write_trace(folder: Path, text: str, name: str = "trace.csv") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_tiresias() -> None:
    jobs = readers.read(DATA / "tiresias" / "60_job.csv")
    assert len(jobs) == 60
    second = jobs[1]
    assert (second.submitted_ns, second.duration_ns) == (30 * SECOND_NS, 147 * SECOND_NS)
    assert (second.spec.members, second.spec.ask.spec.gpus_milli, second.spec.width_milli) == (8, 1000, 8000)
    assert (second.spec.name, second.spec.model) == ("1", "vgg11")


def test_skew(tmp_path: Path) -> None:
    by_model = {job.spec.model: job.spec.skew_ppm for job in readers.read(DATA / "tiresias" / "60_job.csv")}
    skewed = {model for model, ppm in by_model.items() if ppm > 500_000}
    assert skewed == {"alexnet", "vgg11", "vgg16", "vgg19"}, "the paper's"
    assert min(by_model.values()) > 0, "all are known"
    text = "job_id,num_gpu,submit_time,duration,model_name,skew\n0,2,0,1,vgg11,0.25\n1,2,0,1,mine,\n"
    trace, unknown = readers.read(write_trace(tmp_path, text))
    assert (trace.spec.skew_ppm, unknown.spec.skew_ppm) == (250_000, -1)


def test_muri() -> None:
    assert len(readers.read(DATA / "muri" / "muri_cluster400_job.csv")) == 400


def test_philly_is_not_in_order() -> None:
    path = DATA / "philly" / "philly_6c71a0.csv"
    with pytest.raises(TraceError, match=r"philly_6c71a0\.csv:4: submitted 4 s before the row above: .*--sort"):
        readers.read(path)
    jobs = readers.read(path, sort=True)
    assert len(jobs) == 9953
    assert jobs[0].submitted_ns == 0
    assert [job.submitted_ns for job in jobs] == sorted(job.submitted_ns for job in jobs)


OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,creation_time,deletion_time,scheduled_time\n"


def test_openb(tmp_path: Path) -> None:
    rows = "p0,6000,12288,1,460,,100,400,150\np1,1000,1,0,0,,100,400,\np2,0,0,2,1000,V100M16|V100M32,100,400,\n"
    part, cpu, two = readers.read(write_trace(tmp_path, OPENB + rows))
    assert (part.spec.width_milli, part.duration_ns, part.utilisation_milli) == (460, 250 * SECOND_NS, 460)
    assert (part.spec.ask.cpu_milli, part.spec.ask.ram_bytes) == (6000, 12288 << 20)
    assert (cpu.spec.width_milli, cpu.duration_ns) == (0, 300 * SECOND_NS)
    assert (two.spec.members, two.spec.width_milli, two.spec.ask.gpu_models) == (1, 2000, ("V100M16", "V100M32"))


USAGE = "job_id,queue,uid,submitted_s,started_s,ended_s,gpus_milli,members,duration_s,state,gpu_seconds_used\n"


def test_own_export(tmp_path: Path) -> None:
    rows = (
        "7,team,1000,1700000000.5,1700000001,1700000011,500,2,10,completed,3\n8,team,0,1700000002,,,500,1,0,pending,\n"
    )
    jobs = readers.read(write_trace(tmp_path, USAGE + rows))
    assert len(jobs) == 1, "who has never run says nothing of how long it would"
    job = jobs[0]
    assert (job.spec.name, job.spec.queue, job.spec.uid, job.submitted_ns) == ("7", "team", 1000, 0)
    assert (job.spec.members, job.spec.width_milli, job.duration_ns) == (2, 1000, 10 * SECOND_NS)
    assert job.utilisation_milli == 300


@pytest.mark.parametrize("wrap", [lambda rows: rows, lambda rows: {"schema_version": 1, "jobs": rows}])
def test_own_export_as_json(tmp_path: Path, wrap: object) -> None:
    row = {"job_id": 7, "queue": "q", "uid": 1, "submitted_s": 5.25, "gpus_milli": 500, "members": 1, "duration_s": 2}
    late = {**row, "submitted_s": 6.5, "state": None}
    jobs = readers.read(write_trace(tmp_path, json.dumps(wrap([row, late])), "usage.json"))  # type: ignore[operator]
    assert [job.submitted_ns for job in jobs] == [0, 1_250_000_000]
    with pytest.raises(TraceError, match=r"usage\.json: job 2: members is '': it must be a number"):
        readers.read(write_trace(tmp_path, json.dumps(wrap([row, {**late, "members": None}])), "usage.json"))  # type: ignore[operator]


def test_usage_as_the_command_shows_it(tmp_path: Path) -> None:
    """vgpu usage --by job -o json: times as people read them, and slices that are no jobs'."""
    row = {"queue": "q", "uid": 1, "jobs": 1, "gpu_seconds_used": 1.5}
    times = {"submit_time": "2026-11-22T08:00:00.5+00:00", "run_duration_ns": 2_500_000_000}
    of_job = {**row, "job_id": 7, "gpus_milli": 500, "members": 1, **times}
    late = {**of_job, "job_id": 8, "submit_time": "2026-11-22T08:00:02Z"}
    data = {"by": "job", "usage": [{**row, "node": "n", "slice": "mine"}, of_job, late]}
    first, second = readers.read(write_trace(tmp_path, json.dumps(data), "usage.json"))
    assert (first.spec.name, first.submitted_ns, first.duration_ns) == ("7", 0, 2_500_000_000)
    assert second.submitted_ns == 1_500_000_000
    assert first.utilisation_milli == 600
    wrong = {"usage": [{**of_job, "submit_time": "noon"}]}
    with pytest.raises(TraceError, match="job 1: submitted_s is 'noon'"):
        readers.read(write_trace(tmp_path, json.dumps(wrong), "usage.json"))


HEADER = "job_id,num_gpu,submit_time,duration\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no known columns"),
        ("a,b\n1,2\n", "no known columns"),
        ("job_id,num_gpu,duration\n0,1,5\n", "columns missing for Tiresias and Muri: submit_time"),
        ("timestamp,duration\n", "columns missing for Philly: num_gpus"),
        (HEADER, "has no job that ran"),
        (HEADER + "0,1,0,5\n1,1,-3,5\n", r"trace\.csv:3: submit_time is -3: it must not be negative"),
        (HEADER + "0,1,0,-5\n", r"trace\.csv:2: duration is -5: it must not be negative"),
        (HEADER + "0,1,0,soon\n", r"trace\.csv:2: duration is 'soon': it must be a number"),
        (HEADER + "0,1,0,nan\n", r"trace\.csv:2: duration is 'nan': it must be a number"),
        (HEADER + "0,1,0,1e99\n", r"trace\.csv:2: duration is 1e99: it must be at most .*"),
        (HEADER + "0,1,1_0,5\n", r"trace\.csv:2: submit_time is '1_0': it must be a number"),
        (HEADER.strip() + ",duration\n0,1,0,5,7\n", r"trace\.csv:1: column duration appears twice"),
        (HEADER + "0,0,0,5\n", r"trace\.csv:2: num_gpu is 0: it must be 1 or more"),
        (HEADER + "0,1.5,0,5\n", r"trace\.csv:2: num_gpu is 1\.5: it must be a whole number"),
        (HEADER + "0,1,0\n", r"trace\.csv:2: 3 values where the header has 4 columns"),
        (HEADER + "0,1,9,5\n\n1,1,7.5,5\n", r"trace\.csv:4: submitted 1\.5 s before the row above: .*--sort"),
        ("timestamp,duration,num_gpus\nyesterday,1,1\n", r"trace\.csv:2: timestamp is 'yesterday'"),
        ("timestamp,duration,num_gpus\n1969-01-01,1,1\n", r"trace\.csv:2: timestamp is 1969-01-01: before 1970"),
        (OPENB + "p,0,0,1,460,,100,99,\n", r"trace\.csv:2: deletion_time is before creation_time"),
        (OPENB + "p,0,0,1,1460,,100,101,\n", r"trace\.csv:2: gpu_milli is 1460: it must be at most 1000"),
        ('{"jobs": 3}', "has no list of jobs"),
        ("[1]", "has no list of jobs"),
        ("{", "is not JSON"),
        ("\0binary", "no known columns"),
    ],
)
def test_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        readers.read(write_trace(tmp_path, text))


def test_not_to_be_read(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"cannot read .*: No such file"):
        readers.read(tmp_path / "nowhere.csv")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TraceError, match="is not text"):
        readers.read(tmp_path / "binary")
    with pytest.raises(TraceError, match="has more than 512 MiB"):
        readers.read(sparse(tmp_path))
    with pytest.raises(TraceError, match="1001 columns: 1000 is the limit"):
        readers.read(write_trace(tmp_path, ",".join(f"c{i}" for i in range(1001))))


def sparse(tmp_path: Path) -> Path:
    """A file that is larger than any trace."""
    with (tmp_path / "large").open("wb") as file:
        file.truncate(10 << 30)
    return tmp_path / "large"


def test_other_files_are_bounded_too(tmp_path: Path) -> None:
    for read in (quotas.read, replay.read, lambda path: interference.gavel(path, "v100")):
        with pytest.raises(TraceError, match="large has more than"):
            read(sparse(tmp_path))
