"""What programs hand to Ray: num_gpus and the environment agree, and what does not go together is refused."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import vgpud.ray
from vgpud.ray.request import size_of


def test_num_gpus_and_the_environment_are_of_one_size() -> None:
    made = vgpud.ray.options(0.5, max=1, mem="20G", num_cpus=2, runtime_env={"env_vars": {"A": "1"}})
    size = {"gpus": "0.5", "max": "1", "mem_min": 20 << 30, "mem_max": 20 << 30}
    assert made == {"num_gpus": 0.5, "num_cpus": 2, "runtime_env": {"env_vars": {"A": "1"}, "vgpu": size}}
    assert size_of(made["runtime_env"]).num_gpus == made["num_gpus"]


def test_another_fraction_is_another_environment() -> None:
    """By which Ray chooses a process: none serves two fractions."""
    environments = [vgpud.ray.runtime_env(gpus, max=1) for gpus in (0.25, 0.5, 0.75, 1)]
    environments += [vgpud.ray.runtime_env(0.5), vgpud.ray.runtime_env(0.5, max=1, mem="1G")]
    assert len({str(one) for one in environments}) == len(environments)
    assert vgpud.ray.runtime_env(0.5, max=1) == vgpud.ray.options("0.50", max=1.0)["runtime_env"]


def test_the_callers_environment_stays_as_it_is() -> None:
    before: dict[str, Any] = {"pip": ["x"]}
    vgpud.ray.options(0.5, runtime_env=before)
    assert before == {"pip": ["x"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_gpus": 0.5}, "num_gpus 0.5: it is set to gpus"),
        ({"max_calls": 0}, "max_calls 0: the process of several tasks stays on the GPU of the first"),
        ({"max_calls": 5}, "max_calls 5"),
        ({"runtime_env": {"vgpu": {"gpus": 0.5}}}, "runtime_env has vgpu already"),
        ({"runtime_env": {"image_uri": "pytorch"}}, "vgpu beside image_uri"),
        ({"runtime_env": {"container": {"image": "x"}}}, "vgpu beside container"),
        ({"runtime_env": {"env_vars": {"CUDA_VISIBLE_DEVICES": "0"}}}, "leave CUDA_VISIBLE_DEVICES out of env_vars"),
        ({"max": 0.1}, "max 0.1 is below gpus 0.5"),
        ({"num_gpus": 10**5000}, "num_gpus a value (int) that is too large to show: it is set to gpus"),
        ({"max_calls": 10**5000}, "max_calls a value (int) that is too large to show"),
        ({"mem": 10**5000}, "mem is a number of 16610 bits"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(vgpud.ray.SizeError) as caught:
        vgpud.ray.options(0.5, **options)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_one_call_a_process_may_be_said() -> None:
    assert vgpud.ray.options(0.5, max_calls=1)["max_calls"] == 1


def test_describing_loads_neither_ray_nor_grpc() -> None:
    code = "import sys, vgpud.ray; vgpud.ray.options(0.5); print(sorted({'ray', 'grpc'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
