"""The form that starts a service: all that the command line can ask for, refusals at their fields, and clones."""

from __future__ import annotations

import asyncio
import json
import re
import socket

import pytest
from google.protobuf import json_format
from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon, uuid_of
from vgpud.cli.services.service import start
from vgpud.console.login.client import User
from vgpud.console.services.form import form_of, service_of
from vgpud.console.services.start import name_copy
from vgpud.core.jobs.session import SERVICE_RECORD, is_balancer
from vgpud.services.core.model import Health, Service, read_record
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import Post, text_of
from .test_services import Balancer, balancer

__all__ = ["balancer"]  # a fixture
ALICE = User(1, "alice", "", "", "")


def submissions(daemon: FakeDaemon) -> list[pb.JobSpec]:
    return [one.spec for one in daemon.queue.requests if isinstance(one, pb.SubmitJobRequest)]


#: options of `vgpu service start` -> fields of the form, where they have other names
FIELDS = {
    "min_milli": "min",
    "max_milli": "max",
    "service_class": "class",
    "env": "environment",
    "environment": "environment_name",
    "devices": "device:",
    "registry_auth": "registry",
    "idle_after_ns": "idle_after",
    "copy_max_milli": "copy_max",
}
#: options that are about the terminal and the environment of the command line
NOT_HERE = {"quiet", "no_env", "output", "host", "timeout", "timeout_s", "help", "color", "headers"}
FULL = {
    "command": "serve --model 'a b'",
    "name": "chat",
    "directory": "work",
    "image": "r.io/serve:1",
    "volumes": "/srv/sets:/data:ro",
    "registry": "site",
    "environment": "A=1\nB=2 3",
    "gpus": "0.25",
    "min": "0.125",
    "max": "1",
    "mem": "8589934592",
    "spread": "2",
    "weight": "3",
    "mem_swap": "yes",
    "idle_after": "5m",
    "copy_max": "0.5",
    "class": "",  # latency does not go with memory that moves
    f"device:{uuid_of(1)}": "yes",
    "cpus": "2",
    "ram": "4294967296",
    "queue": "default",
    "preemptible": "yes",
    "replicas": "3",
    "restart": "on-failure",
    "scale_to_zero": "10m",
    "wake": "1m",
    "drain": "5s",
    "health_http": "/health",
    "health_every": "3s",
    "health_deadline": "1.5s",
    "start_limit": "20m",
    "public": "yes",
    "no_repeat": "yes",
}


def test_the_form_has_every_option(alice: TestClient, daemon: FakeDaemon) -> None:
    daemon.queue.environments.environments.append(pb.Environment(name="pytorch"))
    html = alice.get("/services/new").text
    fields = set(re.findall(r'name="([a-z_]+:?)', html))
    options = {FIELDS.get(str(one.name), str(one.name)) for one in start.params}
    assert options - NOT_HERE - fields == set()


def test_what_is_written_is_the_record(post: Post, daemon: FakeDaemon) -> None:
    html = post("/services/new", **FULL, listen="0.0.0.0:0")
    assert "Service chat starts." in text_of(html)
    spec = submissions(daemon)[-1]
    assert (spec.session, spec.name, spec.queue, spec.directory) == ("balancer", "chat", "default", "/usr/sbin")
    assert is_balancer(spec.command) and spec.command[-1] == "/usr/sbin/.local/state/vgpud/services/chat"
    assert spec.slice == pb.SliceSpec() and spec.log == "/usr/sbin/vgpu-service-chat.log"
    assert (spec.environment["HOME"], spec.retries, spec.not_preemptible) == ("/usr/sbin", 1000, True)
    service = read_record(spec.environment[SERVICE_RECORD])
    assert (service.name, service.replicas, service.restart, service.host) == ("chat", 3, "on-failure", "0.0.0.0")
    assert (service.idle_s, service.wake_s, service.drain_s) == (600.0, 60.0, 5.0)
    assert service.health == Health("/health", "", 3.0, 1.5, 1200.0)
    assert (service.is_public, service.repeats, len(service.token)) == (True, False, 48)
    job = json_format.ParseDict(service.template, pb.JobSpec())
    assert (list(job.command), job.image, job.session) == (["serve", "--model", "a b"], "r.io/serve:1", "replica")
    assert (job.slice.gpus_milli, job.slice.max_milli, list(job.slice.device_uuids)) == (250, 1000, [uuid_of(1)])
    assert (job.slice.mem_swap, job.slice.idle_after_ns, job.slice.copy_max_milli) == (True, 300 * 10**9, 500)
    assert (dict(job.environment), list(job.volumes)) == ({"A": "1", "B": "2 3"}, ["/srv/sets:/data:ro"])
    assert (job.cpu_milli, job.not_preemptible, job.directory) == (2000, False, "/usr/sbin/work")


def test_a_form_without_anything_else_has_the_usual_values() -> None:
    service = service_of({"command": "vllm serve org/Model-7B", "gpus": "0.5"}, ALICE, ())
    assert (service.name, service.replicas, service.restart, service.port) == ("model-7b", 1, "always", 0)
    assert service.health == Health("/health"), "vllm serve has it"
    assert service.template["command"][:2] == ["sh", "-c"] and "VGPU_SERVICE_PORT" in service.template["command"][2]
    assert form_of(service, ALICE)["command"] == "vllm serve org/Model-7B"


def test_a_clone_is_the_same_service_under_another_name() -> None:
    service = service_of(FULL, ALICE, ())
    again = form_of(service, ALICE)
    clone = service_of({**again, "name": "chat"}, ALICE, ())
    assert json.loads(clone.to_json()) | {"token": ""} == json.loads(service.to_json()) | {"token": ""}
    assert clone.token != service.token


@pytest.mark.parametrize(
    ("name", "copy"),
    [("chat", "chat-2"), ("chat-2", "chat-3"), ("chat-v10", "chat-v10-2"), ("a" * 40, "a" * 38 + "-2")],
)
def test_names_of_clones(name: str, copy: str) -> None:
    assert name_copy(name) == copy and len(copy) <= 40


@pytest.mark.usefixtures("balancer")
def test_the_form_of_a_clone(alice: TestClient) -> None:
    assert 'href="/services/new?like=chat"' in alice.get("/services").text
    html = alice.get("/services/new?like=chat").text
    assert 'value="chat-2"' in html and ">serve</textarea>" in html and 'name="replicas" value="2"' in html
    assert alice.get("/services/new?like=other").status_code == 403


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("command", "", "a job needs a command, an image"),
        ("command", "serve 'x", "close the quote"),
        ("name", "Chat", "use up to 40 small letters"),
        ("gpus", "", "write a size"),
        ("gpus", "half", "'half' is not a number of GPUs"),
        ("mem", "8 apples", "8 apples"),
        ("volumes", "data", "data"),
        ("environment", "A", "is not a variable"),
        ("listen", "here", "write PORT, or HOST:PORT"),
        ("listen", "70000", "write PORT, or HOST:PORT"),
        ("listen", "node7.example.org:8000", "write an IP address"),
        ("replicas", "65", "write 0 to 64"),
        ("scale_to_zero", "soon", "'soon' is not a time"),
        ("scale_to_zero", "90d", "use 1s to 30d"),
        ("drain", "2d", "use 0 s to 24h"),
        ("health_http", "health", "write it from / on"),
        ("health_cmd", "true", "use one of the two"),
        ("health_every", "0s", "use 0.1 s to 24h"),
    ],
)
def test_a_refusal_is_shown_at_its_field(post: Post, daemon: FakeDaemon, field: str, value: str, sentence: str) -> None:
    fields = {"command": "serve", "gpus": "0.5", "health_http": "/health", field: value}
    html = post("/services/new", **fields).replace("&#39;", "'")
    beside = re.search(f'<span class="wrong" id="w-{field}">([^<]*)</span>', html)
    assert beside and sentence in beside.group(1) and "Refused:" in text_of(html)
    assert re.search(f'id="f-{field}"[^>]* aria-invalid="true" aria-describedby="w-{field}[ "]', html)
    assert submissions(daemon) == []


@pytest.mark.usefixtures("balancer")
def test_a_name_or_a_port_that_is_taken(post: Post, daemon: FakeDaemon) -> None:
    html = post("/services/new", command="serve", gpus="0.5", name="chat")
    assert "service chat runs already" in html and 'id="w-name"' in html
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        html = post("/services/new", command="serve", gpus="0.5", name="web", listen=port)
        assert f"cannot listen at 127.0.0.1 port {port}" in html and 'id="w-listen"' in html
    assert submissions(daemon) == []


def test_a_port_is_not_tried_in_the_consoles_own_thread(post: Post, monkeypatch: pytest.MonkeyPatch) -> None:
    has_loop: list[bool] = []

    def look(*_: object) -> None:
        has_loop.append(asyncio._get_running_loop() is not None)

    monkeypatch.setattr("vgpud.console.services.start.check_port", look)
    post("/services/new", command="serve", gpus="0.5", name="web", listen="8000")
    assert has_loop == [False]


def test_what_is_too_long_for_a_variable_is_refused(post: Post, daemon: FakeDaemon) -> None:
    html = post("/services/new", command="serve", gpus="0.5", environment=f"A={'x' * 100_000}")
    assert "more than 96 KiB" in html and submissions(daemon) == []


def test_a_job_form_shows_a_refusal_at_its_field_as_well(post: Post) -> None:
    html = post("/submit", command="x", gpus="half")
    assert 'id="w-gpus"' in html and 'aria-invalid="true"' in html


def test_services_of_another_node_are_started_there(alice: TestClient, balancer: Balancer) -> None:
    assert balancer.service == Service("chat", balancer.service.template, "key", replicas=2, idle_s=600.0)
    alice.app.state.site.broker.contexts = {"n2": 1}  # type: ignore[attr-defined]
    assert "started in that node" in text_of(alice.get("/at/n2/services/new").text)
    form = {"csrf": "token-of-alice-1", "command": "serve", "gpus": "0.5"}
    assert alice.post("/at/n2/services/new", data=form).status_code == 422
