"""The plugin, between a stand-in for Ray and one for the daemon: what is asked and reported, which worker starts."""

from __future__ import annotations

import asyncio
import importlib
import logging
import shlex
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from vgpud.client.sizes import SizeError
from vgpud.errors import ExitCode, VgpudError
from vgpud.ray import slices
from vgpud.ray.request import runtime_env
from vgpud.ray.size import Size, read

LOG = logging.getLogger("test")


@pytest.fixture
def plugin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """vgpud.ray.plugin, on a base class like Ray's where that is not installed."""
    name = "ray._private.runtime_env.plugin"
    for depth in range(1, name.count(".") + 2):
        monkeypatch.setitem(sys.modules, ".".join(name.split(".")[:depth]), ModuleType(name))
    monkeypatch.setattr(sys.modules[name], "RuntimeEnvPlugin", type("RuntimeEnvPlugin", (), {}), raising=False)
    monkeypatch.delitem(sys.modules, "vgpud.ray.plugin", raising=False)
    yield importlib.import_module("vgpud.ray.plugin")
    sys.modules.pop("vgpud.ray.plugin", None)


@pytest.fixture
def asked_sizes(monkeypatch: pytest.MonkeyPatch) -> list[Size]:
    """Sizes that the daemon was asked for."""
    found: list[Size] = []
    monkeypatch.setattr(slices, "trial", found.append)
    return found


def create(plugin: Any, environment: dict[str, Any]) -> Any:
    return asyncio.run(plugin.VgpuPlugin().create(None, environment, SimpleNamespace(), LOG))


def test_the_worker_becomes_the_interpreter_behind_it(plugin: Any) -> None:
    environment = runtime_env(0.5, max=1, mem="20G", queue="it's ours")
    context = SimpleNamespace(py_executable="/envs/a b/python -u".replace(" b", "\\ b"))
    plugin.VgpuPlugin().modify_context([], environment, context, LOG)
    shown = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {context.py_executable} default_worker.py"], capture_output=True, text=True
    ).stdout.splitlines()  # as Ray starts a worker: by a shell
    assert shown[:3] == [sys.executable, "-m", "vgpud.ray.worker"]
    assert read(plugin.json.loads(shown[3])) == read(environment["vgpu"])
    assert shown[4:] == ["/envs/a b/python", "-u", "default_worker.py"]
    assert shlex.split(context.py_executable)[:3] == shown[:3]


def test_it_is_set_up_after_what_chooses_the_interpreter(plugin: Any) -> None:
    assert plugin.VgpuPlugin.name == "vgpu" and 10 < plugin.VgpuPlugin.priority <= 100


def test_the_daemon_is_asked_once_with_the_size(plugin: Any, asked_sizes: list[Size]) -> None:
    assert create(plugin, runtime_env(0.25, mem="1G")) == 0
    assert asked_sizes == [read({"gpus": 0.25, "mem": "1G"})]


def test_the_daemons_reason_reaches_the_caller(plugin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: Size) -> None:
        raise VgpudError("memory 900GiB is more than device 0 has (80GiB)", ExitCode.USAGE)

    monkeypatch.setattr(slices, "trial", refuse)
    with pytest.raises(RuntimeError, match="no worker of this environment can run here: vgpud says: memory 900GiB"):
        create(plugin, runtime_env(0.5, mem="900G"))


def test_bad_environments_are_refused_before_a_worker_starts(plugin: Any, asked_sizes: list[Size]) -> None:
    for bad in ({"vgpu": {"gpus": 1.5}}, {"vgpu": {"gpus": 0.5}, "image_uri": "x"}, {"vgpu": "0.5"}):
        with pytest.raises(SizeError):
            plugin.VgpuPlugin.validate(bad)
        with pytest.raises(SizeError):
            create(plugin, bad)
    assert asked_sizes == []
