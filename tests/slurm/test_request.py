"""What steps of Slurm jobs ask for: sizes, options, cgroups, and requests that are refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.core.model import Spec
from vgpud.core.origins import SlurmStep
from vgpud.slurm.request import KEYS, Request, StepError, parse_request, parse_step, step_cgroup

HALF = {"job": "12", "step": "0", "uid": "1000", "stepd": "77", "gpus": "1", "shards": "500"}


def body(**fields: str) -> bytes:
    return "".join(f"{key}={value}\n" for key, value in (HALF | fields).items()).encode()


def test_half_a_gpu() -> None:
    asked = parse_request(body())
    assert asked == Request(SlurmStep(12, "0"), 1000, 77, Spec(500, device_uuids=("1",)))
    assert asked.step.slice_name() == "slurm-12.0"


def test_all_options() -> None:
    made = parse_request(body(max=".8", mem="20G", **{"class": "latency"})).spec
    assert made == Spec(500, max_milli=800, mem_max_bytes=20 << 30, device_uuids=("1",), service_class="latency")


@pytest.mark.parametrize(
    ("gpus", "shards", "milli", "devices"),
    [
        ("0", "", 1000, ("0",)),
        ("0,1", "", 2000, ("0", "1")),
        ("0-2", "2500", 2500, ("0", "1", "2")),
        ("GPU-0a-1", "1000", 1000, ("GPU-0a-1",)),
        ("3", "1", 1, ("3",)),
    ],
)
def test_sizes(gpus: str, shards: str, milli: int, devices: tuple[str, ...]) -> None:
    made = parse_request(body(gpus=gpus, shards=shards)).spec
    assert (made.gpus_milli, made.device_uuids) == (milli, devices)


def test_what_the_whole_job_has() -> None:
    def parse_whole_job(**fields: str) -> tuple[int, bool]:
        asked = parse_request(body(**fields))
        return asked.total_milli, asked.may_ask

    assert (parse_whole_job(), parse_whole_job(total="ask"), parse_whole_job(total="700")) == (
        (0, False),
        (0, True),
        (700, False),
    )


def test_a_whole_job_has_no_slurmstepd() -> None:
    asked = parse_request(body(step="", stepd=""))
    assert (asked.step.slice_name(), asked.stepd_pid) == ("slurm-12", 0)


def test_steps_beside_a_batch_script_join_it() -> None:
    assert [step.slice_name() for step in SlurmStep(12, "3").whole_job] == ["slurm-12.batch", "slurm-12.interactive"]
    assert SlurmStep(12, "batch").whole_job == SlurmStep(12, "").whole_job == ()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shards": "1001"}, "shard:1001 is not within the 1000 of the step's 1 GPU(s)"),
        ({"shards": "1001"}, "need Slurm 23.11 or newer with MULTIPLE_SHARING_GRES_PJ"),
        ({"gpus": "0,1", "shards": "800"}, "Slurm has spread shard:800 over 2 GPUs"),
        ({"gpus": "0-2", "shards": "2000"}, "submit it again later, or ask for --gres=gpu:2"),
        ({"shards": "0"}, "shard:0"),
        ({"shards": "-5"}, "shards '-5' is not a whole number"),
        ({"gpus": "", "max": ".8"}, "--vgpu-max=.8 without a GPU: ask Slurm for a part of one, for example --gres"),
        ({"gpus": "", "mem": "1G"}, "--vgpu-mem=1G without a GPU"),
        ({"gpus": ""}, "the step has no GPU"),
        ({"gpus": "0,0"}, "name each device once"),
        ({"gpus": "0-99"}, "at most 16"),
        ({"gpus": "a b"}, "not a list of devices"),
        ({"max": ".4"}, "--vgpu-max=.4 is below the step's own 0.5 GPUs (shard:500)"),
        ({"max": "abc"}, "--vgpu-max: 'abc' is not a number of GPUs"),
        ({"mem": "20X"}, "--vgpu-mem: '20X' is not an amount of memory"),
        ({"class": "fast"}, "--vgpu-class=fast is not a class: write batch or latency"),
        ({"step": "extern"}, "step 'extern' is neither a number"),
        ({"step": "../x"}, "step '../x' is neither a number"),
        ({"step": ""}, "step and stepd come together"),
        ({"stepd": ""}, "step and stepd come together"),
        ({"uid": "root"}, "uid 'root' is not a whole number"),
        ({"job": ""}, "job '' is not a whole number"),
        ({"color": "red"}, "unknown key 'color'"),
        ({"total": "16001"}, "total '16001' is not a whole number from 0 to 16000"),
        ({"shards": "9" * 3000}, "9' is not a whole number from 0 to 16000"),
        ({"max": "9" * 3000}, "9... is not a number of GPUs"),
        ({"mem": "9" * 3000 + "G"}, "9... is not an amount of memory"),
    ],
)
def test_refused(fields: dict[str, str], message: str) -> None:
    with pytest.raises(StepError) as caught:
        parse_request(body(**fields))
    assert message in str(caught.value) and "\n" not in str(caught.value)


@given(st.binary(max_size=200) | st.dictionaries(st.sampled_from(KEYS), st.text(max_size=12)).map(lambda d: body(**d)))
def test_any_bytes_are_a_request_or_refused(raw: bytes) -> None:
    try:
        asked = parse_request(raw)
        assert asked.spec.device_uuids and 0 < asked.spec.gpus_milli <= 16_000
    except StepError:
        pass
    with contextlib.suppress(StepError):
        assert parse_step(raw).slice_name().startswith("slurm-")


@pytest.mark.parametrize(
    ("paths", "cgroup"),
    [
        (("/system.slice/slurmstepd.scope/job_12/step_0/slurm",), "/system.slice/slurmstepd.scope/job_12/step_0"),
        (
            ("/system.slice/n1_slurmstepd.scope/job_12/step_0/user/task_0",),
            "/system.slice/n1_slurmstepd.scope/job_12/step_0",
        ),
        (("/slurm/uid_1000/job_12",), "/slurm/uid_1000/job_12/step_0"),
        (("/other", "/slurm_n1/uid_1000/job_12/step_0"), "/slurm_n1/uid_1000/job_12/step_0"),
        (("/slurm/uid_1000/job_123/step_0",), ""),
        (("/system.slice/slurmd.service",), ""),
        ((), ""),
    ],
)
def test_the_cgroup_of_a_step(paths: tuple[str, ...], cgroup: str) -> None:
    assert step_cgroup(paths, SlurmStep(12, "0")) == cgroup
