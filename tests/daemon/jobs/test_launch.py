"""What an attempt of a job learns of itself, on the host and in a container."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from vgpud import services
from vgpud.config import Config, JobsConfig
from vgpud.core.jobs.environments import Catalog
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import Ask, Job, JobSpec
from vgpud.core.model import Spec
from vgpud.daemon.jobs.launch import attempt_of, find_grace_ms, find_needs
from vgpud.jobs.image import Engine, containers
from vgpud.jobs.session_ports import Ports
from vgpud.oci.request import OF_JOBS
from vgpud.v1alpha1 import vgpud_pb2 as pb

OWN = {
    "VGPU_JOB_ID": "12",
    "VGPU_JOB_ATTEMPT": "3",
    "VGPU_ARRAY_ID": "11",
    "VGPU_ARRAY_INDEX": "2",
    "VGPU_MEMBERS": "2",
}


def submitted_within_a_job(image: str, elastic: bool = False) -> Job:
    """Neither of an array nor of a gang; its submitter was of both, or was a worker."""
    outer = OWN | {"VGPU_MEMBER": "1"} | ({"VGPU_WORKER": "7"} if not elastic else {})
    launch = Launch(1000, 1000, (1000,), ("true",), image, "/", tuple(outer.items()), 0o22, (), "/tmp/%j.log")
    return Job(13, JobSpec(Ask(Spec(0)), run=launch), 0, attempt=1)


def job(image: str) -> Job:
    environment = (("GIVEN", "1"), ("VGPU", "4"), ("VGPU_JOB_ID", "of another"), ("VGPU_SLICE", "another's"))
    launch = Launch(1000, 1000, (1000,), ("true",), image, "/", environment, 0o22, (), "/tmp/%j.log")
    spec = JobSpec(Ask(Spec(0)), members=2, array=11, index=2, run=launch)
    return Job(12, spec, 0, attempt=3)


@pytest.mark.parametrize(
    ("own_ms", "grace_ms"), [(-1, 10_000), (0, 0), (60_000, 60_000), (300_000, 300_000), (999_000, 300_000)]
)
def test_a_grace_of_its_own_is_within_the_sites_maximum(own_ms: int, grace_ms: int) -> None:
    asked = job("")
    assert isinstance(asked.spec.run, Launch)
    asked.spec = replace(asked.spec, run=replace(asked.spec.run, grace_ms=own_ms, signal="USR1"))
    assert find_grace_ms(asked, Config()) == grace_ms
    assert attempt_of(asked, [], pb.Node(), False, 5).signal == signal.SIGUSR1


@pytest.mark.parametrize("image", ["", "site/train"], ids=["host", "image"])
def test_a_job_knows_who_it_is(tmp_path: Path, image: str) -> None:
    attempt = attempt_of(job(image), [], pb.Node(), False, 10)
    seen = [dict(member.environment) for member in attempt.members]
    if image:
        _, files = containers(attempt, Engine(("/bin/engine",)), tmp_path)
        texts = [text for path, text in files.items() if path.suffix == ".env"]
        seen = [dict(line.split("=", 1) for line in text.splitlines()) for text in texts]
        assert all({"VGPU", "VGPU_SLICE"}.isdisjoint(names) for names in seen), "it asks for nothing by these"
    for number, names in enumerate(seen):
        assert names.items() >= (OWN | {"VGPU_MEMBER": str(number), "GIVEN": "1"}).items()


@pytest.mark.parametrize("image", ["", "site/train"], ids=["host", "image"])
@pytest.mark.parametrize("elastic", [False, True])
def test_a_job_does_not_learn_what_the_job_is_that_submitted_it(tmp_path: Path, image: str, elastic: bool) -> None:
    attempt = attempt_of(submitted_within_a_job(image, elastic), [], pb.Node(), False, 10, worker=0 if elastic else -1)
    (member,) = attempt.members
    seen = {name: value for name, value in member.environment.items() if name in OF_JOBS}
    if image:
        _, files = containers(attempt, Engine(("/bin/engine",)), tmp_path)
        (text,) = (text for path, text in files.items() if path.suffix == ".env")
        seen = dict(line.split("=", 1) for line in text.splitlines())
    worker = {"VGPU_WORKER": "0"} if elastic else {}
    assert seen == {"VGPU_JOB_ID": "13", "VGPU_JOB_ATTEMPT": "1"} | worker


def test_a_session_knows_its_port_and_path() -> None:
    environment = (
        ("VGPU_SESSION_PORT", "of another"),
        ("VGPU_SESSION_PORT_API", "of another"),
        ("VGPU_SESSION_TOKEN", "secret"),
    )
    launch = Launch(1000, 1000, (), ("jupyter",), "", "/", environment, 0o22, (), "/tmp/%j.log", session="jupyter")
    (member,) = attempt_of(
        Job(13, JobSpec(Ask(Spec(0)), run=launch), 0, attempt=1),
        [],
        pb.Node(),
        False,
        10,
        ports=Ports(20_001, (("tb", 20_002),)),
    ).members
    said = {name: value for name, value in member.environment.items() if name.startswith("VGPU_SESSION_")}
    own = {"VGPU_SESSION_PORT": "20001", "VGPU_SESSION_BASE": "/session/13/", "VGPU_SESSION_TOKEN": "secret"}
    own["VGPU_SESSION_HOST"] = "127.0.0.1"
    further = {"VGPU_SESSION_PORT_TB": "20002", "VGPU_SESSION_BASE_TB": "/session/13-tb/"}
    assert said == own | further


def start_in_image(directory: Path, session: str, ports: Ports, network: str) -> tuple[list[str], set[str]]:
    """The options of the engine that are about the network, and the variables of the program."""
    environment = (("VGPU_SESSION_TOKEN", "secret"),)
    launch = Launch(1000, 1000, (), ("serve",), "site/page", "/", environment, 0o22, (), "/tmp/%j.log", session=session)
    needs = find_needs(launch, Catalog(), JobsConfig(network=network, port_address="0.0.0.0"), ports)
    job = Job(13, JobSpec(Ask(Spec(0)), run=launch), 0, attempt=1)
    attempt = attempt_of(job, [], pb.Node(), False, 10, ports=ports, needs=needs)
    made, files = containers(attempt, Engine(("/bin/engine",), network=network), directory)
    assert made.members
    (request,) = (json.loads(text) for path, text in files.items() if path.suffix == ".request")
    (variables,) = (text.splitlines() for path, text in files.items() if path.suffix == ".env")
    return [word for word in request["run"] if word.startswith(("--publish", "--network"))], set(variables)


@pytest.mark.parametrize("network", ["", "bridge", "of-jobs", "host"])
def test_a_session_in_an_image_listens_where_its_port_is_led_to(tmp_path: Path, network: str) -> None:
    """In a network of its own the engine publishes the port on loopback; in the node's it is the program's own."""
    options, variables = start_in_image(tmp_path, "web", Ports(20_001, (("tb", 20_002),)), network)
    named = [f"--network={network}"] if network else []
    both = ["--publish=127.0.0.1:20001:20001", "--publish=127.0.0.1:20002:20002"]
    assert options == [*named, *([] if network == "host" else both)], "nothing at 0.0.0.0, where ports of jobs are"
    assert {"VGPU_SESSION_PORT=20001", "VGPU_SESSION_PORT_TB=20002", "VGPU_SESSION_TOKEN=secret"} <= variables
    assert f"VGPU_SESSION_HOST={'127.0.0.1' if network == 'host' else '0.0.0.0'}" in variables


@pytest.mark.parametrize("network", ["", "bridge", "of-jobs", "host"])
def test_a_replica_in_an_image_listens_where_its_port_is_led_to(tmp_path: Path, network: str) -> None:
    options, variables = start_in_image(tmp_path, "replica", Ports(20_001), network)
    published = [word for word in options if word.startswith("--publish")]
    assert published == ([] if network == "host" else ["--publish=127.0.0.1:20001:20001"])
    host = "127.0.0.1" if network == "host" else "0.0.0.0"
    assert {"VGPU_SERVICE_PORT=20001", f"VGPU_SERVICE_HOST={host}", "VGPU_SERVICE_TOKEN=secret"} <= variables
    assert not [name for name in variables if name.startswith("VGPU_SESSION_")]


def test_a_balancer_is_the_daemons_own_program() -> None:
    """Whatever its submitter names, and without what would load another program into it."""
    names = ("LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP", "XDG_STATE_HOME")
    environment = (*((name, "/home/a") for name in names), ("VGPU_SESSION_TOKEN", "key"))
    command = ("/home/a/python", "-m", "vgpud.services", "/home/a/services/chat")
    launch = Launch(1000, 1000, (), command, "", "/home/a", environment, 0o22, (), "/tmp/%j.log", session="balancer")
    (member,) = attempt_of(
        Job(13, JobSpec(Ask(Spec(0)), run=launch), 0, attempt=1), [], pb.Node(), False, 10, ports=Ports(20_001)
    ).members
    own = str(Path(services.__file__).with_name("__main__.py"))
    assert member.argv == (sys.executable, "-I", own, "/home/a/services/chat")
    assert {*names, "VGPU_SESSION_PORT"} & {*member.environment} == {"XDG_STATE_HOME", "VGPU_SESSION_PORT"}
    usage = subprocess.run(member.argv[:-1], cwd="/", env={}, capture_output=True, text=True, check=False)
    assert usage.returncode == 2 and "`vgpu service start` does it" in usage.stderr, "it finds its package"


def test_a_replica_knows_its_port_and_token() -> None:
    environment = (("VGPU_SERVICE_PORT", "of another"), ("VGPU_SERVICE_GENERATION", "2"), ("VGPU_SESSION_TOKEN", "key"))
    launch = Launch(1000, 1000, (), ("serve",), "", "/", environment, 0o22, (), "/tmp/%j.log", session="replica")
    (member,) = attempt_of(
        Job(13, JobSpec(Ask(Spec(0)), run=launch), 0, attempt=1), [], pb.Node(), False, 10, ports=Ports(20_001)
    ).members
    names = ("VGPU_SERVICE_", "VGPU_SESSION_")
    seen = {name: value for name, value in member.environment.items() if name.startswith(names)}
    assert seen == {"VGPU_SERVICE_HOST": "127.0.0.1", "VGPU_SERVICE_PORT": "20001", "VGPU_SERVICE_TOKEN": "key"}
