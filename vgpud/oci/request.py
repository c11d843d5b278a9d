"""What a container asks for, from its environment and its annotations (README.md: requests). Pure.

An annotation wins over the variable of the same meaning. Of a variable that is there twice the last one counts, as
`docker run -e` and shells have it. Empty values are as good as none, so that a user can take away what an image's ENV
says with `-e NAME=`; `VGPU=none` takes all of it away.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from vgpud.core.admit import PRIORITY_MAX
from vgpud.core.model import Spec
from vgpud.core.units import UnitError, format_bytes, format_gpus, parse_bytes, parse_gpus

ANNOTATION_PREFIX = "dev.vgpu/"
#: environment variable -> annotation
TWINS = {
    "VGPU": "dev.vgpu/gpus",
    "VGPU_MIN": "dev.vgpu/min",
    "VGPU_MAX": "dev.vgpu/max",
    "VGPU_MEM": "dev.vgpu/mem",
    "VGPU_MEM_MIN": "dev.vgpu/mem-min",
    "VGPU_NAME": "dev.vgpu/name",
    "VGPU_PRIORITY": "dev.vgpu/priority",
    "VGPU_SLICE": "dev.vgpu/slice",
}
#: variables that programs inside a container may have for the libraries and the command line; nothing is asked by them
TOOLS = {
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
#: what Kubernetes tells every pod of a namespace with a service `vgpu` or `vgpu-...` (service environment variables)
_SERVICE_LINK = re.compile(r"VGPU_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?)")
NONE = "none"
_VALUE_CHARACTERS_MAX = 60


class RequestError(ValueError):
    """The request cannot be met as it is written: one line that names the value and the mend."""


@dataclass(frozen=True, slots=True)
class Request:
    """A slice of its own (spec), or a place in the slice `join`. name: "" = the daemon chooses one."""

    spec: Spec | None
    join: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class _Value:
    """One thing that was asked for and where it stood."""

    text: str
    source: str  # "VGPU" or "dev.vgpu/gpus"

    @property
    def by_environment(self) -> bool:
        return not self.source.startswith(ANNOTATION_PREFIX)

    @property
    def shown(self) -> str:
        text = self.text if len(self.text) <= _VALUE_CHARACTERS_MAX else self.text[:_VALUE_CHARACTERS_MAX] + "..."
        return f"{self.source}={text if text.isprintable() else ascii(text)}"


def parse_request(
    env: Sequence[str], annotations: Mapping[str, str], gpus_milli_max: int, from_image: bool = False
) -> Request | None:
    """The request in a container's configuration, None when there is none. Raises RequestError.

    `gpus_milli_max` bounds what the environment may ask for: an image's ENV cannot be told from the user's `-e`.
    `from_image`: annotations may be the image's as well, and are bounded like that.
    """
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
            return None  # VGPU= takes away the rest as well
        first = next(iter(given.values()))
        raise RequestError(f"{first.shown} without VGPU: say how many GPUs, for example VGPU=0.5")
    return Request(
        _spec(given, gpus_milli_max, from_image), name=given["VGPU_NAME"].text if "VGPU_NAME" in given else ""
    )


def _variables(env: Sequence[str]) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in env)
    ours = {name: value for name, _, value in pairs if name == "VGPU" or name.startswith("VGPU_")}
    return {name: value for name, value in ours.items() if not _SERVICE_LINK.fullmatch(name)}


def _values(variables: Mapping[str, str], annotations: Mapping[str, str]) -> dict[str, _Value]:
    """What is given and not empty, by the variable's name."""
    found: dict[str, _Value] = {}
    for variable, annotation in TWINS.items():
        source = annotation if annotation in annotations else variable
        text = (annotations.get(annotation) if source == annotation else variables.get(variable, "")) or ""
        if text.strip():
            found[variable] = _Value(text.strip(), source)
            if len(text.strip()) > _VALUE_CHARACTERS_MAX:
                limit = f"longer than {_VALUE_CHARACTERS_MAX} characters"
                raise RequestError(f"{found[variable].shown} is {limit}: nothing that is meant is that long")
    return found


def _refuse_unknown(variables: Mapping[str, str], annotations: Mapping[str, str]) -> None:
    for name, value in variables.items():
        if name not in TWINS and name not in TOOLS:
            raise RequestError(_unknown("variable", name, value, list(TWINS)))
    for name, value in annotations.items():
        if name.startswith(ANNOTATION_PREFIX) and name not in TWINS.values():
            raise RequestError(_unknown("annotation", name, value, list(TWINS.values())))


def _unknown(kind: str, name: str, value: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
    return f"unknown {kind} {_Value(value, name).shown}: write {near}, or take it away (known: {', '.join(known)})"


def _joining(given: Mapping[str, _Value]) -> Request:
    joined = given["VGPU_SLICE"]
    for variable, value in given.items():
        if variable != "VGPU_SLICE":
            empty = f"{variable}=" if value.by_environment else f"no {value.source}"
            text = f"{value.shown} and {joined.shown} together: the slice has its numbers already"
            raise RequestError(f"{text}; join it with {empty}, or have a slice of your own without {joined.source}")
    return Request(None, join=joined.text)


def _spec(given: Mapping[str, _Value], gpus_milli_max: int, from_image: bool) -> Spec:
    numbers = {
        name: _gpus(given.get(name), gpus_milli_max, name, from_image) for name in ("VGPU", "VGPU_MIN", "VGPU_MAX")
    }
    gpus, low, high = numbers["VGPU"] or 0, numbers["VGPU_MIN"], numbers["VGPU_MAX"]
    if high is not None and (gpus if low is None else low) > high:
        lower, upper = given["VGPU" if low is None else "VGPU_MIN"], given["VGPU_MAX"]
        mend = "lower the minimum or raise the maximum" if low is not None else "raise the maximum or set VGPU_MIN"
        raise RequestError(f"{lower.shown} is above {upper.shown}: {mend}")
    memory, memory_min = (_memory(given.get(name), name) for name in ("VGPU_MEM", "VGPU_MEM_MIN"))
    if memory is not None and memory_min is not None and memory_min > memory:
        text = f"{given['VGPU_MEM_MIN'].shown} is above {given['VGPU_MEM'].shown}"
        raise RequestError(
            f"{text} ({format_bytes(memory_min)}, {format_bytes(memory)}): lower the one or raise the other"
        )
    if memory_min is None:
        memory_min = memory
    return Spec(gpus, low, high, memory_min, memory, priority=_priority(given.get("VGPU_PRIORITY")))


def _gpus(value: _Value | None, gpus_milli_max: int, variable: str, from_image: bool) -> int | None:
    if value is None:
        return None
    try:
        milli = parse_gpus(value.text, zero=variable == "VGPU_MIN")
    except UnitError as error:
        raise RequestError(f"{value.source}: {error}") from error
    if from_image and milli > gpus_milli_max:
        text = f"{value.shown} is more than a container may ask for whose image can bring annotations"
        mend = "raise container_gpus_max in vgpud.toml, or join an administrator's slice by VGPU_SLICE"
        raise RequestError(f"{text}, as with podman ({format_gpus(gpus_milli_max)}): {mend}")
    if value.by_environment and milli > gpus_milli_max:
        text = f"{value.shown} is more than a container may ask for by environment ({format_gpus(gpus_milli_max)})"
        mend = f"ask by --annotation {TWINS[variable]}={value.text}, or join an administrator's slice by VGPU_SLICE"
        raise RequestError(f"{text}: {mend}")
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


def _priority(value: _Value | None) -> int:
    if value is None:
        return 0
    if not (value.text.isascii() and value.text.isdigit() and len(value.text) < 10) or int(value.text) > PRIORITY_MAX:
        raise RequestError(f"{value.shown} is not a priority: write a whole number from 0 to {PRIORITY_MAX}")
    return int(value.text)
