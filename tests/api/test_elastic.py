"""Elastic jobs and predictions in the API: what becomes of them, what is refused, and that nothing of it grows."""

from __future__ import annotations

import math
from typing import Any

import pytest

from vgpud.api import job_messages as views
from vgpud.api.rpc import RefusedError
from vgpud.core.jobs.facts import Facts, Launch
from vgpud.core.jobs.model import Elastic, Job, JobSpec
from vgpud.core.jobs.similarity import WORDS, word_of
from vgpud.v1alpha1 import vgpud_pb2 as pb

GIB = 1 << 30


def make_spec(**fields: Any) -> pb.JobSpec:
    given = {"command": ["python", "train.py"], "directory": "/a", "slice": pb.SliceSpec(gpus_milli=250)}
    return pb.JobSpec(**(given | fields))


def gpus(minimum: int, maximum: int, **fields: Any) -> pb.JobSpec:
    return make_spec(elastic=pb.ElasticSpec(gpus_milli_min=minimum, gpus_milli_max=maximum), **fields)


def workers(minimum: int, maximum: int, **fields: Any) -> pb.JobSpec:
    elastic = {key: fields.pop(key) for key in ("heuristic", "batch", "batch_max") if key in fields}
    return make_spec(elastic=pb.ElasticSpec(workers_min=minimum, workers_max=maximum, **elastic), **fields)


def parse_spec(spec: pb.JobSpec, **options: Any) -> JobSpec:
    launch = views.launch_from(spec, 1000, 1000, (), {})
    return views.submission_from(pb.SubmitJobRequest(spec=spec), launch, "default", **options).spec


def refusal(spec: pb.JobSpec) -> str:
    with pytest.raises(RefusedError) as caught:
        parse_spec(spec)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 250
    assert caught.value.refusal.field
    return text


def show_job(spec: JobSpec, facts: Facts | None = None) -> pb.Job:
    return views.job_view(Job(1, spec, 0), facts or Facts(), "n1", has_details=True, own=True)


def test_an_elastic_slice_begins_with_its_least() -> None:
    for slice_milli in (0, 250):
        spec = parse_spec(gpus(250, 1000, slice=pb.SliceSpec(gpus_milli=slice_milli)))
        assert (spec.ask.spec.gpus_milli, spec.members, spec.elastic) == (250, 1, Elastic(250, 1000))
    view = show_job(spec)
    assert (view.spec.elastic.gpus_milli_min, view.spec.elastic.gpus_milli_max) == (250, 1000)
    assert (view.gpus_milli, view.workers) == (250, 1)


def test_workers_begin_with_the_least() -> None:
    spec = parse_spec(workers(2, 8, heuristic="efficiency(0.2)", batch=64, batch_max=512))
    assert (spec.members, spec.elastic) == (2, Elastic(0, 0, 2, 8, "efficiency(0.2)"))
    assert isinstance(spec.run, Launch) and (spec.run.batch, spec.run.batch_max) == (64, 512)
    elastic = show_job(spec, Facts(samples_per_second=12.5)).spec.elastic
    assert (elastic.workers_min, elastic.workers_max, elastic.batch, elastic.batch_max) == (2, 8, 64, 512)
    assert elastic.heuristic == "efficiency(0.2)"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (make_spec(elastic=pb.ElasticSpec()), "neither GPUs nor workers"),
        (gpus(500, 250), "write the minimum first"),
        (gpus(0, 500), "write the minimum first"),
        (gpus(-5, 500), "write the minimum first"),
        (gpus(500, 2000), "on one device, so at most 1"),
        (gpus(250, 1000, slice=pb.SliceSpec(gpus_milli=500)), "beside 0.5 GPUs"),
        (gpus(250, 1000, slice=pb.SliceSpec(gpus_milli=250, min_milli=100)), "min beside GPUs"),
        (gpus(250, 1000, slice=pb.SliceSpec(gpus_milli=250, max_milli=1000)), "max beside GPUs"),
        (gpus(250, 1000, slice=pb.SliceSpec(gpus_milli=250, spread=2)), "spread beside GPUs"),
        (gpus(250, 1000, members=2), "a gang of 2 with elastic GPUs"),
        (make_spec(elastic=pb.ElasticSpec(gpus_milli_min=250, gpus_milli_max=900, batch=3)), "need workers"),
        (
            make_spec(elastic=pb.ElasticSpec(gpus_milli_min=1, gpus_milli_max=2, workers_min=1, workers_max=2)),
            "not both",
        ),
        (workers(8, 1), "write the minimum first"),
        (workers(0, 4), "from 1 to 1024"),
        (workers(1, 5000), "from 1 to 1024"),
        (workers(1, 4, members=3), "a gang of 3 with 1-4 workers"),
        (workers(1, 4, image="a/b"), "run them without an image"),
        (workers(1, 4, heuristic="magic"), "there is no heuristic 'magic'"),
        (workers(1, 4, heuristic=f"fixed({' ' * 100_000}2)"), "too long"),
        (workers(1, 4, heuristic="utility(steps,1,50,100,4,samples=9)"), "must not rise with time"),
        (workers(1, 4, batch_max=64), "give the batch that it begins with"),
        (workers(1, 4, batch=128, batch_max=64), "give the batch that it begins with"),
        (workers(1, 4, batch=1 << 50), "is above"),
    ],
)
def test_elastic_sizes_that_are_invalid(spec: pb.JobSpec, message: str) -> None:
    assert message in refusal(spec)


def make_predicted_spec(**fields: Any) -> pb.JobSpec:
    part = pb.Range(value=0.431, low=0.3, high=0.6)
    given = {"model": "net:make", "device": "h200", "utilisation": part, "sm_activity": part}
    given |= {"mem_bytes": pb.Range(value=8 * GIB, low=7 * GIB, high=9 * GIB), "features": {"layers": 12}}
    return make_spec(prediction=pb.Prediction(**(given | fields)))


def test_a_prediction_is_kept_and_shown_to_its_owner() -> None:
    spec = parse_spec(make_predicted_spec())
    assert isinstance(spec.run, Launch) and spec.run.prediction is not None
    assert spec.run.prediction.features == (("layers", 12.0),)
    view = show_job(spec)
    assert view.spec.prediction.model == "net:make" and view.spec.prediction.mem_bytes.high == 9 * GIB
    assert (view.utilisation, view.utilisation_measured) == (0.431, False)
    listed = views.job_view(Job(1, spec, 0), Facts(), "n1", has_details=False, own=True)
    assert not listed.spec.HasField("prediction"), "lists have no room for it"


def test_only_where_devices_are_shared_by_use_it_is_part_of_the_ask() -> None:
    """So that jobs with equal asks are looked at once elsewhere."""
    plain, sharing = parse_spec(make_predicted_spec()), parse_spec(make_predicted_spec(), colocates=True)
    assert (plain.ask.utilisation_milli, plain.ask.kind) == (-1, "")
    assert sharing.ask.utilisation_milli == 431 and word_of(sharing.ask.kind) == "same"
    out_of_range = parse_spec(make_predicted_spec(out_of_range=True), colocates=True)
    assert out_of_range.ask.utilisation_milli == -1
    assert parse_spec(make_spec(), colocates=True).ask.utilisation_milli == -1


def test_jobs_have_classes() -> None:
    assert tuple(map(word_of, parse_spec(make_spec()).kinds)) == tuple(WORDS)
    assert parse_spec(make_spec()).kinds == parse_spec(make_spec(array_indices=[1, 2, 3])).kinds


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"utilisation": pb.Range(value=1.5, low=0, high=2)}, "prediction of utilisation"),
        ({"utilisation": pb.Range(value=0.5, low=0.6, high=0.7)}, "prediction of utilisation"),
        ({"utilisation": pb.Range(value=math.nan, low=0, high=1)}, "prediction of utilisation"),
        ({"sm_activity": pb.Range(value=-1, low=-2, high=0)}, "prediction of sm_activity"),
        ({"mem_bytes": pb.Range(value=math.inf, low=0, high=math.inf)}, "prediction of mem_bytes"),
        ({"features": {"layers": math.nan}}, "prediction has nan as its layers"),
        ({"features": {str(i): i for i in range(1000)}}, "1000 features"),
        ({"features": {"x" * 1000: 1}}, "is too long"),
        ({"model": "a\nb"}, "cannot be printed"),
        ({"model": "a" * 1000}, "is too long"),
    ],
)
def test_predictions_that_are_invalid(fields: dict[str, Any], message: str) -> None:
    assert message in refusal(make_predicted_spec(**fields))


def test_facts_of_a_job_that_runs() -> None:
    view = show_job(parse_spec(make_spec()), Facts(samples_per_second=99.5, measured_milli=700, estimated_ns=3 * 10**9))
    assert (view.samples_per_second, view.utilisation_measured, view.utilisation) == (99.5, True, 0.7)
    assert view.estimated_duration.seconds == 3
    assert not show_job(parse_spec(make_spec())).HasField("estimated_duration")
