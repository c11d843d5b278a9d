"""Traces of other sites: small files that were written by hand after the documentation of each format."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgpud.core.jobs.model import DEFAULT_QUEUE, SECOND_NS
from vgpud.simulate import clusters, fields, readers, sacct
from vgpud.simulate.scenario import Scenario, run
from vgpud.simulate.trace import LeftOut, Trace, TraceError

HELIOS = """job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
31,uAnn,vcA,8,64,2,COMPLETED,2020-06-09 18:00:00,2020-06-09 18:01:00,2020-06-09 18:11:00,600,60
32,uBob,vcB,1,8,1,FAILED,2020-06-09 18:00:30,2020-06-09 18:00:30,2020-06-09 18:00:40,10,0
33,uAnn,vcA,0,8,1,COMPLETED,2020-06-09 18:00:40,2020-06-09 18:00:40,2020-06-09 18:00:50,10,0
34,uAnn,vcA,1,8,1,CANCELLED,2020-06-09 18:00:50,2020-06-09 18:00:50,2020-06-09 18:00:50,0,0
"""
SEREN = """job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
7,u1,1,8,128,Pretrain,COMPLETED,2023-03-01 00:00:00+08:00,2023-03-01 00:00:30+08:00,2023-03-01 00:02:30+08:00,120,30,960
8,u2,1,0,16,Other,FAILED,2023-03-01 00:00:10+08:00,2023-03-01 00:00:11+08:00,2023-03-01 00:00:12+08:00,1,1,0
9,u2,1,1,16,Debug,CANCELLED,2023-03-01 00:00:20+08:00,,2023-03-01 00:01:00+08:00,,,
"""
#: its `duration` counts from the submission on
KALOS = (
    "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,end_time,"
    "fail_time,stop_time,duration,queue,gpu_time\n"
    "k1,u3,4,32,480,1000,100.0,SFT,COMPLETED,2023-05-17 11:00:00+00:00,2023-05-17 11:00:10+00:00,"
    "2023-05-17 11:01:10+00:00,,,70,10.0,2240.0\n"
)
SWF = """; Version: 2.2
; MaxNodes: 16
; MaxProcs: 128
1 0 10 600 4 -1 -1 4 3600 -1 1 5 2 7 1 -1 -1 -1
2 5.5 0 30 -1 -1 -1 2 -1 -1 1 6 2 -1 -1 -1 -1 -1
3 6 -1 -1 4 -1 -1 4 60 -1 5 5 2 7 1 -1 -1 -1
4 7 0 20 4 -1 -1 4 60 -1 2 5 2 7 1 -1 -1 -1
5 8 0 20 -1 -1 -1 -1 60 -1 1 5 2 7 1 -1 -1 -1
"""


def pod(name: str, gpus: int, start: str, end: str, namespace: str = "ml", **status: Any) -> dict[str, Any]:
    """`start`, `end`: minutes and seconds past eight; "" of what has not come."""
    day = "2026-11-01T08:{}Z"
    state = {"terminated": {"finishedAt": day.format(end)}} if end else {"running": {}}
    limits = {"nvidia.com/gpu": str(gpus), "memory": "8Gi"} if gpus else {"memory": "8Gi"}
    status = {"phase": "Running", "containerStatuses": [{"state": state}], **status}
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "creationTimestamp": day.format("00:00")},
        "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": status | ({"startTime": day.format(start)} if start else {}),
    }


PODS = {
    "apiVersion": "v1",
    "kind": "List",
    "items": [
        pod("b", 2, "00:30", "10:30"),
        pod("a", 1, "00:10", "00:40", namespace="web"),
        pod("cpu", 0, "00:10", "00:40"),
        pod("waits", 1, "", ""),
        pod("runs", 1, "05:00", ""),
        pod("evicted", 1, "05:00", "", phase="Failed", containerStatuses=[]),
    ],
}


def attempt(start: str, end: str | None, *gpus: int) -> dict[str, Any]:
    """`gpus`: on each machine."""
    detail = [{"ip": f"m{n}", "gpus": [f"gpu{i}" for i in range(count)]} for n, count in enumerate(gpus)]
    return {"start_time": f"2017-10-07 01:{start}", "end_time": end and f"2017-10-07 01:{end}", "detail": detail}


PHILLY_LOG = [
    {
        "status": "Pass",
        "vc": "6c71a0",
        "jobid": "application_1",
        "user": "ce2f4c",
        "submitted_time": "2017-10-07 01:00:00",
        "attempts": [attempt("00:30", "01:30", 4, 4), attempt("02:00", "02:30", 4, 4)],
    },
    {
        "vc": "6c71a0",
        "jobid": "application_2",
        "submitted_time": "2017-10-07 01:00:01",
        "attempts": [attempt("00:01", "00:11", 2, 1)],
    },
    {"vc": "6c71a0", "jobid": "application_3", "submitted_time": "2017-10-07 01:00:02", "attempts": []},
    {"jobid": "4", "submitted_time": "2017-10-07 01:00:03", "attempts": [attempt("00:30", None, 1)]},
    {"jobid": "5", "submitted_time": "2017-10-07 01:00:04", "attempts": [attempt("00:30", "00:40")]},
]
OTHER = "id,GPUs,sent,secs,owner,net\n1,0.5,2026-11-01 08:00:00,60,ann,vgg16\n2,2,2026-11-01 08:00:10,30,bob,mine\n"
COLUMNS = "num_gpu=GPUs,submit_time=sent,duration=secs,user=owner,model=net,job_id=id"


def read(folder: Path, text: str, columns: str = "", *, sort: bool = False) -> Trace:
    path = folder / "trace"
    path.write_text(text)
    return readers.read_trace(path, sort, fields.parse_columns(columns) if columns else None)


def shapes(trace: Trace) -> list[tuple[str, float, float, int, int]]:
    """Name, seconds of submission and run, milli of a member, members."""
    return [
        (
            job.spec.name,
            job.submitted_ns / SECOND_NS,
            job.duration_ns / SECOND_NS,
            job.spec.ask.width_milli,
            job.spec.members,
        )
        for job in trace.jobs
    ]


def test_helios(tmp_path: Path) -> None:
    trace = read(tmp_path, HELIOS)
    assert shapes(trace) == [("31", 0, 600, 4000, 2), ("32", 30, 10, 1000, 1)]
    assert [job.jct_ns // SECOND_NS for job in trace.jobs] == [660, 10]
    assert [(job.spec.queue, job.spec.uid, job.spec.one_per_node) for job in trace.jobs] == [
        ("vcA", 1, True),
        ("vcB", 2, False),
    ]
    assert trace.left_out == Counter({LeftOut.WITHOUT_GPUS: 1, LeftOut.NEVER_RAN: 1})


def test_acme(tmp_path: Path) -> None:
    seren = read(tmp_path, SEREN)
    assert shapes(seren) == [("7", 0, 120, 8000, 1)]
    (job,) = seren.jobs
    assert (job.spec.model, job.spec.queue, job.jct_ns) == ("Pretrain", DEFAULT_QUEUE, 150 * SECOND_NS)
    assert seren.left_out == Counter({LeftOut.WITHOUT_GPUS: 1, LeftOut.NEVER_RAN: 1})
    (job,) = read(tmp_path, KALOS).jobs
    assert (job.duration_ns, job.spec.members, job.spec.width_milli) == (60 * SECOND_NS, 4, 32_000)


def test_the_name_of_a_file_tells_that_it_is_swf(tmp_path: Path) -> None:
    """Where its first line does not."""
    path = tmp_path / "short.swf"
    path.write_text("1 0 0 20 4 -1 -1 -1 60\n")
    with pytest.raises(TraceError, match=r"short\.swf:1: 9 values where a line of SWF has 18"):
        readers.read_trace(path)


def test_swf(tmp_path: Path) -> None:
    trace = read(tmp_path, SWF)
    assert shapes(trace) == [("1", 0, 600, 1000, 4), ("2", 5.5, 30, 1000, 2)]
    first, second = trace.jobs
    assert (first.spec.duration_ns, first.jct_ns) == (3600 * SECOND_NS, 610 * SECOND_NS)
    assert (first.spec.uid, first.spec.model, first.spec.queue) == (5, "7", "1")
    assert (second.spec.duration_ns, second.spec.model, second.spec.queue) == (30 * SECOND_NS, "", DEFAULT_QUEUE)
    assert trace.gpus == 128 and sum(trace.left_out.values()) == 3
    assert read(tmp_path, SWF.split("128\n")[1]).gpus == 0, "comments are not necessary"


def test_pods(tmp_path: Path) -> None:
    trace = read(tmp_path, json.dumps(PODS))
    assert shapes(trace) == [("ml/b", 0, 600, 2000, 1), ("web/a", 0, 30, 1000, 1), ("ml/runs", 0, 330, 1000, 1)]
    assert [(job.spec.queue, job.spec.uid) for job in trace.jobs] == [("ml", 1), ("web", 2), ("ml", 1)]
    assert [job.jct_ns // SECOND_NS for job in trace.jobs] == [630, 40, 630]
    assert trace.left_out == Counter({LeftOut.WITHOUT_GPUS: 1, LeftOut.NEVER_RAN: 1, LeftOut.WITHOUT_END: 1})


def test_containers_that_initialise_a_pod_run_before_the_others(tmp_path: Path) -> None:
    one = pod("a", 1, "00:10", "00:40")
    one["spec"]["containers"].append({"resources": {"limits": {"vgpu.dev/tenth": 5}}})
    one["spec"]["initContainers"] = [{"resources": {"limits": {"amd.com/gpu": 1}}}, {}]
    (job,) = read(tmp_path, json.dumps({"kind": "List", "items": [one]})).jobs
    assert job.spec.width_milli == 1500


def test_philly_log(tmp_path: Path) -> None:
    trace = read(tmp_path, json.dumps(PHILLY_LOG))
    assert shapes(trace) == [("application_1", 0, 90, 4000, 2), ("application_2", 1, 10, 1000, 3)]
    assert (trace.jobs[0].spec.queue, trace.jobs[0].jct_ns) == ("6c71a0", 150 * SECOND_NS)
    assert trace.left_out == Counter({LeftOut.NEVER_RAN: 1, LeftOut.WITHOUT_END: 1, LeftOut.WITHOUT_GPUS: 1})


def test_columns_of_any_names(tmp_path: Path) -> None:
    trace = read(tmp_path, OTHER, COLUMNS)
    assert shapes(trace) == [("1", 0, 60, 500, 1), ("2", 10, 30, 1000, 2)]
    assert [(job.spec.uid, job.spec.model) for job in trace.jobs] == [(1, "vgg16"), (2, "mine")]
    assert [job.spec.skew_ppm > 0 for job in trace.jobs] == [True, False]
    assert all(job.jct_ns == -1 for job in trace.jobs)
    elastic = "num_gpu,submit_time,begin,end_time,min_gpu,uid\n4,5,10,70,2,1000\n"
    (job,) = read(tmp_path, elastic, "start_time=begin").jobs
    assert (job.duration_ns, job.spec.members, job.spec.uid) == (60 * SECOND_NS, 2, 1000)
    assert job.jct_ns == 65 * SECOND_NS


SACCT = "|".join((*sacct.NEEDED, "Comment"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (SACCT, "use --from-slurm .*trace instead of --trace"),
        ("apiVersion: v1\nitems: []\n", "write it with `kubectl get pods -A -o json > pods.json`"),
        ('{"apiVersion": "v1", "kind": "Pod"}', "is no list of pods: write it with `kubectl get pods -A -o json"),
        ("NAMESPACE   NAME   READY\n", "write it with `kubectl get pods -A -o json > pods.json`"),
        (json.dumps({"kind": "List", "items": [{"kind": "Job"}]}), "pod 1 is no pod: write the file with `kubectl"),
        (json.dumps({"kind": "List", "items": [pod("cpu", 0, "00:01", "00:02")]}), "no job that ran: 1 had no GPU"),
        (OTHER, r"no known columns: name them with --columns num_gpu=GPUs,submit_time=COLUMN,duration=COLUMN"),
        ("gpus,runtime,submitted\n1,2,3\n", "--columns num_gpu=gpus,submit_time=submitted,duration=runtime"),
        (SWF + "6 8 0 20\n", r"trace:9: 4 values where a line of SWF has 18"),
        (SWF + "6 1 0 20 4 -1 -1 -1 60 -1 1 5 2 7 1 -1 -1 -1\n", r"trace:9: submitted .* --sort"),
        (SWF.replace(" 600 ", " -5 "), r"trace:4: run time is -5: it must not be negative"),
        (HELIOS.replace("18:01:00", "soon"), None),  # not needed where there is a duration
        (HELIOS.replace("2020-06-09 18:11:00", "2020-06-09 soon"), "trace:2: end_time is '2020-06-09 soon'"),
        (HELIOS.replace(",8,64,2", ",x,64,2"), "trace:2: gpu_num is 'x': it must be a number"),
        (SEREN.replace("00:02:30", "00:00:20"), "trace:2: end_time is before start_time"),
        (json.dumps([*PHILLY_LOG, {"jobid": "6"}]), "job 6: no jobid, submitted_time or attempts"),
    ],
)
def test_refused_with_what_helps(tmp_path: Path, text: str, words: str | None) -> None:
    if words is None:
        read(tmp_path, text)
        return
    with pytest.raises(TraceError, match=words) as refused:
        read(tmp_path, text)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("gpus", "'gpus' is not FIELD=COLUMN: write for example num_gpu=GPUs,user=owner"),
        ("num_gpus=GPUs", "no field 'num_gpus': did you mean num_gpu?"),
        ("colour=GPUs", "no field 'colour': there are num_gpu, "),
        ("num_gpu=GPUs,num_gpu=id", "num_gpu is there twice"),
    ],
)
def test_columns_are_checked(columns: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        fields.parse_columns(columns)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("num_gpu=GPU", "no column 'GPU', which --columns names for num_gpu: did you mean GPUs?"),
        ("num_gpu=GPUs,submit_time=sent", "no column for duration or end_time: add duration=COLUMN or end_time=COLUMN"),
        ("num_gpu=GPUs,submit_time=sent,duration=owner", "trace:2: owner is 'ann': it must be a number"),
        ("num_gpu=secs,submit_time=sent,duration=owner", "trace:2: owner is 'ann': it must be a number"),
        (
            "num_gpu=GPUs,submit_time=net,duration=secs",
            "trace:2: net is 'vgg16': it must be seconds, or a date such as 20",
        ),
    ],
)
def test_columns_that_do_not_do(tmp_path: Path, columns: str, words: str) -> None:
    with pytest.raises(TraceError) as refused:
        read(tmp_path, OTHER, columns)
    assert words in str(refused.value)


FAR_APART = """gpus,sent,secs
1,2020-01-01 00:00:00,60
1,9999-01-01 00:00:00,60
"""


def test_times_that_no_simulation_has(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"trace:3: [0-9]+ s after the first job, .* are out of range"):
        read(tmp_path, FAR_APART, "num_gpu=gpus,submit_time=sent,duration=secs")


def test_a_simulation_of_centuries(tmp_path: Path) -> None:
    """Each of the jobs is as long as one may be."""
    lines = ["num_gpu,submit_time,duration", *["1,0,3162240000"] * 4]
    trace = read(tmp_path, "\n".join(lines) + "\n")
    with pytest.raises(TraceError, match="the simulation lasts more than 292 years: leave the longest jobs out"):
        run(trace.jobs, clusters.parse("1x1"), Scenario("fifo", "count"))


@pytest.mark.parametrize("gpus", ["0.0001", "2.5"])
def test_sizes_that_no_cluster_has(tmp_path: Path, gpus: str) -> None:
    with pytest.raises(TraceError, match=f"trace:2: GPUs is {gpus}"):
        read(tmp_path, OTHER.replace("0.5", gpus), COLUMNS)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.sampled_from(["", "1", "2026-11-01T08:00:00Z", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["kind", "state", "x"]), inner),
    max_leaves=4,
)


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_json_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    """A good file in which one value is another."""
    whole: Any = json.loads(json.dumps(data.draw(st.sampled_from([PODS, PHILLY_LOG]))))
    at = whole
    while True:
        keys: Any = list(at) if isinstance(at, dict) else range(len(at))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.booleans()):
            at[key] = data.draw(ANY_JSON)
            break
        at = at[key]
    with contextlib.suppress(TraceError):
        read(tmp_path, json.dumps(whole), sort=True)
