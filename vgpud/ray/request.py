"""What programs hand to Ray: num_gpus and the runtime environment, made of one size so that they agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vgpud.client.sizes import SizeError
from vgpud.core.units import format_value
from vgpud.ray.size import FIELD, KEYS, Size, read

#: fields of a runtime environment that start the worker in a container of their own, where no slice would be
_CONTAINERS = ("image_uri", "container")
_VISIBLE = "CUDA_VISIBLE_DEVICES"


def options(
    gpus: float | str,
    *,
    min: float | str | None = None,
    max: float | str | None = None,
    mem: int | str | None = None,
    mem_min: int | str | None = None,
    mem_max: int | str | None = None,
    service_class: str | None = None,
    priority: int | None = None,
    weight: int | None = None,
    queue: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
    **ray_options: Any,
) -> dict[str, Any]:
    """Options of a task, an actor or a deployment that is held to its part of a GPU:

        @ray.remote(**vgpud.ray.options(0.5, max=1, mem="20G"))

    `gpus` is what Ray counts and the slice is guaranteed; the other words are those of `vgpu run`. `runtime_env` is
    what else the environment has, `ray_options` goes to Ray as it is. A function is to be decorated with it: Ray's
    .options() leaves max_calls at 0, and the process of a task would keep its slice. Raises SizeError.
    """
    if "num_gpus" in ray_options:
        raise SizeError(f"num_gpus {format_value(ray_options['num_gpus'])}: it is set to gpus, leave it out")
    if ray_options.get("max_calls", 1) != 1:
        raise SizeError(
            f"max_calls {format_value(ray_options['max_calls'])}: the process "
            "of several tasks stays on the GPU of the first,"
            " whatever Ray gives the others; leave it out, so that each task has a process, or use an actor"
        )
    size = read(_build_field(gpus, min, max, mem, mem_min, mem_max, service_class, priority, weight, queue))
    return {"num_gpus": size.num_gpus, "runtime_env": _with_size(size, runtime_env), **ray_options}


def runtime_env(
    gpus: float | str,
    *,
    min: float | str | None = None,
    max: float | str | None = None,
    mem: int | str | None = None,
    mem_min: int | str | None = None,
    mem_max: int | str | None = None,
    service_class: str | None = None,
    priority: int | None = None,
    weight: int | None = None,
    queue: str | None = None,
    runtime_env: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The runtime environment alone, where num_gpus is said elsewhere: `ray.init(runtime_env=...)` for all workers of
    a job, as Tune and Train start them. Raises SizeError."""
    return _with_size(
        read(_build_field(gpus, min, max, mem, mem_min, mem_max, service_class, priority, weight, queue)), runtime_env
    )


def _build_field(*values: Any) -> dict[str, Any]:
    return dict(zip(KEYS, values, strict=True))


def _with_size(size: Size, runtime_env: Mapping[str, Any] | None) -> dict[str, Any]:
    made = {**(runtime_env or {})}
    if FIELD in made:
        raise SizeError(f"runtime_env has {FIELD} already: leave it out there")
    made[FIELD] = size.as_field()
    size_of(made)
    return made


def size_of(runtime_env: Mapping[str, Any]) -> Size:
    """The size in a whole runtime environment. Raises SizeError, also for what does not go with a slice."""
    taken = next((name for name in _CONTAINERS if runtime_env.get(name)), None)
    if taken:
        raise SizeError(
            f"{FIELD} beside {taken}: the container that Ray starts would be in no slice; leave {FIELD} out and give"
            " the container a slice (--runtime=vgpu -e VGPU=0.5)"
        )
    if _VISIBLE in (runtime_env.get("env_vars") or {}):
        raise SizeError(f"leave {_VISIBLE} out of env_vars: Ray sets it once it has chosen the GPU")
    return read(runtime_env[FIELD])
