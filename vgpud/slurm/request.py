"""What a step of a Slurm job asks for, as `vgpu-runtime vgpu-slurm` sends it: lines KEY=VALUE. Pure.

The helper is run by Slurm's daemons, so job, user and devices are what Slurm says; `max`, `mem` and `class` are what
the user has typed. A step has the job's devices: milli-GPU are Slurm's shards, 1000 of them a device.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from vgpud.core.model import BATCH, CLASSES, UID_MAX, Spec
from vgpud.core.origins import WHOLE_JOB, SlurmStep
from vgpud.core.units import (
    GPUS_MAX,
    MILLI_PER_DEVICE,
    UnitError,
    format_gpus,
    parse_bytes,
    parse_gpus,
    parse_whole,
)

KEYS = ("job", "step", "uid", "stepd", "gpus", "shards", "max", "mem", "class", "total")
#: total=ask: a process that asks for a slice can find out what the whole job has here; and the answer when that is
#: needed
ASK, ASKED = "ask", b"ask=total\n"
#: the first version in which a job's shards may lie on several GPUs of a node, and how that is switched on
SEVERAL = "Slurm 23.11 or newer with MULTIPLE_SHARING_GRES_PJ in SelectTypeParameters"
_STEP = re.compile(r"\d{1,10}|" + "|".join(WHOLE_JOB))
_GPU = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_RANGE = re.compile(r"(\d{1,4})-(\d{1,4})")


class StepError(ValueError):
    """The request is invalid: one line that names the value and the remedy."""


@dataclass(frozen=True, slots=True)
class Request:
    """A slice for a step. stepd_pid: the slurmstepd that stands for it; 0: there is none yet, it is the whole job.
    total_milli: milli-GPU that the whole job has on this node, 0: not known; may_ask: but can be found out."""

    step: SlurmStep
    uid: int
    stepd_pid: int
    spec: Spec
    total_milli: int = 0
    may_ask: bool = False


def parse_request(body: bytes) -> Request:
    """Parses the request for a step's slice. Raises StepError."""
    given = _lines(body)
    step = _step(given)
    stepd_pid = _number(given, "stepd", 1 << 22) if given.get("stepd") else 0
    if bool(stepd_pid) != bool(step.step):
        raise StepError("step and stepd come together: give both, or neither for a whole job")
    may_ask = given.get("total") == ASK
    total_milli = 0 if may_ask or not given.get("total") else _number(given, "total", GPUS_MAX * MILLI_PER_DEVICE)
    return Request(step, _number(given, "uid", UID_MAX), stepd_pid, _spec(given), total_milli, may_ask)


def parse_step(body: bytes) -> SlurmStep:
    """Parses the report of a step's end. Raises StepError."""
    return _step(_lines(body))


def step_cgroup(paths: Iterable[str], step: SlurmStep) -> str:
    """The cgroup of a step's programs, of the paths of its slurmstepd or of its first task; "" without cgroups.

    Slurm names it .../job_ID/step_NAME, in each version of cgroups. slurmstepd itself may be one level above.
    """
    for path in paths:
        parts = path.split("/")
        if f"job_{step.job_id}" in parts:
            return "/".join([*parts[: parts.index(f"job_{step.job_id}") + 1], f"step_{step.step}"])
    return ""


def _lines(body: bytes) -> dict[str, str]:
    try:
        pairs = [line.partition("=") for line in body.decode().split("\n") if line]
    except UnicodeDecodeError as error:
        raise StepError("the request is not UTF-8") from error
    unknown = [key for key, _, _ in pairs if key not in KEYS]
    if unknown:
        raise StepError(f"unknown key {unknown[0][:40]!r}: use the plugin and vgpu-runtime of one release")
    return {key: value for key, _, value in pairs}


def _number(values: dict[str, str], key: str, maximum: int) -> int:
    text = values.get(key, "")
    number = parse_whole(text, maximum)
    if number is None:
        raise StepError(f"{key} {text[:40]!r} is not a whole number from 0 to {maximum}")
    return number


def _step(values: dict[str, str]) -> SlurmStep:
    name = values.get("step", "")
    if name and not _STEP.fullmatch(name):
        raise StepError(f"step {name[:40]!r} is neither a number nor one of {', '.join(WHOLE_JOB)}")
    return SlurmStep(_number(values, "job", UID_MAX), name)


def _gpus(text: str) -> tuple[str, ...]:
    """Indices or UUIDs: "0,2" and "0-3" as Slurm writes them."""
    found: list[str] = []
    for part in filter(None, text.split(",")):
        between = _RANGE.fullmatch(part)
        if between:
            found += [str(index) for index in range(int(between[1]), int(between[2]) + 1)]
        elif _GPU.fullmatch(part):
            found.append(part)
        else:
            raise StepError(f"gpus {text[:80]!r} are not a list of devices, such as 0,1")
    if len(found) > GPUS_MAX or len(set(found)) < len(found):
        raise StepError(f"gpus {text[:80]!r}: name each device once, at most {GPUS_MAX}")
    return tuple(found)


def _spec(values: dict[str, str]) -> Spec:
    gpus = _gpus(values.get("gpus", ""))
    if not gpus:
        said = next(
            (f"--vgpu-{key}={values[key]} without a GPU" for key in ("max", "mem", "class") if values.get(key)), ""
        )
        raise StepError(f"{said or 'the step has no GPU'}: ask Slurm for a part of one, for example --gres=shard:500")
    milli = _shards(values, len(gpus))
    most = _maximum(values.get("max", ""), milli)
    try:
        memory = parse_bytes(values["mem"]) if values.get("mem") else None
    except UnitError as error:
        raise StepError(f"--vgpu-mem: {error}") from error
    service_class = values.get("class") or BATCH
    if service_class not in CLASSES:
        raise StepError(f"--vgpu-class={service_class[:40]} is not a class: write {' or '.join(CLASSES)}")
    # no minimum of memory: admission takes the part that the shards are of the device, or less if less is asked for.
    # Slurm counts no memory of GPUs, and minima in proportion to its shards always fit.
    return Spec(milli, max_milli=most, mem_max_bytes=memory, device_uuids=gpus, service_class=service_class)


def _shards(values: dict[str, str], gpus: int) -> int:
    """Milli-GPU of the step: its shards, or whole devices where it has none."""
    if not values.get("shards"):
        return MILLI_PER_DEVICE * gpus
    milli, has = _number(values, "shards", GPUS_MAX * MILLI_PER_DEVICE), MILLI_PER_DEVICE * gpus
    if not 0 < milli <= has:
        text = f"shard:{milli} is not within the {has} of the step's {gpus} GPU(s) (1000 a GPU): ask for less, or for"
        raise StepError(f"{text} whole GPUs by --gres=gpu:N; several GPUs and a part of one need {SEVERAL}")
    if gpus > (fewest := -(-milli // MILLI_PER_DEVICE)):
        text = f"Slurm has spread shard:{milli} over {gpus} GPUs, none of which had enough of it free"
        raise StepError(f"{text}: submit it again later, or ask for --gres=gpu:{fewest}")
    return milli


def _maximum(text: str, milli: int) -> int | None:
    if not text:
        return None
    try:
        most = parse_gpus(text)
    except UnitError as error:
        raise StepError(f"--vgpu-max: {error}") from error
    if most < milli:
        low = format_gpus(milli)
        raise StepError(
            f"--vgpu-max={text} is below the step's own {low} GPUs (shard:{milli}): raise it, or ask for less"
        )
    return most
