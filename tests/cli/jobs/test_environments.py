"""`vgpu env`, and the options of `vgpu submit` for environments and for what a container is given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vgpud.v1alpha1 import vgpud_pb2 as pb

USAGE, NOT_FOUND = 2, 4


@pytest.fixture
def site(daemon: Any) -> Any:
    defaults = pb.JobSpec(
        image="registry.example/pytorch:2", command=["python", "train.py"], volumes=["/sets:/data:ro"]
    )
    defaults.slice.gpus_milli, defaults.slice.mem_min_bytes, defaults.slice.mem_max_bytes = 500, 8 << 30, 8 << 30
    defaults.time_limit.FromSeconds(9000)
    defaults.environment["HF_HOME"] = "/data/hf"
    shell = pb.Environment(node="n1", name="shell", defaults=pb.JobSpec(command=["bash", "-l"]))
    pytorch = pb.Environment(node="n1", name="pytorch", description="PyTorch 2", defaults=defaults, members=["@ml"])
    daemon.queue.environments.environments.extend([pytorch, shell])
    return daemon


def spec_of(daemon: Any) -> Any:
    (request,) = daemon.queue.requests
    return request.spec


def test_the_list(vgpu: Any, site: Any) -> None:
    result = vgpu("env", "ls", host=site.host)
    assert result.code == 0 and not result.stderr
    head, first, second = result.stdout.splitlines()
    assert head.split() == ["ENVIRONMENT", "GPUS", "MEM", "TIME-LIMIT", "RUNS", "DESCRIPTION"]
    assert first.split() == ["pytorch", "0.5", "8GiB", "2h30m", "registry.example/pytorch:2", "PyTorch", "2"]
    assert second.split() == ["shell", "-", "-", "-", "bash", "-l", "-"]
    assert vgpu("env", "ls", "-o", "name", host=site.host).stdout == "pytorch\nshell\n"


def test_a_damaged_file_is_said_with_the_list(vgpu: Any, site: Any) -> None:
    site.queue.environments.problem = "/etc/vgpud/environments.toml is not TOML; the last valid list is in force"
    result = vgpu("env", "ls", host=site.host)
    assert result.code == 0 and "pytorch" in result.stdout
    assert result.stderr == f"vgpu: {site.queue.environments.problem}\n"
    assert vgpu("env", "ls", "-o", "json", host=site.host).json["problem"] == site.queue.environments.problem


def test_none(vgpu: Any, daemon: Any) -> None:
    result = vgpu("env", "ls", host=daemon.host)
    assert result.code == 0 and "this site has no environments for you" in result.stderr


def test_all_of_one(vgpu: Any, site: Any) -> None:
    text = vgpu("env", "show", "pytorch", host=site.host).stdout
    for line in (
        "image:         registry.example/pytorch:2",
        "gpus:          0.5",
        "time limit:    2h30m",
        "volumes:       /sets:/data:ro",
        "variables:     HF_HOME=/data/hf",
        "members:       @ml",
    ):
        assert line in text.splitlines()
    shown = vgpu("env", "show", "pytorch", "-o", "json", host=site.host).json["environment"]
    assert (shown["mem_bytes"], shown["environment"]) == (8 << 30, {"HF_HOME": "/data/hf"})
    missing = vgpu("env", "show", "none", host=site.host)
    assert missing.code == NOT_FOUND
    assert missing.stderr == "vgpu: no environment 'none': there are pytorch, shell (`vgpu env ls`)\n"


def test_a_job_in_one_needs_neither_size_nor_command(vgpu: Any, site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "x")
    result = vgpu("submit", "-E", "pytorch", "--env", "A=1", host=site.host)
    assert result.code == 0, result
    spec = spec_of(site)
    assert (spec.environment_name, spec.image, list(spec.command), spec.slice.gpus_milli) == ("pytorch", "", [], 0)
    assert dict(spec.environment) == {"A": "1"}  # it runs in an image: this machine's values mean nothing there


def test_one_without_an_image_runs_here(vgpu: Any, site: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OWN", "x")
    assert vgpu("submit", "--environment", "shell", "--gpus", "0.25", host=site.host).code == 0
    assert spec_of(site).environment["OWN"] == "x"


def test_its_variables_override_the_shells_and_not_what_is_named(
    vgpu: Any, site: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the PATH of a command's own installation. The daemon adds them."""
    shell = site.queue.environments.environments[1].defaults
    shell.environment["PATH"], shell.environment["MODE"] = "/opt/conda/bin", "site"
    monkeypatch.setenv("MODE", "shell")
    assert vgpu("submit", "-E", "shell", "--gpus", "1", "--env", "MODE=job", host=site.host).code == 0
    assert "PATH" not in spec_of(site).environment and spec_of(site).environment["MODE"] == "job"


def test_one_without_a_size_needs_one(vgpu: Any, site: Any) -> None:
    result = vgpu("submit", "-E", "shell", host=site.host)
    assert result.code == USAGE and "specify a size" in result.stderr


def test_an_environment_that_is_not_there_queues_nothing(vgpu: Any, site: Any) -> None:
    result = vgpu("submit", "-E", "none", "--gpus", "1", "--", "true", host=site.host)
    assert result.code == NOT_FOUND and "there are pytorch, shell" in result.stderr
    assert not site.queue.requests


def test_volumes_ports_and_credentials(vgpu: Any, daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What begins at this directory is made whole here; the rest is the daemon's to decide."""
    monkeypatch.chdir(tmp_path)
    words = ("--volume", "./data:/data:ro", "--volume", "/home:/h", "--port", "20001:80", "--registry-auth", "./a.json")
    assert vgpu("submit", "--gpus", "1", "--image", "x", *words, "--", "true", host=daemon.host).code == 0
    spec = spec_of(daemon)
    assert list(spec.volumes) == [f"{tmp_path}/data:/data:ro", "/home:/h"]
    assert (list(spec.ports), spec.registry) == (["20001:80"], f"{tmp_path}/a.json")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--volume", "/data"), "is not HOST:CONTAINER"),
        (("--volume", "/data/../etc:/x"), "has a `..`"),
        (("--port", "x"), "is not a port"),
        (("--registry-auth", "a b"), "is neither a name nor a path"),
    ],
)
def test_what_is_written_wrongly_is_not_sent(vgpu: Any, daemon: Any, words: tuple[str, ...], why: str) -> None:
    result = vgpu("submit", "--gpus", "1", "--image", "x", *words, "--", "true", host=daemon.host)
    assert result.code == USAGE and why in result.stderr and result.stderr.count("\n") == 1
    assert not daemon.queue.requests


def test_a_session_has_its_size_too(vgpu: Any, site: Any) -> None:
    defaults = pb.JobSpec(command=["x"], slice=pb.SliceSpec(gpus_milli=250))
    site.queue.environments.environments.append(pb.Environment(name="lab", defaults=defaults))
    assert vgpu("session", "start", "-E", "lab", "-q", "--", "jupyter", host=site.host).code == 0
    assert (spec_of(site).environment_name, spec_of(site).session) == ("lab", "jupyter")
    for words in (("-E", "shell"), ()):
        refused = vgpu("session", "start", *words, "--", "jupyter", host=site.host)
        assert refused.code == USAGE and "specify a size: for example --gpus 0.25" in refused.stderr


def test_doctor_says_what_is_wrong_with_the_list(vgpu: Any, site: Any) -> None:
    site.queue.environments.problem = "the list names members that do not exist: gone"
    checks = vgpu("doctor", "-o", "json", host=site.host).json["checks"]
    (found,) = [one for one in checks if one["check"] == "environments"]
    assert (found["level"], found["text"]) == ("warn", site.queue.environments.problem)
