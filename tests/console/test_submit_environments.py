"""The form that queues a job: the site's environments in it."""

from __future__ import annotations

from starlette.testclient import TestClient

from tests.cli.fake_server import FakeDaemon
from vgpud.v1alpha1 import vgpud_pb2 as pb

from .conftest import Post


def add(daemon: FakeDaemon) -> None:
    defaults = pb.JobSpec(image="x:1", command=["train"], slice=pb.SliceSpec(gpus_milli=250))
    daemon.queue.environments.environments.append(
        pb.Environment(name="pytorch", description="<b>PyTorch</b>", defaults=defaults)
    )


def test_the_form_offers_what_the_user_may_use(alice: TestClient, daemon: FakeDaemon) -> None:
    assert "environment_name" not in alice.get("/submit").text
    add(daemon)
    html = alice.get("/submit").text
    assert '<option value="pytorch">pytorch: &lt;b&gt;PyTorch' in html


def test_its_command_and_size_hold_where_the_form_says_nothing(post: Post, daemon: FakeDaemon) -> None:
    add(daemon)
    post("/submit", environment_name="pytorch", gpus="", environment="A=1")
    spec = daemon.queue.requests[-1].spec
    assert (spec.environment_name, spec.slice.gpus_milli, list(spec.command)) == ("pytorch", 0, [])
    assert dict(spec.environment) == {"A": "1"}  # of an image: this machine's HOME and PATH mean nothing there


def test_a_refused_form_keeps_it(post: Post, daemon: FakeDaemon) -> None:
    add(daemon)
    html = post("/submit", environment_name="pytorch", gpus="much")
    assert '<option value="pytorch" selected>' in html
