"""What a container asks for, from its environment and its annotations (docs/docker.md). Pure.

An annotation overrides the variable of the same meaning. Of duplicate variables the last one counts, as for
`docker run -e` and shells. Empty values are the same as none, so that a user can cancel an image's ENV with
`-e NAME=`; `VGPU=none` cancels the whole request.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpud.core.model import BATCH, CLASSES, LATENCY, PRIORITY_MAX, Spec
from vgpud.core.spans import parse_span
from vgpud.core.units import GPUS_MAX, UnitError, format_bytes, format_gpus, parse_bytes, parse_gpus

ANNOTATION_PREFIX = "dev.vgpu/"
#: names the container's user (owner.py), and requests nothing
OWNER = "dev.vgpu/user"
#: environment variable -> annotation
TWINS = {
    "VGPU": "dev.vgpu/gpus",
    "VGPU_MIN": "dev.vgpu/min",
    "VGPU_MAX": "dev.vgpu/max",
    "VGPU_MEM": "dev.vgpu/mem",
    "VGPU_MEM_MIN": "dev.vgpu/mem-min",
    "VGPU_NAME": "dev.vgpu/name",
    "VGPU_CLASS": "dev.vgpu/class",
    "VGPU_PRIORITY": "dev.vgpu/priority",
    "VGPU_SPREAD": "dev.vgpu/spread",
    "VGPU_MEM_SWAP": "dev.vgpu/mem-swap",
    "VGPU_IDLE_AFTER": "dev.vgpu/idle-after",
    "VGPU_QUEUE": "dev.vgpu/queue",
    "VGPU_SLICE": "dev.vgpu/slice",
}
#: variables that describe a job to its programs, also in a container
_OF_JOBS = (
    *("JOB_ID", "JOB_ATTEMPT", "ARRAY_ID", "ARRAY_INDEX", "MEMBER", "MEMBERS", "WORKER"),
    *("SESSION_PORT", "SESSION_BASE", "SESSION_TOKEN", "SESSION_HOST"),
    *("SERVICE_PORT", "SERVICE_TOKEN", "SERVICE_HOST", "SERVICE_GENERATION"),
)
OF_JOBS = frozenset(f"VGPU_{name}" for name in _OF_JOBS)
#: of a session's further ports
_OF_PORTS = re.compile(r"VGPU_SESSION_(PORT|BASE)_[A-Z][A-Z0-9]*")
#: variables for the libraries and the command line inside a container; they request nothing
TOOLS = OF_JOBS | {
    "VGPU_DEBUG",
    "VGPU_DRIVER",
    "VGPU_HOST",
    "VGPU_LOG",
    "VGPU_MODE",
    "VGPU_NVML",
    "VGPU_SIM_DIR",
    "VGPU_SIM_KERNELS",
    "VGPU_SOCKET",
}
#: variables that Kubernetes sets in every pod of a namespace with a service `vgpu` or `vgpu-...`
_SERVICE_LINK = re.compile(r"VGPU_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)")
NONE = "none"
_VALUE_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of requests by the environment: an image's ENV cannot be distinguished from the user's `-e`.

    `from_image`: annotations may come from the image as well, and have the same bounds.
    """

    gpus_milli: int
    priority: int = 0
    latency: bool = False
    from_image: bool = False


class RequestError(ValueError):
    """The request is invalid: one line that names the value and the remedy."""


@dataclass(frozen=True, slots=True)
class Request:
    """A slice of its own (spec), or a place in the slice `join`. name, queue: "" = the daemon chooses one.

    `open_queue`: the queue may come from the image and not from the user, so it must be open to every user.
    """

    spec: Spec | None
    join: str = ""
    name: str = ""
    queue: str = ""
    open_queue: bool = False


@dataclass(frozen=True, slots=True)
class _Value:
    """One requested value and its source."""

    text: str
    source: str  # "VGPU" or "dev.vgpu/gpus"

    @property
    def by_environment(self) -> bool:
        return not self.source.startswith(ANNOTATION_PREFIX)

    @property
    def description(self) -> str:
        text = self.text if len(self.text) <= _VALUE_CHARACTERS_MAX else self.text[:_VALUE_CHARACTERS_MAX] + "..."
        return f"{self.source}={text if text.isprintable() else ascii(text)}"


def parse_request(env: Sequence[str], annotations: Mapping[str, str], limits: Limits) -> Request | None:
    """The request in a container's configuration, None if there is none. Raises RequestError."""
    variables = _variables(env)
    given = _values(variables, annotations)
    gpus = given.get("VGPU")
    if gpus is not None and gpus.text == NONE:
        return None
    _refuse_unknown(variables, annotations)
    if "VGPU_SLICE" in given:
        return _joining(given)
    if gpus is None:
        if "VGPU" in variables or TWINS["VGPU"] in annotations or not given:
            return None  # VGPU= cancels the rest as well
        first = next(iter(given.values()))
        raise RequestError(f"{first.description} without VGPU: say how many GPUs, for example VGPU=0.5")
    queue = given.get("VGPU_QUEUE")
    return Request(
        _spec(given, limits),
        name=given["VGPU_NAME"].text if "VGPU_NAME" in given else "",
        queue=queue.text if queue else "",
        open_queue=queue is not None and (queue.by_environment or limits.from_image),
    )


def _variables(env: Sequence[str]) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in env)
    ours = {name: value for name, _, value in pairs if name == "VGPU" or name.startswith("VGPU_")}
    return {name: value for name, value in ours.items() if not _SERVICE_LINK.fullmatch(name)}


def _values(variables: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, _Value]:
    """The non-empty values by the variable's name."""
    found: dict[str, _Value] = {}
    for variable, annotation in TWINS.items():
        source = annotation if annotation in annotations else variable
        text = (annotations.get(annotation) if source == annotation else variables.get(variable, "")) or ""
        if text.strip():
            found[variable] = _Value(text.strip(), source)
            if len(text.strip()) > _VALUE_CHARACTERS_MAX:
                limit = f"longer than {_VALUE_CHARACTERS_MAX} characters"
                raise RequestError(f"{found[variable].description} is {limit}: no valid value is that long")
    return found


def describes_job(name: str) -> bool:
    """Whether a variable says something of its job to the job's programs."""
    return name in OF_JOBS or bool(_OF_PORTS.fullmatch(name))


def _refuse_unknown(variables: Mapping[str, str], annotations: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if name not in TWINS and name not in TOOLS and not describes_job(name):
            raise RequestError(_unknown("variable", name, value, list(TWINS)))
    for name, value in annotations.items():
        if name.startswith(ANNOTATION_PREFIX) and name not in (*TWINS.values(), OWNER):
            raise RequestError(_unknown("annotation", name, value, list(TWINS.values())))


def _unknown(kind: str, name: str, value: str, valid_names: list[str]) -> str:
    near = difflib.get_close_matches(name, valid_names, n=1, cutoff=0.0)[0]
    text = f"unknown {kind} {_Value(value, name).description}: write {near},"
    return f"{text} or take it away (known: {', '.join(valid_names)})"


def _joining(values: Mapping[str, _Value]) -> Request:
    joined = values["VGPU_SLICE"]
    for variable, value in values.items():
        if variable != "VGPU_SLICE":
            empty = f"{variable}= (empty)" if value.by_environment else f"no {value.source}"
            text = f"{value.description} and {joined.description} together: the slice has its numbers already"
            raise RequestError(f"{text}; join it with {empty}, or make one of your own without {joined.source}")
    return Request(None, join=joined.text)


def _spec(values: Mapping[str, _Value], limits: Limits) -> Spec:
    numbers = {name: _gpus(values.get(name), name, limits) for name in ("VGPU", "VGPU_MIN", "VGPU_MAX")}
    gpus, low, high = numbers["VGPU"] or 0, numbers["VGPU_MIN"], numbers["VGPU_MAX"]
    if high is not None and (gpus if low is None else low) > high:
        lower, upper = values["VGPU" if low is None else "VGPU_MIN"], values["VGPU_MAX"]
        remedy = "lower the minimum or raise the maximum" if low is not None else "raise the maximum or set VGPU_MIN"
        raise RequestError(f"{lower.description} is above {upper.description}: {remedy}")
    if low is not None and high is None and low > gpus:
        lower, size = values["VGPU_MIN"], values["VGPU"]
        text = f"{lower.description} is above {size.description}, which is the maximum, too"
        raise RequestError(f"{text}: lower the minimum or set VGPU_MAX")
    memory, memory_min = (_memory(values.get(name), name) for name in ("VGPU_MEM", "VGPU_MEM_MIN"))
    if memory is not None and memory_min is not None and memory_min > memory:
        text = f"{values['VGPU_MEM_MIN'].description} is above {values['VGPU_MEM'].description}"
        raise RequestError(
            f"{text} ({format_bytes(memory_min)}, {format_bytes(memory)}): lower the minimum or raise the maximum"
        )
    if memory_min is None:
        memory_min = memory
    return Spec(
        gpus,
        low,
        high,
        memory_min,
        memory,
        priority=_priority(values.get("VGPU_PRIORITY"), limits),
        service_class=_class(values.get("VGPU_CLASS"), limits),
        spread=_spread(values.get("VGPU_SPREAD")),
        mem_swap=_swap(values.get("VGPU_MEM_SWAP")),
        idle_after_ns=_idle_after(values.get("VGPU_IDLE_AFTER")),
    )


def _refuse_too_much(value: _Value, variable: str, limit_text: str, key: str, limits: Limits) -> None:
    """The refusal of a value above the site's bound (`key` of its configuration), if it may come from the image."""
    join = "or join an administrator's slice by VGPU_SLICE"
    if limits.from_image:
        text = f"{value.description} is more than a container may ask for whose image can bring annotations"
        raise RequestError(f"{text}, as with podman ({limit_text}): {key} in vgpud.toml, {join}")
    if value.by_environment:
        text = f"{value.description} is more than a container may ask for by environment ({limit_text})"
        raise RequestError(f"{text}: ask by --annotation {TWINS[variable]}={value.text}, {join}")


def _gpus(value: _Value | None, variable: str, limits: Limits) -> int | None:
    if value is None:
        return None
    try:
        milli = parse_gpus(value.text, zero=variable == "VGPU_MIN")
    except UnitError as error:
        raise RequestError(f"{value.source}: {error}") from error
    if milli > limits.gpus_milli:
        _refuse_too_much(value, variable, format_gpus(limits.gpus_milli), "raise container_gpus_max", limits)
    return milli


def _memory(value: _Value | None, variable: str) -> int | None:
    if value is None:
        return None
    if variable == "VGPU_MEM_MIN" and value.text == "0":
        return 0
    try:
        return parse_bytes(value.text)
    except UnitError as error:
        raise RequestError(f"{value.source}: {error}") from error


def _parse_whole_number(value: _Value, what: str, minimum: int, maximum: int) -> int:
    number = int(value.text) if value.text.isascii() and value.text.isdigit() and len(value.text) < 10 else -1
    if not minimum <= number <= maximum:
        raise RequestError(f"{value.description} is not a {what}: write a whole number from {minimum} to {maximum}")
    return number


def _priority(value: _Value | None, limits: Limits) -> int:
    if value is None:
        return 0
    priority = _parse_whole_number(value, "priority", 0, PRIORITY_MAX)
    if priority > limits.priority:
        _refuse_too_much(value, "VGPU_PRIORITY", str(limits.priority), "raise container_priority_max", limits)
    return priority


def _class(value: _Value | None, limits: Limits) -> str:
    if value is None:
        return BATCH
    if value.text not in CLASSES:
        raise RequestError(f"{value.description} is not a class: write {' or '.join(CLASSES)}")
    if value.text == LATENCY and not limits.latency:
        _refuse_too_much(value, "VGPU_CLASS", BATCH, "set container_latency = true", limits)
    return value.text


def _spread(value: _Value | None) -> int:
    return 0 if value is None else _parse_whole_number(value, "number of devices", 1, GPUS_MAX)


def _swap(value: _Value | None) -> bool:
    if value is not None and value.text not in ("0", "1"):
        raise RequestError(f"{value.description} is neither 0 nor 1: write 1 for memory that slices have in turn")
    return value is not None and value.text == "1"


def _idle_after(value: _Value | None) -> int | None:
    if value is None:
        return None
    try:
        return parse_span(value.text)
    except ValueError as error:
        raise RequestError(f"{value.source}: {error}") from error
