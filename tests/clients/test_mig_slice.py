"""What a program sees of a slice on a MIG instance: a GPU of the slice's size."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

from tests.clients.conftest import client_environment, run_python
from tests.clients.test_mig import FIRST, GIB, GPUS, NOT_FOUND, SECOND, SIM, VIEW
from vgpud.cli.demo.private_system import OwnSystem


def test_a_slice_on_an_instance_is_shown_as_a_gpu(make_system: Callable[..., OwnSystem]) -> None:
    system = make_system(SIM)
    system.vgpu("slice", "create", "part", "--gpus", "0.5", "--device", f"MIG-{SECOND}")
    env = client_environment(system.sim_dir) | {"VGPU_HOST": system.host}
    run = (sys.executable, "-m", "vgpud.cli.main", "run", "--slice", "part", "--")
    seen = json.loads(run_python(VIEW, env, *run, arguments=[f"GPU-{GPUS[0]}", f"MIG-{FIRST}"]))
    assert seen["cuda"] == [[SECOND, GPUS[0], 2 * GIB]], "half of its memory"
    (shown,) = seen["gpus"]
    assert (shown["uuid"], shown["index"], shown["memory"]) == (f"MIG-{SECOND}", 0, 2 * GIB)
    assert (shown["is_mig"], shown["utilization"]) == (0, 0), "NVML knows the second of GPUs only"
    assert shown["by_bus_id"] == shown["uuid"], "as a program finds the device that CUDA shows"
    assert shown["gpu"] == NOT_FOUND, "the whole GPU is not the slice's"
    assert seen["named"] == [NOT_FOUND, NOT_FOUND]
