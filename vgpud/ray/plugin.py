"""The runtime environment plugin `vgpu`, which each raylet's agent loads by
RAY_RUNTIME_ENV_PLUGINS='[{"class": "vgpud.ray.plugin.VgpuPlugin"}]'.

An agent sets an environment up once and starts many workers with it. So the plugin only puts a program before the
worker's interpreter (worker.py), which makes the slice of that one process. What cannot work at all is refused here,
where Ray hands the reason to the caller, and not in a worker that fails to start.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import sys
from collections.abc import Mapping
from typing import Any

from ray._private.runtime_env.plugin import RuntimeEnvPlugin

from vgpud.errors import VgpudError
from vgpud.ray.request import size_of
from vgpud.ray.size import FIELD, Size


def worker_executable(old_executable: str, size: Size) -> str:
    """The shell words that start a worker in a slice; old_executable: those that start it without."""
    words = [sys.executable, "-m", "vgpud.ray.worker", json.dumps(size.as_field(), sort_keys=True)]
    return f"{shlex.join(words)} {old_executable}"


class VgpuPlugin(RuntimeEnvPlugin):  # type: ignore[misc]
    """Starts workers in slices. Ray makes one of it in each agent."""

    name = FIELD
    #: after all plugins that choose the interpreter
    priority = 90

    @staticmethod
    def validate(runtime_env_dict: dict[str, Any]) -> None:
        """Raises SizeError, which is a ValueError."""
        size_of(runtime_env_dict)

    async def create(
        self, uri: str | None, runtime_env: Mapping[str, Any], context: Any, logger: logging.Logger
    ) -> float:
        """Asks this node's daemon for such a slice once, for its reasons. Raises RuntimeError with them."""
        from vgpud.ray import slices  # loads grpc

        try:
            await asyncio.to_thread(slices.trial, size_of(runtime_env))
        except VgpudError as error:
            raise RuntimeError(f"no worker of this environment can run here: vgpud says: {error}") from None
        return 0  # bytes that it takes

    def modify_context(
        self, uris: list[str], runtime_env: Mapping[str, Any], context: Any, logger: logging.Logger
    ) -> None:
        """Puts the program that makes the slice before the interpreter."""
        context.py_executable = worker_executable(context.py_executable, size_of(runtime_env))
