"""Bounds of elastic jobs, and what was predicted of a job: the API's messages as the core's values, and back."""

from __future__ import annotations

import math

from vgpud.api.rpc import RefusedError, refuse
from vgpud.core.elastic import registry
from vgpud.core.jobs.facts import Launch, Predicted
from vgpud.core.jobs.model import Elastic
from vgpud.core.model import Reason
from vgpud.core.queue.check import MEMBERS_MAX
from vgpud.core.units import MILLI_PER_DEVICE, format_gpus
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: features of a prediction, so that they cannot fill the store
FEATURES_MAX = 64
TEXT_BYTES_MAX = 200
#: of a heuristic with its parameters
HEURISTIC_BYTES_MAX = 1000
BATCH_MAX = 1 << 40
#: features of a device, more than there are now
MEMORY_BYTES_MAX = float(1 << 50)
_RANGES = {"utilisation": 1.0, "sm_activity": 1.0, "mem_bytes": MEMORY_BYTES_MAX}


def _invalid(message: str, field: str) -> RefusedError:
    return refuse(Reason.INVALID, message, field)


# ---- bounds ----


def elastic_from(job_spec: pb.JobSpec) -> Elastic | None:
    """Checked; None of a job that stays as large as it is. Raises RefusedError."""
    if not job_spec.HasField("elastic"):
        return None
    given = job_spec.elastic
    gpus, workers = (given.gpus_milli_min, given.gpus_milli_max), (given.workers_min, given.workers_max)
    if any(gpus) and any(workers):
        raise _invalid("either the GPUs or the workers of a job are elastic, not both: leave one out", "elastic")
    if any(workers):
        _check_workers(job_spec, *workers)
    elif any(gpus):
        _check_gpus(job_spec, *gpus)
    else:
        raise _invalid("elastic says neither GPUs nor workers: give the minimum and the maximum of one", "elastic")
    return Elastic(*gpus, *workers, heuristic=given.heuristic)


def _check_gpus(job_spec: pb.JobSpec, gpus_min_milli: int, gpus_max_milli: int) -> None:
    """One member on one device, of which only the size changes."""
    text = f"GPUs {format_gpus(gpus_min_milli)}..{format_gpus(gpus_max_milli)} is not a valid range"
    if not 0 < gpus_min_milli <= gpus_max_milli:
        raise _invalid(f"{text}: write the minimum first, above 0, as 0.25..1", "elastic.gpus_milli_min")
    if gpus_max_milli > MILLI_PER_DEVICE:
        raise _invalid(f"{text}: an elastic slice is on one device, so at most 1; --workers goes further", "elastic")
    for name in ("min_milli", "max_milli", "spread"):
        if job_spec.slice.HasField(name) if name != "spread" else job_spec.slice.spread > 1:
            word = name.removesuffix("_milli")
            raise _invalid(
                f"{word} beside GPUs {format_gpus(gpus_min_milli)}..{format_gpus(gpus_max_milli)}: "
                "leave one of them out",
                name,
            )
    if job_spec.slice.gpus_milli not in (0, gpus_min_milli):
        own = format_gpus(job_spec.slice.gpus_milli)
        raise _invalid(f"{text} beside {own} GPUs: it begins with the minimum, so leave that out", "slice.gpus_milli")
    if job_spec.members > 1:
        raise _invalid(
            f"a gang of {job_spec.members} with elastic GPUs: its members stay as large as they are", "members"
        )
    if job_spec.elastic.heuristic or job_spec.elastic.batch or job_spec.elastic.batch_max:
        raise _invalid("a heuristic and a batch need workers: leave both out, or give workers", "elastic.heuristic")


def _check_workers(job_spec: pb.JobSpec, workers_min: int, workers_max: int) -> None:
    given = job_spec.elastic
    if not 1 <= workers_min <= workers_max <= MEMBERS_MAX:
        text = f"workers {workers_min}-{workers_max} is not a valid range:"
        text += f" write the minimum first, from 1 to {MEMBERS_MAX}"
        raise _invalid(text, "elastic.workers_min")
    if job_spec.members not in (0, workers_min):
        raise _invalid(
            f"a gang of {job_spec.members} with {workers_min}-{workers_max} workers: leave one of them out", "members"
        )
    _text(given.heuristic, "elastic.heuristic", HEURISTIC_BYTES_MAX)
    if why := registry.check(given.heuristic):
        raise _invalid(why, "elastic.heuristic")
    if job_spec.image:
        text = f"workers cannot run in an image ({job_spec.image!r}): they need the daemon's socket,"
        text += " which no container has"
        raise _invalid(f"{text}; run them without an image", "image")
    if given.batch > BATCH_MAX or given.batch_max > BATCH_MAX:
        raise _invalid(f"batch {max(given.batch, given.batch_max)} is above {BATCH_MAX}", "elastic.batch")
    if given.batch_max and not 0 < given.batch <= given.batch_max:
        text = f"batch {given.batch} cannot grow to {given.batch_max}: give the batch that it begins with, not above it"
        raise _invalid(text, "elastic.batch_max")


def elastic_view(elastic: Elastic | None, launch: Launch) -> pb.ElasticSpec | None:
    if elastic is None:
        return None
    return pb.ElasticSpec(
        gpus_milli_min=elastic.least_milli,
        gpus_milli_max=elastic.most_milli,
        workers_min=elastic.least_members,
        workers_max=elastic.most_members,
        heuristic=elastic.heuristic,
        batch=launch.batch,
        batch_max=launch.batch_max,
    )


# ---- what was predicted ----


def prediction_from(job_spec: pb.JobSpec) -> Predicted | None:
    """Bounded numbers; None where nothing was predicted. Raises RefusedError."""
    if not job_spec.HasField("prediction"):
        return None
    given = job_spec.prediction
    for field in ("model", "device"):
        _text(getattr(given, field), f"prediction.{field}")
    if len(given.features) > FEATURES_MAX:
        raise _invalid(
            f"prediction has {len(given.features)} features: at most {FEATURES_MAX} are allowed", "prediction"
        )
    for name, value in given.features.items():
        _text(name, "prediction.features")
        if not math.isfinite(value):
            raise _invalid(f"prediction has {value} as its {name}: leave it out", "prediction.features")
    ranges = {field: _range(getattr(given, field), field, high) for field, high in _RANGES.items()}
    return Predicted(
        model=given.model,
        device=given.device,
        utilisation=ranges["utilisation"],
        sm_activity=ranges["sm_activity"],
        memory_bytes=ranges["mem_bytes"],
        out_of_range=given.out_of_range,
        features=tuple(sorted(given.features.items())),
    )


def _text(text: str, field: str, limit_bytes: int = TEXT_BYTES_MAX) -> None:
    if len(text.encode()) > limit_bytes or not text.isprintable():
        raise _invalid(f"{field} {text[:40]!r} is too long or cannot be printed: {limit_bytes} bytes at most", field)


def _range(predicted_range: pb.Range, field: str, high: float) -> tuple[float, float, float]:
    """Value, low, high."""
    # false for what is no number, too
    if not 0 <= predicted_range.low <= predicted_range.value <= predicted_range.high <= high:
        text = f"prediction of {field} {predicted_range.low:g} <= {predicted_range.value:g} <= {predicted_range.high:g}"
        text += f" is out of range: 0 to {high:g}"
        raise _invalid(text, f"prediction.{field}")
    return predicted_range.value, predicted_range.low, predicted_range.high


def utilisation_milli(prediction: Predicted | None) -> int:
    """What the queue goes by; -1 = not known."""
    if prediction is None or prediction.out_of_range or not prediction.utilisation[0]:
        return -1
    return max(1, round(prediction.utilisation[0] * MILLI_PER_DEVICE))


def prediction_view(prediction: Predicted | None) -> pb.Prediction | None:
    if prediction is None:
        return None
    (value, low, high), activity, memory = prediction.utilisation, prediction.sm_activity, prediction.memory_bytes
    return pb.Prediction(
        model=prediction.model,
        device=prediction.device,
        utilisation=pb.Range(value=value, low=low, high=high),
        sm_activity=pb.Range(value=activity[0], low=activity[1], high=activity[2]),
        mem_bytes=pb.Range(value=memory[0], low=memory[1], high=memory[2]),
        out_of_range=prediction.out_of_range,
        features=dict(prediction.features),
    )
